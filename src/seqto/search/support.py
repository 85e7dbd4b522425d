"""A device's own menu, found by trying: what it cannot run is blamed on layers and left out.

Every scheme is tried on all layers that may have it, with one sample. A failure that names op
types is mapped to the layers that bring them in; one that names none (a crash, a bare "internal
error") is cornered by halving the layers, the most sensitive first. Those layers lose the
scheme, the finding says why, and the search goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from seqto.assembly.plan import Plan
from seqto.errors import DeviceError
from seqto.record.events import UNSUPPORTED, Finding
from seqto.records import Failure, Layer

Menu = dict[str, tuple[str, ...]]


Runs = Callable[[Plan], Failure | None]  # what stops a plan from running, or None


AddedOps = Callable[[str, str], frozenset[str]]  # (layer, code) → op types it adds to float's


MOST_ROUNDS = 4  # of naming ops for one scheme; then the whole scheme is given up


def narrow(
    layers: Sequence[Layer],
    menu: Mapping[str, tuple[str, ...]],
    *,
    order: Sequence[str],
    runs: Runs,
    added_ops: AddedOps,
) -> tuple[Menu, list[Finding]]:
    """The menu without what the device cannot run, and a finding for each refusal."""
    left: Menu = {name: tuple(codes) for name, codes in menu.items()}
    findings: list[Finding] = []
    codes = dict.fromkeys(c for name in menu for c in menu[name] if c not in ("fp32",))
    ranked = [*order, *(x.name for x in layers if x.name not in order)]
    for code in codes:
        for _ in range(MOST_ROUNDS):
            owners = [n for n in ranked if code in left.get(n, ())]
            if not owners:
                break
            failure = runs(_plan(owners, code))
            if failure is None:
                break
            guilty = _blamed(failure, owners, code, added_ops) or _cornered(owners, code, runs)
            guilty = guilty or owners  # only together they fail: no layer can be spared
            findings.append(_finding(code, failure, guilty))
            for name in guilty:
                left[name] = tuple(c for c in left[name] if c != code)
        else:
            _give_up(code, left, findings)
    return left, findings


def _plan(names: Sequence[str], code: str) -> Plan:
    return Plan.of(dict.fromkeys(names, code))


def _blamed(failure: Failure, owners: Sequence[str], code: str, added_ops: AddedOps) -> list[str]:
    """Layers that the failure names itself, or whose scheme adds an op that it names."""
    if failure.layers:
        return [n for n in owners if n in failure.layers]
    if not failure.ops:
        return []
    return [n for n in owners if added_ops(n, code) & set(failure.ops)]


def _cornered(owners: Sequence[str], code: str, runs: Runs) -> list[str]:
    """Single layers that fail alone, by halving; sound layers are cleared in whole halves."""
    if len(owners) == 1:
        return list(owners)
    guilty: list[str] = []
    middle = len(owners) // 2
    for half in (owners[:middle], owners[middle:]):
        if runs(_plan(half, code)) is not None:
            guilty += _cornered(half, code, runs)
    return guilty


def _give_up(code: str, left: Menu, findings: list[Finding]) -> None:
    owners = [n for n, codes in left.items() if code in codes]
    if owners:
        last = Failure("run", f"it still fails after {MOST_ROUNDS} rounds of taking layers out")
        findings.append(_finding(code, last, owners))
        for name in owners:
            left[name] = tuple(c for c in left[name] if c != code)


def _finding(code: str, failure: Failure, guilty: Sequence[str]) -> Finding:
    because = f"op {', '.join(failure.ops)}" if failure.ops else failure.message.splitlines()[0]
    count = len(guilty)
    return Finding(
        UNSUPPORTED,
        f"{code} {_fails(failure.stage)} on this device for {count} "
        f"layer{'s' if count > 1 else ''}, back to float: {because}",
        tuple(guilty),
        {"code": code, "stage": failure.stage, "ops": list(failure.ops)},
    )


def _fails(stage: str) -> str:
    """A stage as the verb of a sentence: some name what did not happen, others what did."""
    verbs = {
        "crash": "crashes",
        "timeout": "takes too long",
        "memory": "needs too much memory",
        "time": "cannot be timed",
        "plan": "cannot be planned",
        "assemble": "cannot be assembled",
    }
    return verbs.get(stage) or f"does not {stage}"


def demand_float(runs: Runs, *, device: str) -> None:
    """The float model must run, or there is nothing to compare with."""
    failure = runs(Plan())
    if failure is not None:
        raise DeviceError(
            f"the float model {_fails(failure.stage)} on {device}: {failure.message}",
            stage=failure.stage,
            ops=failure.ops,
        )

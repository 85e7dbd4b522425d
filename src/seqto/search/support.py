"""Schemes that a device can run, found by trying: those that fail leave the layers' choices.

Every scheme is run with one sample on all layers that may have it. A failure that names op types is
mapped to the layers that bring them in; for one that names none (a crash, a bare "internal error")
the layers are bisected, the most sensitive first. Those layers lose the scheme, a record says why,
and the search goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seqto.assembly.plan import Plan
from seqto.records import Failure, Json, Layer
from seqto.schemes.scheme import FP32, Scheme
from seqto.search.choices import Choices

Runs = Callable[[Plan], Failure | None]  # what stops a plan from running, or None
RunsAll = Callable[[Sequence[Plan]], Sequence[Failure | None]]  # the same of several plans at once


AddedOps = Callable[[str, Scheme], frozenset[str]]  # op types that a layer's scheme adds to float's


MOST_ROUNDS = 4  # of naming ops for one scheme; then the whole scheme is given up


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A scheme that the device cannot run on some layers."""

    scheme: Scheme
    failure: Failure
    layers: tuple[str, ...]

    @property
    def message(self) -> str:
        failure, count = self.failure, len(self.layers)
        ops = ", ".join(failure.ops)
        where = failure.device or "this device"
        because = f"op {ops}" if ops else failure.message.splitlines()[0]
        return (
            f"{self.scheme} {_fails(failure.stage)} on {where} for {count} "
            f"layer{'s' if count > 1 else ''}, back to float: {because}"
        )

    @property
    def figures(self) -> Json:
        stage, ops = self.failure.stage, list(self.failure.ops)
        return {"code": str(self.scheme), "stage": stage, "ops": ops}


def supported_choices(
    layers: Sequence[Layer],
    choices: Choices,
    *,
    order: Sequence[str],
    runs: RunsAll,
    added_ops: AddedOps,
) -> tuple[dict[str, tuple[Scheme, ...]], list[Unsupported]]:
    """Return the choices without what the device cannot run, and what that is.

    All schemes are tried at once: what one is refused does not touch the others.
    """

    def run(plan: Plan) -> Failure | None:
        (outcome,) = runs([plan])
        return outcome

    left = {name: tuple(schemes) for name, schemes in choices.items()}
    refusals: list[Unsupported] = []
    ranked = [*order, *(x.name for x in layers if x.name not in order)]
    offered = list(dict.fromkeys(s for n in choices for s in choices[n] if s != FP32))
    plans = [_plan([n for n in ranked if s in left.get(n, ())], s) for s in offered]
    first = dict(zip(offered, runs(plans), strict=True))
    for scheme in offered:
        for turn in range(MOST_ROUNDS):
            owners = [n for n in ranked if scheme in left.get(n, ())]
            failure = first[scheme] if turn == 0 else run(_plan(owners, scheme))
            if failure is None or not owners:
                break
            failing = _named_by(failure, owners, scheme, added_ops) or _bisect(owners, scheme, run)
            # layers that fail only together all lose the scheme
            refusals.append(Unsupported(scheme, failure, tuple(failing or owners)))
            _remove(left, scheme, failing or owners)
        else:
            owners = [n for n, schemes in left.items() if scheme in schemes]
            if owners:
                text = f"it still fails after {MOST_ROUNDS} rounds of taking layers out"
                refusals.append(Unsupported(scheme, Failure("run", text), tuple(owners)))
                _remove(left, scheme, owners)
    return left, refusals


def _remove(left: dict[str, tuple[Scheme, ...]], scheme: Scheme, names: Sequence[str]) -> None:
    for name in names:
        left[name] = tuple(s for s in left[name] if s != scheme)


def _plan(names: Sequence[str], scheme: Scheme) -> Plan:
    return Plan.of(dict.fromkeys(names, scheme))


def _named_by(
    failure: Failure, owners: Sequence[str], scheme: Scheme, added_ops: AddedOps
) -> list[str]:
    """Return the layers that the failure names itself, or whose scheme adds an op that it names."""
    if failure.layers:
        return [n for n in owners if n in failure.layers]
    if not failure.ops:
        return []
    return [n for n in owners if added_ops(n, scheme) & set(failure.ops)]


def _bisect(owners: Sequence[str], scheme: Scheme, runs: Runs) -> list[str]:
    """Return single layers that fail alone; sound layers are cleared in whole halves."""
    if len(owners) == 1:
        return list(owners)
    failing: list[str] = []
    middle = len(owners) // 2
    for half in (owners[:middle], owners[middle:]):
        if runs(_plan(half, scheme)) is not None:
            failing += _bisect(half, scheme, runs)
    return failing


def _fails(stage: str) -> str:
    """Return a stage as the verb of a sentence: some name what did not happen, others what did."""
    verbs = {
        "crash": "crashes",
        "timeout": "takes too long",
        "memory": "needs too much memory",
        "time": "cannot be timed",
        "plan": "cannot be planned",
        "assemble": "cannot be assembled",
    }
    return verbs.get(stage) or f"does not {stage}"

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from seqto.assembly.plan import Plan
from seqto.records import Failure, Layer
from seqto.schemes.scheme import FP32, Scheme
from seqto.search.support import supported_choices

LAYERS = [Layer(f"l{i}", "Conv", (f"l{i}",), (f"t{i}",), f"t{i + 1}", 1) for i in range(8)]
CODE = Scheme.parse("dynamic-s8-tensor")
MENU = {x.name: (FP32, CODE) for x in LAYERS}


def each(
    runs: Callable[[Plan], Failure | None],
) -> Callable[[Sequence[Plan]], list[Failure | None]]:
    return lambda plans: [runs(plan) for plan in plans]


def no_ops(_name: str, _scheme: Scheme) -> frozenset[str]:
    return frozenset()


def test_a_named_op_is_mapped_to_its_layers() -> None:
    def runs(plan: Plan) -> Failure | None:
        bad = {"l1", "l4"} & set(plan.as_dict())
        return Failure("import", "unsupported: ConvInteger", ("ConvInteger",)) if bad else None

    def added(name: str, _scheme: Scheme) -> frozenset[str]:
        return frozenset(("ConvInteger",) if name in ("l1", "l4") else ("MatMulInteger",))

    menu, findings = supported_choices(LAYERS, MENU, order=[], runs=each(runs), added_ops=added)
    assert menu["l1"] == menu["l4"] == (FP32,)
    assert menu["l0"] == (FP32, CODE)
    (finding,) = findings
    assert set(finding.layers) == {"l1", "l4"}
    assert "ConvInteger" in finding.message


def test_a_nameless_crash_is_cornered_by_halving() -> None:
    asked: list[int] = []

    def runs(plan: Plan) -> Failure | None:
        asked.append(len(plan.schemes))
        return Failure("crash", "worker died with SIGSEGV") if "l5" in plan.as_dict() else None

    menu, findings = supported_choices(
        LAYERS, MENU, order=["l5"], runs=each(runs), added_ops=no_ops
    )
    assert [n for n, codes in menu.items() if codes == (FP32,)] == ["l5"]
    assert findings[0].layers == ("l5",)
    assert len(asked) <= 1 + 2 * 3 + 1, "eight layers take three halvings"


def test_layers_that_fail_only_together_lose_the_scheme() -> None:
    def runs(plan: Plan) -> Failure | None:
        return Failure("run", "out of memory") if len(plan.schemes) > 4 else None

    menu, findings = supported_choices(LAYERS, MENU, order=[], runs=each(runs), added_ops=no_ops)
    assert all(codes == (FP32,) for codes in menu.values())
    assert len(findings[0].layers) == 8


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("crash", "crashes on this device"),
        ("timeout", "takes too long on this device"),
        ("memory", "needs too much memory on this device"),
        ("time", "cannot be timed on this device"),
        ("import", "does not import on this device"),
        ("run", "does not run on this device"),
    ],
)
def test_a_finding_is_a_sentence_whatever_the_stage(stage: str, words: str) -> None:
    def runs(plan: Plan) -> Failure | None:
        return Failure(stage, "no more is known") if plan.schemes else None

    _, findings = supported_choices(LAYERS[:1], MENU, order=[], runs=each(runs), added_ops=no_ops)
    assert findings[0].message.startswith(f"{CODE} {words} for 1 layer, back to float")


def test_what_runs_is_left_alone() -> None:
    menu, findings = supported_choices(
        LAYERS, MENU, order=[], runs=each(lambda _: None), added_ops=no_ops
    )
    assert menu == MENU
    assert findings == []


def test_all_schemes_are_tried_at_once() -> None:
    other = Scheme.parse("dynamic-s8-channel")
    menu = {x.name: (FP32, CODE, other) for x in LAYERS}
    asked: list[list[Scheme]] = []

    def runs(plans: Sequence[Plan]) -> list[Failure | None]:
        asked.append([next(iter(plan.as_dict().values())) for plan in plans])
        failure = Failure("run", "no kernel", layers=("l2",))
        return [failure if plan.as_dict().get("l2") == other else None for plan in plans]

    left, findings = supported_choices(LAYERS, menu, order=[], runs=runs, added_ops=no_ops)
    assert asked == [[CODE, other], [other]], "the second time only what was refused"
    assert left["l2"] == (FP32, CODE)
    assert left["l3"] == (FP32, CODE, other)
    assert [(f.scheme, f.layers) for f in findings] == [(other, ("l2",))]

from __future__ import annotations

import pytest

from seqto.assembly.plan import Plan
from seqto.records import Failure, Layer
from seqto.search.support import narrow

LAYERS = [Layer(f"l{i}", "Conv", (f"l{i}",), (f"t{i}",), f"t{i + 1}", 1) for i in range(8)]
CODE = "dynamic-s8-tensor"
MENU = {x.name: ("fp32", CODE) for x in LAYERS}


def no_ops(_name: str, _code: str) -> frozenset[str]:
    return frozenset()


def test_a_named_op_is_mapped_to_its_layers() -> None:
    def runs(plan: Plan) -> Failure | None:
        bad = {"l1", "l4"} & set(plan.as_dict())
        return Failure("import", "unsupported: ConvInteger", ("ConvInteger",)) if bad else None

    def added(name: str, _code: str) -> frozenset[str]:
        return frozenset(("ConvInteger",) if name in ("l1", "l4") else ("MatMulInteger",))

    menu, findings = narrow(LAYERS, MENU, order=[], runs=runs, added_ops=added)
    assert menu["l1"] == menu["l4"] == ("fp32",)
    assert menu["l0"] == ("fp32", CODE)
    (finding,) = findings
    assert set(finding.layers) == {"l1", "l4"}
    assert "ConvInteger" in finding.message


def test_a_nameless_crash_is_cornered_by_halving() -> None:
    asked: list[int] = []

    def runs(plan: Plan) -> Failure | None:
        asked.append(len(plan.schemes))
        return Failure("crash", "worker died with SIGSEGV") if "l5" in plan.as_dict() else None

    menu, findings = narrow(LAYERS, MENU, order=["l5"], runs=runs, added_ops=no_ops)
    assert [n for n, codes in menu.items() if codes == ("fp32",)] == ["l5"]
    assert findings[0].layers == ("l5",)
    assert len(asked) <= 1 + 2 * 3 + 1, "eight layers take three halvings"


def test_layers_that_fail_only_together_lose_the_scheme() -> None:
    def runs(plan: Plan) -> Failure | None:
        return Failure("run", "out of memory") if len(plan.schemes) > 4 else None

    menu, findings = narrow(LAYERS, MENU, order=[], runs=runs, added_ops=no_ops)
    assert all(codes == ("fp32",) for codes in menu.values())
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

    _, findings = narrow(LAYERS[:1], MENU, order=[], runs=runs, added_ops=no_ops)
    assert findings[0].message.startswith(f"{CODE} {words} for 1 layer, back to float")


def test_what_runs_is_left_alone() -> None:
    menu, findings = narrow(LAYERS, MENU, order=[], runs=lambda _: None, added_ops=no_ops)
    assert menu == MENU
    assert findings == []

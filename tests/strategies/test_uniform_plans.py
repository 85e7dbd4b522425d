from __future__ import annotations

import dataclasses

import pytest

from seqto.assembly.plan import Plan
from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import P8, S7
from seqto.search.choices import Constraints, range_methods, rounded_kinds
from seqto.search.latency_table import integer_layers, latency_table, profile_plans
from seqto.search.offered import WEIGHTED, WEIGHTLESS
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.uniform_plans import anchors, good_uniform, uniform_choice, with_weight

parse = Scheme.parse
LAYERS = (
    Layer("conv", "Conv", ("conv",), ("x",), "a", 5000, weight="w1"),
    Layer("dw", "Conv", ("dw",), ("a",), "b", 90, weight="w2", depthwise=True),
    Layer("add", "Add", ("add",), ("a", "b"), "c", 0),
)
ROUNDED = tuple(s for s in WEIGHTED if s.code.endswith("round-output"))
NEAREST = tuple(s for s in WEIGHTED if not s.code.endswith("round-output"))
MENU = {"conv": (parse("fp32"), *ROUNDED), "dw": (parse("fp32"), *NEAREST), "add": WEIGHTLESS}
SPACE = Space(LAYERS, MENU, {}, {}, ())


def codes(plan: dict[str, Scheme]) -> dict[str, str]:
    return {name: str(scheme) for name, scheme in plan.items()}


def test_the_good_uniform_plan_does_not_saturate() -> None:
    assert codes(good_uniform(SPACE)) == {
        "conv": "static-u8-u8-channel-bias-float-round-output",
        "dw": "static-s8-u8-channel-bias-float",
        "add": "static-u8",
    }


def test_without_integer_kernels_the_good_uniform_plan_is_weight_only() -> None:
    menu = {
        n: tuple(s for s in m if s.kind != "static") or (parse("fp32"),) for n, m in MENU.items()
    }
    found = codes(good_uniform(dataclasses.replace(SPACE, menu=menu)))
    assert found == {
        "conv": "weight-s8-channel-round-output",
        "dw": "weight-s8-channel",
        "add": "fp32",
    }


@pytest.mark.parametrize(
    ("asked", "layer", "given"),
    [
        ("static-p8-u8-channel-bias-float", 0, "static-p8-u8-channel-bias-float-round-output"),
        ("static-p8-u8-channel-bias-float", 1, "static-s8-u8-channel-bias-float"),
        ("static-p8-u8-channel-bias-float", 2, "static-u8"),
        ("weight-s8-channel", 0, "weight-s8-channel-round-output"),
        ("weight-s8-channel", 2, "static-u8"),  # the first of its choices: it has no float one
        ("static-s8-s8-tensor", 1, "static-u8-u8-channel-bias-float"),
    ],
)
def test_a_layer_takes_what_is_nearest_to_the_uniform_scheme(
    asked: str, layer: int, given: str
) -> None:
    assert str(uniform_choice(SPACE, LAYERS[layer], parse(asked))) == given


def test_anchors_are_of_one_scheme_each_and_on_the_chosen_float_model() -> None:
    plans = anchors(SPACE, Plan.of({}, ["smooth-0.5", "bias-correction"]), timed=True)
    assert all(p.transforms == ("smooth-0.5",) and p.correct_bias for p, _ in plans)
    notes = [note for _, note in plans]
    assert "uniform static-p8-u8-channel-bias-float" in notes
    assert not any("b4" in n or "s7" in n or "dynamic" in n for n in notes)
    assert notes[-1] == "every other layer static"
    assert len({p.key for p, _ in plans}) == len(plans)


def test_a_weight_type_that_a_scheme_cannot_have_gives_none() -> None:
    assert with_weight(parse("static-s7-u8-tensor"), P8) is None
    assert with_weight(parse("static-u8"), S7) is None
    assert with_weight(parse("fp16"), S7) is None
    assert str(with_weight(parse("static-s7-u8-channel"), P8)) == "static-p8-u8-channel"


def test_a_plan_with_nearest_rounding_is_priced_as_its_rounded_choice() -> None:
    plan = Plan.of({"conv": "static-s8-u8-channel-bias-float", "dw": "dynamic-s8-tensor"})
    assert codes(scheme_by_layer(SPACE, plan)) == {
        "conv": "static-s8-u8-channel-bias-float-round-output",
        "dw": "dynamic-s8-tensor",  # no choice, and no choice differs by its rounding only
        "add": "fp32",
    }


def test_each_kernel_is_profiled_once_and_gives_its_schemes_their_time() -> None:
    plans = profile_plans(LAYERS, MENU)
    assert list(plans) == ["float", "static-u8-u8-channel", "static-s8-u8-channel", "alternating"]
    assert integer_layers(plans["static-s8-u8-channel"]) == ["add", "conv", "dw"]
    assert integer_layers(plans["alternating"]) == ["dw"]
    profiles = {
        "float": {"layers_ms": {"conv": 4.0, "dw": 2.0, "add": 1.0}},
        "trial 3": {"layers_ms": {"conv": 9.0}},
        "static-s8-u8-channel": {"layers_ms": {"conv": 1.0, "dw": 0.5, "add": 0.25}},
    }
    table = latency_table(LAYERS, MENU, profiles, {})["latency_of"]
    assert table[("conv", parse("static-p8-u8-channel-bias-float-round-output"))] == 1.0
    assert table[("conv", parse("weight-s8-channel-round-output"))] == 4.0
    assert table[("add", parse("static-u8"))] == 0.25
    # the profile of u8 kernels failed: as fast as float's
    assert table[("dw", parse("static-u8-u8-channel-bias-float"))] == 2.0


def test_schemes_say_what_must_be_calibrated_and_rounded() -> None:
    assert rounded_kinds(WEIGHTED, Constraints()) == ("s8", "p8", "b4", "s6", "s5")
    assert rounded_kinds(WEIGHTED, Constraints(bits=(8, 32))) == ("s8", "p8")
    assert rounded_kinds(WEIGHTED, Constraints(max_opset=20)) == ("s8", "p8")
    assert rounded_kinds(NEAREST, Constraints()) == ()
    asked = [parse("static-s8-u8-channel-mse"), parse("weight-s8-channel"), parse("static-u8")]
    assert range_methods(asked) == ["minmax", "mse"]


def test_what_only_a_table_has_is_no_uniform_plan() -> None:
    table = Layer("table", "Gather", ("table",), (), "e", 10**6, weight="t", storage=True)
    own = (parse("fp32"), parse("weight-s8-channel"), parse("nbit-s8-channel"))
    space = dataclasses.replace(SPACE, layers=(*LAYERS, table), menu={**MENU, "table": own})
    notes = [note for _, note in anchors(space, Plan())]
    assert "uniform weight-s8-channel" in notes
    assert "uniform nbit-s8-channel" not in notes

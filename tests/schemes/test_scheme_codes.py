"""Schemes and their codes: one code per value, and codes that no value has are refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.assembly.plan import Plan
from seqto.errors import PlanError
from seqto.records import Layer
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.nbit import NBit
from seqto.schemes.scheme import FP16, FP32, Scheme, unfit
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import (
    BLOCKS,
    INT_TYPES,
    LEVELS,
    P8,
    RANGES,
    S4,
    S8,
    S16,
    U8,
    Arithmetic,
    Kernel,
    Rounding,
)
from seqto.schemes.weight_only import WeightOnly

KEYS = Path(__file__).parent / "plan_keys.json"  # of plans as 0.1.0 made them


def built(kind: Any, **fields: Any) -> Scheme | None:
    try:
        scheme: Scheme = kind(**fields)
    except PlanError:
        return None
    return scheme


types = st.sampled_from(list(INT_TYPES.values()))
rounding = st.sampled_from(list(Rounding))
blocks = st.sampled_from((0, *BLOCKS))
schemes = st.one_of(
    st.just(FP32),
    st.just(FP16),
    st.builds(
        built,
        st.just(WeightOnly),
        weight=types,
        per_channel=st.booleans(),
        rounding=rounding,
        block=blocks,
        read8=st.booleans(),
    ),
    st.builds(
        built, st.just(DynamicInt), weight=types, per_channel=st.booleans(), rounding=rounding
    ),
    st.builds(
        built,
        st.just(NBit),
        weight=types,
        rounding=rounding,
        block=blocks,
        level=st.sampled_from((None, *LEVELS)),
    ),
    st.builds(
        built,
        st.just(StaticInt),
        weight=st.none() | types,
        activation=types,
        per_channel=st.booleans(),
        float_bias=st.booleans(),
        ranges=st.sampled_from(RANGES),
        rounding=rounding,
    ),
).filter(lambda scheme: scheme is not None)


@given(schemes)
def test_a_code_read_back_is_its_scheme(scheme: Scheme) -> None:
    again = Scheme.parse(str(scheme))
    assert again == scheme
    assert hash(again) == hash(scheme)
    assert type(again) is type(scheme)
    for field in dataclasses.fields(scheme):  # type: ignore[arg-type]
        assert getattr(again, field.name) == getattr(scheme, field.name)


@given(schemes, schemes)
def test_codes_tell_schemes_apart(one: Scheme, other: Scheme) -> None:
    assert (one == other) == (repr(one) == repr(other)) == (str(one) == str(other))


@given(schemes)
def test_without_output_rounding_only_the_rounding_differs(scheme: Scheme) -> None:
    plain = scheme.without_output_rounding()
    assert plain.rounding is Rounding.NEAREST
    assert plain.kernel == scheme.kernel
    assert str(scheme) in (str(plain), f"{plain}-round-output")


@given(schemes)
def test_a_kernel_is_known_by_its_name(scheme: Scheme) -> None:
    assert Kernel.named(scheme.kernel.name) == scheme.kernel
    assert scheme.kernel.arithmetic is scheme.arithmetic


@pytest.mark.parametrize(
    "code",
    [
        "",
        "int8",
        "static-s8-u8-chanel",
        "static-s8-bias",
        "static-bias-foo",
        "static-s8-u8-channel-bias-banana",
        "static-s8-u8-channel-round-up",
        "static-s8-u8-channel-tensor",
        "static-s8-channel",
        "static-s16-u8-channel",
        "static-s8-s7-channel",
        "static-s8-u8-u8-channel",
        "static-p8-u8-tensor",
        "static-s4-u8-tensor",
        "static-s8-u8-tensor-round-output",
        "static-u8-bias-float",
        "weight",
        "weight-s9",
        "weight-u8-channel",
        "weight-s8-u8-channel",
        "weight-s8-channel-mse",
        "weight-s8-block32",
        "weight-u4-block32",
        "weight-s4-block33",
        "weight-s8-blockhead",
        "dynamic",
        "dynamic-s16",
        "dynamic-u4-channel",
        "dynamic-s4-block32",
        "nbit",
        "nbit-s8-tensor",
        "nbit-p8-channel",
        "nbit-s4-channel",
        "nbit-s8-block32",
        "nbit-s4-block32-level3",
        "fp16-s8-channel",
        "fp32-mse",
        "fp32-",
    ],
)
def test_a_code_that_no_scheme_has_is_refused(code: str) -> None:
    with pytest.raises(PlanError):
        Scheme.parse(code)


@pytest.mark.parametrize(
    ("given_code", "code"),
    [
        ("static-s8-u8-channel-minmax", "static-s8-u8-channel"),
        ("static-s8-u8-channel-bias-s32-round-nearest", "static-s8-u8-channel"),
        ("static-s8-u8", "static-s8-u8-channel"),
        ("static-u8-minmax", "static-u8"),
        ("static", "static-u8"),
        ("weight-s8", "weight-s8-channel"),
        ("dynamic-s8", "dynamic-s8-tensor"),
    ],
)
def test_what_is_usual_need_not_be_said_and_is_not_written(given_code: str, code: str) -> None:
    assert str(Scheme.parse(given_code)) == code
    assert Plan.of({"a": given_code}) == Plan.of({"a": code})
    assert Plan.of({"a": given_code}).key == Plan.of({"a": code}).key


def test_plans_have_the_keys_that_they_had() -> None:
    rows = json.loads(KEYS.read_text())
    assert len({row["key"] for row in rows}) == len(rows) > 10
    for row in rows:
        plan = Plan.of(row["schemes"], row["transforms"])
        assert plan.key == row["key"], row
        assert Plan.from_json(plan.to_json()) == plan


def test_bias_correction_is_a_flag_that_is_written_among_the_transforms() -> None:
    plan = Plan.of({"a": "static-u8"}, ["smooth-0.5", "bias-correction"])
    assert plan.transforms == ("smooth-0.5",)
    assert plan.correct_bias
    assert plan.to_json()["transforms"] == ["smooth-0.5", "bias-correction"]
    assert plan.replace({"b": "fp16"}).correct_bias
    assert not Plan.of({"a": "static-u8"}, ["smooth-0.5"]).correct_bias


def test_a_scheme_says_what_it_is() -> None:
    assert Scheme.parse("weight-s8-channel").arithmetic is Arithmetic.FLOAT
    assert Scheme.parse("dynamic-s8-channel").arithmetic is Arithmetic.DYNAMIC
    assert Scheme.parse("static-u8").arithmetic is Arithmetic.INTEGER
    assert Scheme.parse("static-s4-u16-channel").bits == (4, 16)
    assert Scheme.parse("fp16").bits == (16,)
    assert Scheme.parse("static-p8-u8-channel").kernel.name == "static-s8-u8-channel"
    assert Scheme.parse("static-u8-s16-tensor").kernel == Kernel(Arithmetic.INTEGER, U8, S16, False)
    assert StaticInt(S4).opset == StaticInt(S8, S16).opset == 21


def test_a_layer_that_a_scheme_cannot_keep_is_named_with_the_reason() -> None:
    conv = Layer("c", "Conv", ("c",), ("x",), "y", 10, weight="w")
    deconv = dataclasses.replace(conv, op_type="ConvTranspose")
    add = Layer("a", "Add", ("a",), ("x", "y"), "z", 0)
    assert unfit(conv, StaticInt(P8)) is None
    assert unfit(conv, StaticInt(None)) == "no weight type is given"
    assert "no integer op" in str(unfit(deconv, DynamicInt()))
    assert unfit(add, StaticInt(None)) is None
    for scheme in (FP16, StaticInt(), WeightOnly(), DynamicInt()):
        assert "no weights" in str(unfit(add, scheme))
    assert "max_opset is 20" in str(unfit(conv, WeightOnly(S4), max_opset=20))

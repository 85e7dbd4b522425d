"""Transforms are values that codes name; the contract suite catches what breaks the protocol."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.errors import ConfigError
from seqto.model.prepare import Prepared
from seqto.testing.suites import check_transform
from seqto.transforms.denormals import Denormals
from seqto.transforms.equalize import Equalize
from seqto.transforms.rescaling import CALIBRATED, PROVEN
from seqto.transforms.smooth import Smooth
from seqto.transforms.transform import Applied, Peaks, Transform, code_of, parse_transform
from seqto.transforms.variants import variant_of

clips = st.sampled_from([PROVEN, CALIBRATED])
transforms = st.one_of(
    st.builds(Equalize, rounds=st.integers(1, 999), clip=clips),
    st.builds(
        Smooth,
        alpha=st.floats(0, 1),
        insert=st.booleans(),
        insert_above=st.floats(1, 1e30),
        clip=clips,
    ),
    st.builds(Denormals, below=st.floats(1e-40, 1e3)),
)


@given(transforms)
def test_a_code_read_back_is_its_transform(transform: Transform) -> None:
    code = code_of(transform)
    assert parse_transform(code) == transform
    assert variant_of([code]) == code


@pytest.mark.parametrize(
    ("code", "transform"),
    [
        ("smooth", Smooth()),
        ("smooth-0.5", Smooth(alpha=0.5)),
        ("smooth-0.7", Smooth(alpha=0.7)),
        ("smooth-0.7-insert=true-clip=calibrated", Smooth(0.7, insert=True, clip=CALIBRATED)),
        ("equalize-5.0", Equalize(rounds=5)),
        ("denormals-1e-7", Denormals()),
        ("denormals-below=1e-9", Denormals(below=1e-9)),
    ],
)
def test_every_field_can_be_set(code: str, transform: Transform) -> None:
    assert parse_transform(code) == transform


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("smoth-0.5", ["'smooth'"]),
        ("bias-corection", ["'bias-correction'"]),
        ("polish", ["polish", "bias-correction", "equalize"]),
        ("smooth-alfa=1", ["'alfa'", "'alpha'"]),
        ("smooth-0.5-alpha=0.7", ["alpha"]),
        ("smooth-half", ["'half'", "float"]),
        ("smooth-insert=maybe", ["'maybe'", "true or false"]),
        ("equalize-2.5", ["'2.5'", "int"]),
        ("equalize-inf", ["'inf'", "int"]),
        ("smooth-2", ["alpha", "from 0 to 1"]),
        ("smooth-", ["'smooth-'", "dash", "'smooth'"]),
    ],
)
def test_a_code_that_names_no_transform_is_refused_in_one_line(code: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_transform(code)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "transform", [Equalize(), Smooth(), Smooth(0.8, clip=CALIBRATED), Denormals(1e-2)], ids=code_of
)
def test_the_transforms_keep_the_contract(transform: Transform) -> None:
    check_transform(transform)


@dataclass(frozen=True)
class Broken:
    """Equalizes, then breaks the contract in one way."""

    how: str = ""
    kind: ClassVar[str] = "broken"

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied:
        applied = Equalize().apply(prepared, peaks)
        if self.how == "changes":
            prepared.proto.graph.initializer[0].raw_data = b"\0" * len(
                prepared.proto.graph.initializer[0].raw_data
            )
        elif self.how == "moves":
            first = applied.proto.graph.initializer[0]
            first.raw_data = b"\0" * len(first.raw_data)
        elif self.how == "renames":
            applied.proto.graph.node[0].name = "another"
        elif self.how == "touches":
            applied = dataclasses.replace(applied, touched=("nowhere",))
        return applied


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("changes", "not to be changed"),
        ("moves", "says exact"),
        ("renames", "keep their names"),
        ("touches", "touched"),
    ],
)
def test_transforms_that_break_the_contract_are_caught(how: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_transform(Broken(how))


def test_a_transform_that_does_not_say_its_kind_is_caught() -> None:
    @dataclass(frozen=True)
    class Nameless:
        def apply(self, prepared: Prepared, peaks: Peaks) -> Any:
            return Equalize().apply(prepared, peaks)

    with pytest.raises(AssertionError, match="kind"):
        check_transform(Nameless())  # type: ignore[arg-type]

from __future__ import annotations

import dataclasses

import pytest

from seqto.devices.ort import Ort
from seqto.records import Layer
from seqto.schemes.scheme import FP16, Scheme
from seqto.search import choices

LAYERS = (
    Layer("conv", "Conv", ("conv",), ("x",), "a", 5000, weight="w1", bias="b1"),
    Layer("dw", "Conv", ("dw",), ("a",), "b", 90, weight="w2", bias="b2", depthwise=True),
    Layer("add", "Add", ("add",), ("a", "b"), "c", 0),
    Layer("fc", "Gemm", ("fc",), ("c",), "y", 4000, weight="w3", bias="b3"),
)
ROUNDABLE = frozenset((name, kind) for name in ("conv", "fc") for kind in ("s8", "p8", "b4"))
BYTES = {x.name: 4 * x.parameters for x in LAYERS}


def offered(**more: object) -> dict[str, tuple[str, ...]]:
    """Return layer → codes."""
    settings: dict[str, object] = {"weight_bytes": BYTES, "roundable": ROUNDABLE}
    constraints = more.pop("constraints", choices.Constraints())
    found, _ = choices.all_choices(LAYERS, Ort(), constraints, **{**settings, **more})  # type: ignore[arg-type]
    return {name: tuple(str(s) for s in schemes) for name, schemes in found.items()}


def test_p8_takes_the_place_of_s7_where_it_can_be_made() -> None:
    found = offered()
    assert "static-p8-u8-channel-bias-float-round-output" in found["conv"]
    assert not [c for c in found["conv"] if "-s7-" in c]
    assert "static-s7-u8-channel-bias-float" in found["dw"]
    assert not [c for c in found["dw"] if "-p8-" in c]


def test_without_time_nothing_runs_on_integers() -> None:
    found = offered(timed=False)
    assert not [c for codes in found.values() for c in codes if c.startswith(("static", "dynamic"))]
    assert found["add"] == ("fp32",)
    assert "weight-s8-channel-round-output" in found["conv"]
    _, rows = choices.all_choices(
        LAYERS, Ort(), choices.Constraints(), weight_bytes=BYTES, timed=False
    )
    (row,) = [r for r in rows if r.what == "an integer kernel"]
    assert set(row.layers) == {"conv", "dw", "add", "fc"}


def test_a_target_that_is_integer_only_keeps_its_kernels_without_time() -> None:
    found = offered(timed=False, constraints=choices.Constraints(integer_only=True))
    assert all(c.startswith("static") for n in ("conv", "dw", "fc") for c in found[n])
    assert "static-u8" in found["add"]


def test_a_menu_that_is_asked_for_stays_as_it_is() -> None:
    asked = ("static-u8-u8-channel-bias-float", "weight-s8-channel")
    only = [Scheme.parse(code) for code in asked]
    assert offered(timed=False, only=only)["conv"] == ("fp32", *asked)


def test_half_precision_that_is_asked_for_is_offered_to_layers_with_weights() -> None:
    found = offered(only=[FP16])
    assert found["conv"] == ("fp32", "fp16")
    assert found["add"] == ("fp32", "static-u8")


def block_of_products(number: int) -> list[Layer]:
    """Return four small matrix products and one product of two activations."""
    products = [
        Layer(
            f"m{number}{i}",
            "MatMul",
            (f"m{number}{i}",),
            ("x",),
            f"y{number}{i}",
            64 * 64,
            weight=f"w{number}{i}",
            weight_shape=(64, 64),
        )
        for i in range(4)
    ]
    scores = Layer(f"a{number}", "MatMul", (f"a{number}",), ("q", "k"), f"s{number}", 0)
    return [*products, scores]


def test_repeated_small_layers_are_offered_four_bits_since_together_they_save_much() -> None:
    layers = [x for number in range(12) for x in block_of_products(number)]
    other = Layer("one", "MatMul", ("one",), ("x",), "z", 64, weight="w", weight_shape=(8, 8))
    table = Layer("table", "Gather", ("table",), (), "e", 10**7, weight="t", storage=True)
    layers += [other, table]
    small = {x.name: 4 * x.parameters for x in layers}
    assert small["m00"] / 8 / sum(small.values()) < choices.NARROW_SHARE
    found, _ = choices.all_choices(layers, Ort(), choices.Constraints(), weight_bytes=small)
    assert "nbit-u4-block32" in {str(s) for s in found["m00"]}
    assert "nbit-u4-block32" not in {str(s) for s in found["one"]}


@pytest.mark.parametrize(("width", "block"), [(128, 64), (96, 32), (80, 0)])
def test_tables_whose_rows_are_no_multiple_of_64_have_five_and_six_bits_in_blocks_of_32(
    width: int, block: int
) -> None:
    """stories15m: rows of 288 numbers in a table of 60 % of the bytes, which the head reads too."""
    tied = Layer("tied", "MatMul", ("tied",), ("x",), "y", 10**6, "w", table="t")
    own = Layer("own", "Gather", ("own",), (), "e", 10**6, "o", storage=True)
    layers = [
        *block_of_products(0),
        dataclasses.replace(tied, weight_shape=(width, 10**4)),
        dataclasses.replace(own, weight_shape=(10**4, width)),
    ]
    sizes = {x.name: 4 * x.parameters for x in layers}
    found, left_out = choices.all_choices(layers, Ort(), choices.Constraints(), weight_bytes=sizes)
    narrow = [str(s) for s in found["tied"] if str(s).startswith(("nbit-s5", "nbit-s6"))]
    assert narrow == ([f"nbit-s{bits}-block{block}" for bits in (6, 5)] if block else [])
    five = [str(s) for s in found["own"] if str(s).startswith("weight-s5-block")]
    assert five == ([f"weight-s5-block{block}"] if block else [])
    assert bool([x for x in left_out if x.what.startswith("nbit-s5")]) == (not block)

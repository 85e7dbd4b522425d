"""Plan → model: what a plan says is what the file computes."""

from __future__ import annotations

import functools
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

import fake_quant
import nets
from net_builder import Net
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.assembly.rounded_weights import round_layers
from seqto.calibration.collect import calibrate
from seqto.calibration.gram import columns_of
from seqto.calibration.statistics import Statistics
from seqto.errors import PlanError
from seqto.model.prepare import prepare
from seqto.records import Layer
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.part import Part
from seqto.schemes.scheme import FP16, FP32, Scheme, opset_needed, unfit
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import (
    ACTIVATIONS,
    B4,
    MINMAX,
    P8,
    RANGES,
    S4,
    S5,
    S6,
    S7,
    S8,
    U8,
    WEIGHTS,
    Rounding,
)
from seqto.schemes.weight_only import WeightOnly

METHODS = ("minmax", "percentile", "mse")
NETS = {
    "residual": nets.residual,
    "branches": nets.branches,
    "dense": nets.dense,
    "two_inputs": nets.two_inputs,
    "reshaped": nets.reshaped,
    "transposed": nets.transposed,
}
quick = settings(max_examples=20, deadline=None, derandomize=True)


@functools.cache
def assembler_of(net: str) -> Assembler:
    prepared = prepare(NETS[net]())
    feeds = [feeds_of(net, rows=1, seed=i) for i in range(6)]
    found = calibrate(prepared, lambda: feeds, methods=METHODS)
    kinds = [w.name for w in WEIGHTS if w.signed]  # u8 is s8 moved up
    layers = [x for x in prepared.layers if columns_of(x, prepared)]
    rounded = round_layers(
        prepared, lambda: feeds, layers, kinds, constants=Assembler(prepared, Statistics({}, {}))
    )
    return Assembler(prepared, found.statistics, rounded=rounded)


def feeds_of(net: str, *, rows: int = 3, seed: int = 100) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    specs = prepare(NETS[net]()).inputs
    sizes = {s.name: [rows, *(d or 4 for d in s.shape[1:])] for s in specs}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in sizes.items()}


# --------------------------------------------------------------------------- all codes there are

GRID: list[Scheme] = [
    StaticInt(w, a, per_channel=c, float_bias=b, ranges=r, rounding=o)
    for w in WEIGHTS
    for a in ACTIVATIONS
    for c, o in (
        (True, Rounding.NEAREST),
        (True, Rounding.OUTPUT),
        *([] if w in (S4, S5, S6, P8, B4) else [(False, Rounding.NEAREST)]),
    )
    for b in (False, True)
    for r in RANGES
]
GRID += [StaticInt(None, a, ranges=r) for a in ACTIVATIONS for r in RANGES]
GRID += [WeightOnly(w, rounding=o) for w in WEIGHTS if w.signed for o in Rounding]
GRID += [WeightOnly(w, per_channel=False) for w in (S8, S7)]
GRID += [DynamicInt(w) for w in (S8, S7, P8, U8)]
GRID += [DynamicInt(w, per_channel=False) for w in (S8, S7, U8)]
GRID += [FP32, FP16]


names = st.text(min_size=1, max_size=12)
plans = st.builds(
    Plan.of,
    st.dictionaries(names, st.sampled_from(GRID), max_size=6),
    st.lists(st.sampled_from(["equalize", "smooth-0.5", "bias-correction"]), max_size=2),
)


@given(plans)
def test_a_plan_survives_json_and_keeps_its_key(plan: Plan) -> None:
    again = Plan.from_json(plan.to_json())
    assert again == plan
    assert again.key == plan.key


def test_plans_that_are_read_share_equal_pairs_of_layer_and_scheme() -> None:
    plans = [Plan.from_json({"schemes": {"a": "fp16", "b": c}}) for c in ("fp16", "static-u8")]
    assert plans[0].schemes[0] is plans[1].schemes[0]
    assert plans[0].schemes[1] != plans[1].schemes[1]


@given(st.dictionaries(names, st.sampled_from(GRID), max_size=6))
def test_the_order_in_which_layers_are_named_does_not_matter(schemes: dict[str, Scheme]) -> None:
    turned = dict(reversed(list(schemes.items())))
    assert Plan.of(schemes) == Plan.of(turned)
    explicit = {**schemes, "one that stays float": FP32}
    assert Plan.of(explicit).key == Plan.of(schemes).key


# ------------------------------------------------------------------------------- random plans


def codes_for(assembler: Assembler, layer: Layer, *, dynamic: bool) -> list[str]:
    """Return everything that this layer can be here."""
    roundable = any(name == layer.name for name, _ in assembler.rounded)
    found = []
    for scheme in GRID:
        if isinstance(scheme, StaticInt) and scheme.ranges not in (MINMAX, *METHODS):
            continue
        if scheme.rounding is Rounding.OUTPUT and not roundable:
            continue
        if scheme.kind == "dynamic" and not dynamic:
            continue
        if not unfit(layer, scheme):
            found.append(str(scheme))
    return found


@st.composite
def plans_for(draw: Any, net: str, *, dynamic: bool) -> Plan:
    assembler = assembler_of(net)
    chosen: dict[str, str] = {}
    for layer in assembler.prepared.layers:
        codes = codes_for(assembler, layer, dynamic=dynamic)
        chosen[layer.name] = draw(st.sampled_from(["fp32", *codes]))
    return Plan.of(chosen)


@pytest.mark.parametrize("net", NETS)
@quick
@given(data=st.data())
def test_any_plan_computes_what_it_says(net: str, data: Any) -> None:
    """Against a second implementation, in exact arithmetic, but for single steps of rounding."""
    plan = data.draw(plans_for(net, dynamic=False))
    assembler = assembler_of(net)
    feeds = feeds_of(net)
    made = assembler.assemble(plan)
    got = nets.run(made.data, feeds, exact=True)
    want = fake_quant.compute(assembler, plan, feeds)
    for a, b in zip(got, want, strict=True):
        spread = float(np.abs(b).max())
        # sums of products are rounded in another order where bias and weights are not the same
        # tensors: a value next to a step may fall to its other side
        assert np.quantile(np.abs(a - b), 0.9) <= 1e-5 * spread, str(plan)
        assert float(np.abs(a - b).max()) <= 0.05 * spread, str(plan)


@pytest.mark.parametrize("net", ["residual", "dense", "two_inputs"])
@quick
@given(data=st.data())
def test_any_plan_loads_and_runs_with_all_optimizations(net: str, data: Any) -> None:
    plan = data.draw(plans_for(net, dynamic=True))
    made = assembler_of(net).assemble(plan)
    onnx.checker.check_model(onnx.load_from_string(made.data))
    (got,) = nets.run(made.data, feeds_of(net))
    assert got.shape == (3, nets.CLASSES)
    assert np.isfinite(got).all()
    assert made.size_bytes == len(made.data)


@pytest.mark.parametrize("net", ["residual", "branches", "two_inputs"])
@quick
@given(data=st.data())
def test_layers_outside_a_plan_keep_their_weights_bit_for_bit(net: str, data: Any) -> None:
    plan = data.draw(plans_for(net, dynamic=True))
    assembler = assembler_of(net)
    made = onnx.load_from_string(assembler.assemble(plan).data)
    after = {t.name: numpy_helper.to_array(t) for t in made.graph.initializer}
    for layer in assembler.prepared.layers:
        if layer.weight and plan.scheme_of(layer.name).kind == "fp32":
            np.testing.assert_array_equal(after[layer.weight], assembler.weight(layer))
            if layer.bias:
                np.testing.assert_array_equal(after[layer.bias], assembler.bias(layer))


def test_the_empty_plan_gives_floats_answers_exactly() -> None:
    for net in NETS:
        assembler = assembler_of(net)
        feeds = feeds_of(net)
        got = nets.run(assembler.assemble(Plan()).data, feeds)
        want = nets.run(assembler.prepared.proto, feeds)
        np.testing.assert_array_equal(got[0], want[0])


# ------------------------------------------------------------------------------- opset and size


def test_the_opset_is_the_lowest_that_the_plan_needs() -> None:
    assembler = assembler_of("residual")
    conv = assembler.prepared.layers[0].name
    wanted = {
        "static-s8-u8-channel": 13,
        "weight-s8-channel": 13,
        "fp16": 13,
        "dynamic-s8-tensor": 13,
        "weight-s4-channel": 21,
        "static-s8-u16-channel": 21,
    }
    for code, opset in wanted.items():
        made = assembler.assemble(Plan.of({conv: code}))
        assert made.opset == opset == opset_needed(Scheme.parse(code))
        versions = onnx.load_from_string(made.data).opset_import
        assert [(o.domain, o.version) for o in versions] == [("", opset)]


def test_only_standard_operators_are_written() -> None:
    for net in NETS:
        assembler = assembler_of(net)
        for layer in assembler.prepared.layers:
            for code in codes_for(assembler, layer, dynamic=True)[::7]:
                proto = onnx.load_from_string(assembler.assemble(Plan.of({layer.name: code})).data)
                assert {n.domain for n in proto.graph.node} <= {""}


def test_max_opset_refuses_what_is_newer() -> None:
    known = assembler_of("residual")
    bounded = Assembler(known.prepared, known.statistics, max_opset=20)
    conv = known.prepared.layers[0].name
    with pytest.raises(PlanError, match="opset 21 and max_opset is 20"):
        bounded.assemble(Plan.of({conv: "weight-s4-channel"}))
    assert bounded.assemble(Plan.of({conv: "weight-s8-channel"})).opset == 13


def test_an_unknown_layer_is_an_error_with_near_names() -> None:
    with pytest.raises(PlanError, match=r"no layer '/net/Conv_00'.*did you mean.*/net/Conv_0'"):
        assembler_of("residual").assemble(Plan.of({"/net/Conv_00": "fp16"}))


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("Add", "weight-s8-channel"),
        ("Add", "fp16"),
        ("Add", "static-s8-u8-channel"),
        ("Conv", "static-u8"),
    ],
)
def test_what_a_layer_cannot_be_is_refused_with_the_reason(kind: str, code: str) -> None:
    assembler = assembler_of("residual")
    layer = next(x for x in assembler.prepared.layers if x.op_type == kind)
    with pytest.raises(PlanError, match="cannot be"):
        assembler.assemble(Plan.of({layer.name: code}))


def test_a_part_that_is_only_priced_is_not_kept() -> None:
    """The main process prices every (layer, scheme): all parts would be many models."""
    shared = assembler_of("residual")
    assembler = Assembler(shared.prepared, shared.statistics)

    def parts() -> int:
        gc.collect()
        return sum(type(x) is Part for x in gc.get_objects())

    before = parts()
    for layer in assembler.prepared.layers:
        for code in ("fp16", "weight-s8-channel", "static-s8-u8-channel"):
            if layer.weight:
                assert assembler.bytes_of(layer, Scheme.parse(code)) > 0
    assert parts() == before
    assembler.assemble(Plan.of({"/net/Conv_0": "fp16"}))
    assert parts() > before


@pytest.mark.parametrize("net", ["residual", "dense"])
def test_bytes_of_says_what_a_layer_costs_in_the_file(net: str) -> None:
    assembler = assembler_of(net)
    plain = assembler.assemble(Plan()).size_bytes
    for layer in [x for x in assembler.prepared.layers if x.weight]:
        was = assembler.bytes_of(layer, FP32)
        for code in ("fp16", "weight-s8-channel", "weight-s8-tensor"):
            now = assembler.bytes_of(layer, Scheme.parse(code))
            grown = assembler.assemble(Plan.of({layer.name: code})).size_bytes - plain
            # the plan's own note, and the length of the graph's length
            assert abs(grown - (now - was)) <= 48, (layer.name, code)


# ---------------------------------------------------------------------------------- same bytes

PROGRAM = """
import nets, sys
import test_assemble as t
from seqto.assembly.plan import Plan
plan = Plan.of({"/net/Conv_0": "static-s8-u8-channel", "/net/Conv_2": "weight-s4-channel",
                "/net/Add_5": "static-u8", "/net/Gemm_8": "dynamic-s8-channel"})
print(t.assembler_of("residual").assemble(plan).sha256)
"""


def test_the_same_plan_gives_the_same_bytes_in_every_process() -> None:
    here = Path(__file__).parent
    found = set()
    for seed in ("1", "77"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join([str(here), *sys.path])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout.strip())
    assert len(found) == 1


def test_the_plan_is_in_the_models_metadata() -> None:
    assembler = assembler_of("residual")
    plan = Plan.of({x.name: "fp16" for x in assembler.prepared.layers if x.weight})
    proto = onnx.load_from_string(assembler.assemble(plan).data)
    assert {p.key: p.value for p in proto.metadata_props} == {"seqto": "fp16:0-2,5"}


def test_two_plans_of_the_same_model_differ_in_nothing_but_what_they_say() -> None:
    assembler = assembler_of("residual")
    first = assembler.assemble(Plan.of({"/net/Conv_0": "fp16"}))
    again = assembler.assemble(Plan.of({"/net/Conv_0": "fp16"}))
    other = assembler.assemble(Plan.of({"/net/Conv_2": "fp16"}))
    assert first.sha256 == again.sha256 != other.sha256


# ------------------------------------------------------------------------------------- biases


def test_a_bias_too_large_for_its_scale_raises_the_weights_scale() -> None:
    """onnxruntime#22020: dead weights make a scale so fine that an int32 bias saturates."""
    net = Net()
    weight = net.constant(
        (np.random.default_rng(0).standard_normal((4, 3, 1, 1)) * 1e-9).astype("f4")
    )
    bias = net.constant(np.array([5.0, -3.0, 0.5, 0.0], dtype=np.float32))
    net.add("Conv", ["x", weight, bias], output="y")
    side = nets.SIDE
    prepared = prepare(net.model({"x": ["N", 3, side, side]}, {"y": ["N", 4, side, side]}))
    feeds = {"x": nets.pictures(2)}
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    made = assembler.assemble(Plan.of({prepared.layers[0].name: "static-s8-u8-channel"}))
    assert not made.saturated_biases
    got, want = nets.run(made.data, feeds, exact=True)[0], nets.run(prepared.proto, feeds)[0]
    np.testing.assert_allclose(got, want, atol=0.03)


def test_bias_correction_brings_the_mean_output_nearer() -> None:
    assembler = assembler_of("dense")
    feeds = feeds_of("dense", rows=200, seed=5)
    plain = Plan.of({x.name: "weight-s4-channel" for x in assembler.prepared.layers if x.weight})
    fixed = Plan.of(plain.as_dict(), ["bias-correction"])
    want = nets.run(assembler.prepared.proto, feeds)[0].mean(axis=0)
    gaps = [
        np.abs(nets.run(assembler.assemble(p).data, feeds)[0].mean(axis=0) - want).sum()
        for p in (plain, fixed)
    ]
    assert gaps[1] < gaps[0]


def test_what_overflows_on_its_way_in_is_rounded_to_the_nearest() -> None:
    """A Gram matrix of huge activations is infinite in single precision: no inverse, no crash."""
    prepared = prepare(NETS["residual"]())
    huge = [{n: x * np.float32(1e25) for n, x in feeds_of("residual").items()}]
    layers = [x for x in prepared.layers if columns_of(x, prepared)]
    assert layers
    first = layers[0]
    found = round_layers(
        prepared, lambda: huge, layers, ["s8"], constants=Assembler(prepared, Statistics({}, {}))
    )
    assert first.name not in {layer for layer, _ in found}


def wide_net() -> Any:
    """x ─▶ MatMul(64 × 64) ─▶ Relu ─▶ MatMul(64 × 64) ─▶ ReduceMean ─▶ y, opset 13."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32), name)
        for name in ("a", "b")
    ]
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "a"], ["p"], name="first"),
        onnx.helper.make_node("Relu", ["p"], ["r"], name="relu"),
        onnx.helper.make_node("MatMul", ["r", "b"], ["q"], name="second"),
        onnx.helper.make_node("ReduceMean", ["q"], ["y"], name="mean", axes=[1], keepdims=1),
    ]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 64])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 1])
    graph = onnx.helper.make_graph(nodes, "wide", [x], [y], weights)
    imports = [onnx.helper.make_opsetid("", 13)]
    return onnx.helper.make_model(graph, opset_imports=imports, ir_version=8)


def test_a_model_of_another_opset_has_all_weights_and_its_graph_is_kept_without_them() -> None:
    """Each opset that some scheme needed was one more float model in memory."""
    prepared = prepare(wide_net())
    assembler = Assembler(prepared, Statistics({}, {}))
    plan = Plan((("second", Scheme.parse("weight-s4-block32")),))
    assert any(w.HasField("doc_string") for w in prepared.proto.graph.initializer)
    made = onnx.load_from_string(assembler.assemble(plan).data)
    assert made.opset_import[0].version == 21
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    want, got = nets.run(wide_net(), {"x": x})[0], nets.run(made, {"x": x})[0]
    assert np.abs(want - got).max() < 0.2 * np.abs(want).max()
    # a float layer's weights are the prepared model's, also in what no run has noticed: an empty
    # note is two bytes, and another sha256 than that of an earlier version's files
    weights = {w.name: w.SerializeToString() for w in prepared.proto.graph.initializer}
    kept = [w for w in made.graph.initializer if w.name in weights]
    assert [w.name for w in kept] == ["w0"]
    assert kept[0].SerializeToString() == weights["w0"]
    (raised,) = (base for opset, base in assembler._bases.items() if opset == 21)
    assert raised.ByteSize() < prepared.proto.ByteSize() / 10


def test_parts_are_kept_up_to_half_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqto.assembly.assembler.LEAST_KEPT_BYTES", 0)
    prepared = prepare(wide_net())
    assembler = Assembler(prepared, Statistics({}, {}))
    layers = [x.name for x in prepared.layers if x.weight]
    first = {}
    for code in ("fp16", "weight-s8-channel", "fp16"):  # a half, a quarter, a half of the weights
        plan = Plan(tuple((name, Scheme.parse(code)) for name in layers))
        made = assembler.assemble(plan).sha256
        assert first.setdefault(code, made) == made
        kept = sum(part.size_bytes for part in assembler._parts.values())
        assert kept <= prepared.proto.ByteSize() // 2

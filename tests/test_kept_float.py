"""A layer that a plan keeps float runs in float, in whatever session loads the file.

ONNX Runtime's optimizer WeightBiasQuantization makes float weights between a DequantizeLinear and
a QuantizeLinear int8. The graph that a session has loaded is compared with that of a session which
has this optimizer disabled: the same kernels, the same answers.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import nets
from net_builder import Net
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.devices.ort import Ort
from seqto.devices.ort_profile import CONVERSIONS, attribute_times, node_owners
from seqto.model.prepare import Prepared, prepare

REQUANTIZER = "WeightBiasQuantization"
LEVELS = ("ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")
FLOAT_SCHEMES = ("fp32", "fp16", "weight-s8-channel")
CHANNELS = 24  # more than the guard writes out one by one
STATIC = "static-s8-u8-channel"


def chain(op: str, activation: str, *, channels: int = CHANNELS, bias: bool = True) -> Any:
    """Return three products in a row, with the activation behind each."""
    net = Net(opset=17)
    x = "x"
    for _ in range(3):
        x = product(net, op, x, channels, bias=bias)
        if activation == "Relu":
            x = net.add("Relu", [x])
        elif activation == "Clip":
            x = net.clip(x, 0.0, 1.0)
    net.add("Sigmoid", [x], output="y")
    shape = [1, channels] if op in ("Gemm", "MatMul") else [1, channels, 6, 6]
    return net.model({"x": shape}, {"y": shape})


def product(net: Net, op: str, x: str, channels: int, *, bias: bool) -> str:
    if op == "Conv":
        return net.conv(x, (channels, channels), bias=bias)
    size = (channels, channels, 3, 3) if op == "ConvTranspose" else (channels, channels)
    inputs = [x, net.weight(*size)]
    added = net.constant(net.rng.standard_normal(channels).astype(np.float32) * 0.3)
    if op == "MatMul":
        return net.add("Add", [net.add("MatMul", inputs), added])
    pads = {"pads": [1] * 4} if op == "ConvTranspose" else {}
    return net.add(op, [*inputs, added] if bias else inputs, **pads)


def samples(prepared: Prepared, count: int = 4) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    shapes = {s.name: [d or 1 for d in s.shape] for s in prepared.inputs}
    return [
        {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
        for _ in range(count)
    ]


def assembler_for(proto: Any) -> Assembler:
    prepared = prepare(proto)
    feeds = samples(prepared)
    return Assembler(prepared, calibrate(prepared, lambda: feeds).statistics)


def plan_for(made: Assembler, kept: dict[str, str], *, static: str = STATIC) -> Plan:
    """Return all layers static but those in `kept`."""
    weightless = "static-" + static.split("-")[2]
    schemes = {x.name: static if x.weight else weightless for x in made.prepared.layers}
    return Plan.of({**schemes, **kept})


def weighted(made: Assembler) -> list[str]:
    return [x.name for x in made.prepared.layers if x.weight]


def loaded(
    data: bytes, folder: Path, *, level: str = "ORT_ENABLE_ALL", disabled: bool = False
) -> tuple[Any, Any]:
    """Return a session and the graph that it runs."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    off = [REQUANTIZER] if disabled else []
    providers = ["CPUExecutionProvider"]
    session = ort.InferenceSession(data, options, providers=providers, disabled_optimizers=off)
    return session, onnx.load(folder / "loaded.onnx").graph


def kernels(graph: Any) -> Counter[str]:
    return Counter(n.op_type for n in graph.node)


def assert_float_is_kept(
    made: Assembler, plan: Plan, folder: Path, *, copies: int = 0
) -> Counter[str]:
    """As the same plan without guards runs when the optimizer is disabled, copies aside."""
    data, bare = made.assemble(plan).data, without_guards(made, plan)
    feeds = samples(made.prepared, 1)[0]
    for level in LEVELS:
        session, graph = loaded(data, folder, level=level)
        reference, wanted = loaded(bare, folder, level=level, disabled=True)
        found = kernels(graph)
        assert found["Sum"] == copies
        assert found - Counter(Sum=copies) == kernels(wanted), level
        np.testing.assert_array_equal(session.run(None, feeds)[0], reference.run(None, feeds)[0])
    return found


def without_guards(made: Assembler, plan: Plan) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "seqto.assembly.graph_writer.keep_float",
            lambda nodes, constants, **_: (nodes, constants),
        )
        return made.assemble(plan).data


@pytest.mark.parametrize("scheme", FLOAT_SCHEMES)
@pytest.mark.parametrize("activation", ["", "Relu", "Clip"])
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm", "MatMul"])
def test_a_float_layer_between_static_ones_runs_in_float(
    op: str, activation: str, scheme: str, tmp_path: Path
) -> None:
    made = assembler_for(chain(op, activation))
    found = assert_float_is_kept(made, plan_for(made, {weighted(made)[1]: scheme}), tmp_path)
    integer = {"Conv": "QLinearConv", "Gemm": "QGemm"}.get(op)
    if integer:
        assert found[integer] == 2, found
    names = {"Conv": ("Conv", "FusedConv"), "ConvTranspose": ("ConvTranspose",)}
    floats = names.get(op, ("Gemm", "FusedGemm", "MatMul"))
    # onnxruntime has no integer ConvTranspose: all three of them run as floats
    assert sum(found[f] for f in floats) == (3 if op == "ConvTranspose" else 1), found


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm"])
@pytest.mark.parametrize("channels", [1, 2, 40])
@pytest.mark.parametrize("bias", [True, False])
def test_any_number_of_channels_with_and_without_bias(
    op: str, channels: int, bias: bool, tmp_path: Path
) -> None:
    made = assembler_for(chain(op, "Relu", channels=channels, bias=bias))
    plan = plan_for(made, {weighted(made)[1]: "fp32"})
    # one input of one number: nothing can be repeated
    copies = 1 if (op, channels) == ("Gemm", 1) else 0
    assert_float_is_kept(made, plan, tmp_path, copies=copies)


@pytest.mark.parametrize("activation", ["s8", "u16", "s16"])
def test_other_activation_types(activation: str, tmp_path: Path) -> None:
    made = assembler_for(chain("Conv", "Relu"))
    static = f"static-s8-{activation}-channel"
    plan = plan_for(made, {weighted(made)[1]: "fp32"}, static=static)
    assert_float_is_kept(made, plan, tmp_path, copies=1 if activation == "s8" else 0)


def moved(mover: str, *, before: bool) -> Any:
    """Return Conv, Conv, Conv with an op that moves data before or behind the middle one."""
    net = Net(opset=17)

    def move(x: str) -> str:
        if mover == "MaxPool":
            return net.add("MaxPool", [x], kernel_shape=[2, 2])
        if mover == "Transpose":
            return net.add("Transpose", [x], perm=[0, 1, 3, 2])
        if mover == "Pad":
            return net.pad(x, [0, 0, 1, 1, 0, 0, 1, 1])
        starts, ends, axes = (net.constant(np.array([i], dtype=np.int64)) for i in (0, 4, 2))
        return net.add("Slice", [x, starts, ends, axes])

    x = net.conv("x", (CHANNELS, CHANNELS))
    x = move(x) if before else x
    x = net.add("Relu", [net.conv(x, (CHANNELS, CHANNELS))])
    x = x if before else move(x)
    x = net.conv(x, (CHANNELS, CHANNELS))
    net.add("GlobalAveragePool", [x], output="y")
    return net.model({"x": [1, CHANNELS, 6, 6]}, {"y": [1, CHANNELS, 1, 1]})


@pytest.mark.parametrize("mover", ["MaxPool", "Transpose", "Slice", "Pad"])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("static", [True, False])
def test_what_moves_data_does_not_bring_the_integers_back(
    mover: str, before: bool, static: bool, tmp_path: Path
) -> None:
    """A session moves DequantizeLinear down and QuantizeLinear up through such nodes."""
    made = assembler_for(moved(mover, before=before))
    kept = {weighted(made)[1]: "fp32"}
    if not static:
        kept |= {x.name: "fp32" for x in made.prepared.layers if x.op_type == mover}
    plan = plan_for(made, kept)
    if static or not before or mover == "Pad":
        assert_float_is_kept(made, plan, tmp_path)
        return
    # without the guard ORT moves such a node in among the integers; now it is float as planned
    feeds = samples(made.prepared, 1)[0]
    session, graph = loaded(made.assemble(plan).data, tmp_path)
    reference, _ = loaded(without_guards(made, plan), tmp_path, disabled=True)
    assert (kernels(graph)["QLinearConv"], kernels(graph)["Conv"]) == (2, 1)
    np.testing.assert_array_equal(session.run(None, feeds)[0], reference.run(None, feeds)[0])


def test_one_guard_serves_all_readers_of_a_tensor(tmp_path: Path) -> None:
    net = Net(opset=17)
    x = net.add("Relu", [net.conv("x", (CHANNELS, CHANNELS))])
    ends = [net.add("Relu", [net.conv(x, (CHANNELS, CHANNELS))]) for _ in range(3)]
    net.add("GlobalAveragePool", [net.add("Concat", ends, axis=1)], output="y")
    out = [1, 3 * CHANNELS, 1, 1]
    made = assembler_for(net.model({"x": [1, CHANNELS, 6, 6]}, {"y": out}))
    plan = plan_for(made, dict.fromkeys(weighted(made)[1:3], "fp32"))
    found = assert_float_is_kept(made, plan, tmp_path)
    assert found["QLinearConv"] == 2
    proto = onnx.load_from_string(made.assemble(plan).data)
    assert len(guards_of(proto)) == 1


def guards_of(proto: Any) -> list[Any]:
    constants = {t.name for t in proto.graph.initializer}
    nodes = [n for n in proto.graph.node if n.op_type == "DequantizeLinear"]
    return [n for n in nodes if n.input[0] not in constants and n.attribute]


def test_a_guard_costs_less_than_a_hundred_bytes() -> None:
    made = assembler_for(chain("Conv", "", channels=64))
    plan = plan_for(made, {weighted(made)[1]: "fp32"})
    assert 0 < made.assemble(plan).size_bytes - len(without_guards(made, plan)) < 100


@pytest.mark.parametrize("position", [0, 1, 2])
def test_no_guard_where_nothing_would_be_requantized(position: int) -> None:
    """The first layer reads the float input, the last one is read by a float layer."""
    made = assembler_for(chain("Conv", "Relu"))
    names = weighted(made)
    static = {x.name: STATIC for x in made.prepared.layers if x.weight}
    plan = Plan.of({**static, names[position]: "fp32"})
    proto = onnx.load_from_string(made.assemble(plan).data)
    assert len(guards_of(proto)) == (position == 1)
    assert not guards_of(onnx.load_from_string(made.assemble(Plan.of(static)).data))


@pytest.mark.parametrize(("op", "integer"), [("Conv", "QLinearConv"), ("Gemm", "QGemm")])
def test_a_float_bias_still_becomes_part_of_an_integer_kernel(
    op: str, integer: str, tmp_path: Path
) -> None:
    """The same optimizer makes the bias int32 there, which is wanted."""
    made = assembler_for(chain(op, "Relu"))
    plan = plan_for(made, {}, static=f"{STATIC}-bias-float")
    _, graph = loaded(made.assemble(plan).data, tmp_path)
    assert kernels(graph)[integer] == 3
    _, without = loaded(made.assemble(plan).data, tmp_path, disabled=True)
    assert kernels(without)[integer] == 0  # so the test sees the optimizer at work


def test_a_profile_names_the_kernel_of_every_layer() -> None:
    made = assembler_for(nets.residual(batch=1))
    names = weighted(made)
    plan = plan_for(made, {names[1]: "fp16", names[3]: "dynamic-s8-channel"})
    feeds = samples(made.prepared, 1)[0]
    rows = Ort().profile(made.assemble(plan).data, feeds, runs=1)
    found = attribute_times(rows, node_owners(made))["kernels"]
    assert [found[n] for n in names] == [
        "QLinearConv",
        "Conv",
        "QLinearConv",
        "DynamicQuantizeMatMul",
    ]
    assert "QLinearAdd" in found.values()
    assert not set(found.values()) & set(CONVERSIONS)

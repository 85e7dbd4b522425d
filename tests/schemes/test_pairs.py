"""p8: int8 weights of which no two neighbours saturate a 16-bit sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nets
from net_builder import Net
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.devices import saturation
from seqto.devices.ort import Ort
from seqto.errors import PlanError
from seqto.model.prepare import prepare
from seqto.records import Layer
from seqto.schemes import integers, pairs
from seqto.schemes.output_rounding import Rounder
from seqto.schemes.types import P8, S7, S8, U8

LAYER = Layer("l", "Conv", ("l",), ("x",), "y", 1, weight="w")
SHAPES = ((4, 8, 1, 1), (3, 4, 3, 3), (2, 3, 3, 3), (5, 7), (2, 1, 3, 3))


def worst_sum(data: NDArray[Any], axis: int) -> int:
    """The largest sum of two neighbours of one sign, by a plain loop over channels-last order."""
    moved = np.moveaxis(data, axis, 0).astype(int)
    worst = 0
    for channel in moved:
        flat = (np.moveaxis(channel, 0, -1) if channel.ndim > 1 else channel).reshape(-1)
        for a, b in zip(flat[0::2], flat[1::2], strict=False):
            if a * b > 0:
                worst = max(worst, abs(a) + abs(b))
    return worst


@pytest.mark.avx2
@settings(max_examples=60, deadline=None, derandomize=True)
@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 10_000), spread=st.floats(0.01, 30.0))
def test_no_pair_saturates_whatever_the_weights(
    shape: tuple[int, ...], seed: int, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    weight = (rng.standard_t(2, size=shape) * spread).astype(np.float32)
    plain = integers.quantize(weight, P8, axis=0)
    assert worst_sum(plain.data, 0) <= integers.PAIR_LIMIT
    columns = int(np.prod(shape[1:]))
    rows = rng.normal(size=(40, columns))
    grams = np.stack([rows[::2].T @ rows[::2], rows[1::2].T @ rows[1::2]])
    rounded = Rounder(LAYER, weight, grams, axis=0).round(S8, P8)
    assert worst_sum(rounded[P8].data, 0) <= integers.PAIR_LIMIT
    assert min(plain.data.min(), rounded[P8].data.min()) >= -127
    assert not pairs.may_saturate(layer_node(CONV), rounded[P8].data)
    step = np.abs(weight - plain.restore()).reshape(len(weight), -1).max(axis=1) / plain.scale
    assert step.max() <= 1.01  # a pair gives way by rounding, at most


def test_p8_is_finer_than_s7_and_never_finer_than_s8() -> None:
    weight = np.random.default_rng(1).normal(size=(32, 64, 1, 1)).astype(np.float32)
    s8, p8, s7 = (integers.quantize(weight, k, axis=0) for k in (S8, P8, S7))
    error = [float(((weight - q.restore()) ** 2).mean()) for q in (s8, p8, s7)]
    assert error[0] <= error[1] < 0.8 * error[2]


def test_unlike_signs_need_no_room() -> None:
    """127 and -127 beside each other: one product cancels the other, nothing saturates."""
    weight = np.array([[1.0, -1.0, 0.5, 0.25]], np.float32)
    np.testing.assert_array_equal(
        integers.quantize(weight, P8, axis=0).data, integers.quantize(weight, S8, axis=0).data
    )


@pytest.mark.avx2
@pytest.mark.parametrize(("kernel", "channels"), [(1, 8), (3, 4), (3, 3)])
def test_the_device_computes_p8_exactly(kernel: int, channels: int) -> None:
    """All weights of one sign and activations at the top: the worst that can come."""
    net = Net()
    side = 6
    values = np.random.default_rng(0).uniform(0.5, 1.0, size=(4, channels, kernel, kernel))
    weight = net.constant(values.astype(np.float32))
    bias = net.constant(np.zeros(4, np.float32))
    net.add("Conv", ["x", weight, bias], output="y", kernel_shape=[kernel, kernel])
    out = side - kernel + 1
    model = net.model({"x": ["N", channels, side, side]}, {"y": ["N", 4, out, out]})
    prepared = prepare(model)
    feeds = {"x": np.ones((1, channels, side, side), np.float32)}
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    name = next(x.name for x in prepared.layers if x.weight)
    plan = {x.name: "static-u8" for x in prepared.layers if not x.weight}
    made = assembler.assemble(Plan.of({**plan, name: "static-p8-u8-channel-bias-float"})).data
    (device,), (exact,) = nets.run(made, feeds), nets.run(made, feeds, exact=True)
    step = float(exact.max()) / 255
    np.testing.assert_allclose(device, exact, atol=1.01 * step)


def test_p8_for_a_whole_tensor_is_refused() -> None:
    prepared = prepare(nets.residual())
    feeds = {"x": nets.pictures(1)}
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    name = next(x.name for x in prepared.layers if x.weight)
    with pytest.raises(PlanError, match="p8 goes by channel"):
        assembler.assemble(Plan.of({name: "static-p8-u8-tensor"}))


# ------------------------------------------------------------------- the law, asked of any weights

CONV, GEMM, TURNED, MATMUL = "Conv", "Gemm", "Gemm, transB", "MatMul"
FORMS: tuple[tuple[str, tuple[int, ...], int], ...] = (  # op, shape of the weights, groups
    (CONV, (4, 4, 3), 1),
    (CONV, (4, 3, 2, 2), 1),
    (CONV, (4, 2, 1, 2), 2),
    (CONV, (4, 1, 2, 2), 4),  # depthwise
    (CONV, (4, 1, 2, 2), 2),  # one input and two outputs a group
    (CONV, (3, 1, 2, 2), 1),
    (GEMM, (5, 3), 1),
    (TURNED, (3, 5), 1),
    (MATMUL, (5, 3), 1),
)


def layer_node(form: str, group: int = 1) -> Any:
    from onnx import helper

    if form == CONV:
        return helper.make_node("Conv", ["x", "w"], ["y"], group=group)
    return helper.make_node(
        form.partition(",")[0], ["x", "w"], ["y"], **({"transB": 1} if form == TURNED else {})
    )


def two_weights(form: str, shape: tuple[int, ...], i: int, j: int) -> NDArray[np.int8]:
    """Return weights of 127 at two places of what every output sums up, and zeros."""
    axis = 0 if form in (CONV, TURNED) else 1
    rest = [n for place, n in enumerate(shape) if place != axis]
    flat = np.zeros((shape[axis], int(np.prod(rest))), np.int8)
    flat[:, [i, j]] = 127
    return np.ascontiguousarray(np.moveaxis(flat.reshape(shape[axis], *rest), 0, axis))


def fed_with_255(form: str, weight: NDArray[np.int8], group: int) -> tuple[bytes, dict[str, Any]]:
    """x ─ Q ─ DQ ─ layer ─ Q ─ DQ ─ y; all scales but that of y are 1."""
    from onnx import TensorProto, helper, numpy_helper

    spatial = weight.ndim - 2
    shape = [1, weight.shape[1] * group, *[4] * spatial] if form == CONV else [2, 5]
    constants: dict[str, Any] = {
        "w_q": weight,
        "one": np.float32(1),
        "zero": np.uint8(0),
        "zero_s8": np.int8(0),
        "step": np.float32(400),
    }
    node = layer_node(form, group)
    node.input[:], node.output[:] = ["x_d", "w"], ["y_f"]
    make = helper.make_node
    nodes = [
        make("QuantizeLinear", ["x", "one", "zero"], ["x_q"]),
        make("DequantizeLinear", ["x_q", "one", "zero"], ["x_d"]),
        make("DequantizeLinear", ["w_q", "one", "zero_s8"], ["w"]),
        node,
        make("QuantizeLinear", ["y_f", "step", "zero"], ["y_q"]),
        make("DequantizeLinear", ["y_q", "step", "zero"], ["y"]),
    ]
    floats = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "pair",
        [helper.make_tensor_value_info("x", floats, shape)],
        [helper.make_tensor_value_info("y", floats, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    return model, {"x": np.full(shape, 255, np.float32)}


@pytest.mark.avx2
@pytest.mark.parametrize(("form", "shape", "group"), FORMS)
def test_the_law_names_the_very_pairs_that_the_device_saturates(
    form: str, shape: tuple[int, ...], group: int
) -> None:
    """Each pair of places is tried: the law says yes exactly where the kernel is wrong."""
    summed = int(np.prod(shape)) // shape[0 if form in (CONV, TURNED) else 1]
    named, wrong = [], []
    for i in range(summed):
        for j in range(i + 1, summed):
            weight = two_weights(form, shape, i, j)
            model, feeds = fed_with_255(form, weight, group)
            (device,), (exact,) = nets.run(model, feeds), nets.run(model, feeds, exact=True)
            named += [(i, j)] if pairs.may_saturate(layer_node(form, group), weight) else []
            wrong += [(i, j)] if abs(device - exact).max() > 500 else []
    if saturation.probe(Ort())["result"] == saturation.SATURATES:
        assert named == wrong
    else:
        assert wrong == []
    assert bool(named) == (group != shape[0] or form != CONV)


@given(shape=st.sampled_from(SHAPES), seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_the_law_is_that_of_p8(shape: tuple[int, ...], seed: int) -> None:
    weight = np.random.default_rng(seed).standard_t(2, size=shape).astype(np.float32)
    node = layer_node(CONV if len(shape) > 2 else TURNED)
    for kind in (S8, P8, S7):
        data = integers.quantize(weight, kind, axis=0).data
        assert pairs.may_saturate(node, data) == (worst_sum(data, 0) > integers.PAIR_LIMIT)
    assert not pairs.may_saturate(node, integers.quantize(weight, P8, axis=0).data)
    assert not pairs.may_saturate(node, integers.quantize(weight, U8, axis=0).data)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("static-s8-u8-channel-bias-float", True),
        ("static-s8-s8-tensor", True),
        ("static-p8-u8-channel-bias-float", False),
        ("static-s7-u8-channel-bias-float", False),
        ("static-u8-u8-channel-bias-float", False),
        ("static-s8-u16-channel", False),
        ("weight-s8-channel", False),
        ("dynamic-s8-channel", True),
        ("dynamic-p8-channel", False),
        ("nbit-s8-channel", False),
    ],
)
def test_an_assembled_model_names_its_layers_that_may_saturate(code: str, expected: bool) -> None:
    net = Net()
    weight = net.constant(np.ones((8, 4), np.float32))
    net.add("MatMul", ["x", weight], output="y")
    prepared = prepare(net.model({"x": ["N", 8]}, {"y": ["N", 4]}))
    feeds = {"x": np.ones((1, 8), np.float32)}
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    name = next(x.name for x in prepared.layers if x.weight)
    made = assembler.assemble(Plan.of({name: code}))
    assert made.may_saturate == ((name,) if expected else ())


def test_a_dynamic_convolution_is_exact_on_every_cpu() -> None:
    """ConvInteger multiplies the weights by the unfolded inputs, on another kernel."""
    net = Net()
    weight = net.constant(np.ones((4, 4, 1, 1), np.float32))
    net.add("Conv", ["x", weight], output="y")
    prepared = prepare(net.model({"x": ["N", 4, 3, 3]}, {"y": ["N", 4, 3, 3]}))
    feeds = {"x": np.ones((1, 4, 3, 3), np.float32)}
    assembler = Assembler(prepared, calibrate(prepared, lambda: [feeds]).statistics)
    name = next(x.name for x in prepared.layers if x.weight)
    made = assembler.assemble(Plan.of({name: "dynamic-s8-channel"}))
    assert made.may_saturate == ()
    (device,), (exact,) = nets.run(made.data, feeds), nets.run(made.data, feeds, exact=True)
    np.testing.assert_allclose(device, np.full_like(exact, 4.0), rtol=1e-2)


def test_two_weights_of_minus_128_do_not_fit_on_arm_without_sdot() -> None:
    rows = np.zeros((2, 32), np.int8)
    rows[0, [0, 9]] = -128
    assert pairs.rows_may_saturate(rows)
    rows[0, 9] = -127
    assert not pairs.rows_may_saturate(rows)

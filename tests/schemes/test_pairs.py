"""p8: int8 weights of which no two neighbours saturate a 16-bit sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.errors import PlanError
from seqto.model.prepare import prepare
from seqto.records import Layer
from seqto.schemes import integers
from seqto.schemes.output_rounding import Rounder
from seqto.schemes.types import P8, S7, S8

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
    net = nets.Net()
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

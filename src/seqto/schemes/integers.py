"""Integer arithmetic of quantization: scales, zero points, rounding.

The formulas and their float widths are those of onnxruntime.quantization, so that what we
write is bit for bit what it would write (tests/test_stock_equality.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.schemes import multiples
from seqto.schemes.types import P8, IntType

Floats = NDArray[np.float32]


TINY = np.finfo(np.float32).tiny
PAIR_LIMIT = P8.pair_limit or 0  # see IntType


@dataclass(frozen=True, slots=True)
class Quantized:
    """Integers with their scale; value ≈ (data - zero_point) * scale along `axis`.

    With blocks, `block` numbers in a row along `axis` share a scale, and scales have the shape of
    the data but for that axis, as a DequantizeLinear with a block size has them.
    """

    data: NDArray[np.generic]
    scale: Floats
    zero_point: NDArray[np.generic]
    axis: int | None
    block: int = 0

    def restore(self) -> Floats:
        scale, zero = self.scale, self.zero_point.astype(np.float32)
        if self.block and self.axis is not None:
            block_of = np.arange(self.data.shape[self.axis]) // self.block
            scale, zero = (np.take(x, block_of, axis=self.axis) for x in (scale, zero))
        elif self.axis is not None:
            shape = [1] * self.data.ndim
            shape[self.axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        restored: Floats = ((self.data.astype(np.float32) - zero) * scale).astype(np.float32)
        return restored

    def turned(self) -> Quantized:
        """Return the transpose of a matrix."""
        axis = None if self.axis is None else 1 - self.axis
        data = np.ascontiguousarray(self.data.T)
        scale = np.ascontiguousarray(self.scale.T)
        return Quantized(data, scale, np.ascontiguousarray(self.zero_point.T), axis, self.block)


def affine(
    low: Floats | np.float32, high: Floats | np.float32, to: IntType, *, symmetric: bool
) -> tuple[Floats, NDArray[np.generic]]:
    """Scale and zero point for ranges [low, high] (elementwise), zero always included."""
    qmin, qmax = to.low, to.high
    low = np.minimum(low, np.float32(0)).astype(np.float32)
    high = np.maximum(high, np.float32(0)).astype(np.float32)
    if symmetric:
        bound = np.maximum(np.abs(low), np.abs(high))
        low, high = -bound, bound
        qmin, qmax = to.symmetric_low, to.symmetric_high
    wide = (high.astype(np.float64) - low.astype(np.float64)) / float(qmax - qmin)
    degenerate = wide < TINY
    safe = np.where(degenerate, 1.0, wide)
    if symmetric:
        # dead channels too: QLinearConv wants one zero point for all of them
        zero = np.full(safe.shape, np.round((qmin + qmax) / 2.0))
    else:
        zero = np.where(degenerate, 0.0, np.round(qmin - low / safe))
    return safe.astype(np.float32), zero.astype(to.dtype)


def round_to(
    values: Floats, scale: Floats, zero_point: NDArray[np.generic], to: IntType
) -> NDArray[np.generic]:
    """Return nearest integers (ties to even), clipped to the type's whole range."""
    scaled = (values.astype(np.float32) / scale).round() + zero_point.astype(np.float32)
    integers: NDArray[np.generic] = np.clip(scaled, to.lowest, to.highest).astype(to.dtype)
    return integers


def quantize(values: Floats, to: IntType, *, axis: int | None) -> Quantized:
    """Round to nearest. Per channel is symmetric always: QLinearConv wants equal zero points."""
    symmetric = axis is not None or to.signed
    if to.multiples and axis is not None:
        rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
        scales = multiples.search_grid(rows, None, size=to.multiples).scale.astype(np.float32)
        return requantize(values, scales, np.zeros(len(scales), np.int8), to, axis=axis)
    if axis is None:
        scale, zero = affine(values.min(), values.max(), to, symmetric=symmetric)
        return Quantized(round_to(values, scale, zero, to), scale, zero, None)
    others = tuple(i for i in range(values.ndim) if i != axis)
    low, high = values.min(axis=others), values.max(axis=others)
    scale, zero = affine(low, high, to, symmetric=symmetric)
    if to.pair_limit is not None:
        moved = np.moveaxis(values, axis, 0)
        needed = scale_for_pairs(moved.reshape(len(moved), -1), *neighbours(values.shape, axis))
        scale = np.maximum(scale, needed.astype(np.float32))
    return requantize(values, scale, zero, to, axis=axis)


def scale_for_pairs(
    rows: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the smallest scale of each row with which no pair has to give way."""
    one, two = rows[:, left].astype(np.float64), rows[:, right].astype(np.float64)
    sums = np.where(one * two > 0, np.abs(one) + np.abs(two), 0.0)
    needed: NDArray[np.float64] = sums.max(axis=1, initial=0.0) / PAIR_LIMIT
    return needed


def requantize(
    values: Floats, scale: Floats, zero: NDArray[np.generic], to: IntType, *, axis: int | None
) -> Quantized:
    """Round to nearest with scales that are given."""
    if axis is None:
        return Quantized(round_to(values, scale, zero, to), scale, zero, None)
    if to.multiples:
        moved = np.moveaxis(values, axis, 0)
        rows = moved.reshape(len(moved), -1)
        multiple = multiples.round_with_scale(rows, scale, size=to.multiples)
        whole = np.moveaxis(multiple.reshape(moved.shape), 0, axis).astype(to.dtype)
        return Quantized(np.ascontiguousarray(whole), scale, zero, axis)
    shape = [1] * values.ndim
    shape[axis] = -1
    data = round_to(values, scale.reshape(shape), zero.reshape(shape), to)
    if to.pair_limit is not None:
        data = within_pairs(data, axis)
    return Quantized(data, scale, zero, axis)


def neighbours(shape: Sequence[int], axis: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the columns that a kernel adds in pairs, of weights as a matrix with `axis` first.

    Convolutions run with channels last, so neighbours are two input channels at one position.
    """
    inner_shape = [n for i, n in enumerate(shape) if i != axis]
    order = np.arange(int(np.prod(inner_shape))).reshape(inner_shape)
    if len(inner_shape) > 1:
        order = np.moveaxis(order, 0, -1)
    flat = order.reshape(-1)
    even = len(flat) // 2 * 2
    return flat[0:even:2], flat[1:even:2]


def limit_pairs(
    rows: NDArray[Any], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[Any]:
    """Lower the larger of two neighbours of one sign until their sum is within the limit."""
    one, two = rows[:, left], rows[:, right]
    excess = np.maximum(np.abs(one) + np.abs(two) - PAIR_LIMIT, 0) * (one * two > 0)
    first = np.abs(one) >= np.abs(two)
    limited = rows.copy()
    limited[:, left] = one - np.sign(one) * excess * first
    limited[:, right] = two - np.sign(two) * excess * ~first
    return limited


def within_pairs(data: NDArray[np.generic], axis: int) -> NDArray[np.generic]:
    """Return integers of which no two neighbours saturate a 16-bit sum."""
    moved = np.moveaxis(data, axis, 0)
    rows = moved.reshape(len(moved), -1).astype(np.int32)
    limited = limit_pairs(rows, *neighbours(data.shape, axis)).reshape(moved.shape)
    return np.ascontiguousarray(np.moveaxis(limited, 0, axis).astype(data.dtype))


def unsigned(q: Quantized) -> Quantized:
    """Return the same values with u8 integers: symmetric s8, moved up by 128."""
    data = (q.data.astype(np.int16) + 128).astype(np.uint8)
    zero = (q.zero_point.astype(np.int16) + 128).astype(np.uint8)
    return Quantized(data, q.scale, zero, q.axis)


def rescaled(values: Floats, q: Quantized, scale: Floats, to: IntType) -> Quantized:
    """Return the same integers, but channels whose scale is another are rounded again."""
    if np.array_equal(scale, q.scale):
        return q
    again = requantize(values, scale, q.zero_point, to, axis=q.axis)
    if q.axis is None:
        return again
    shape = [1] * values.ndim
    shape[q.axis] = -1
    data = np.where((scale != q.scale).reshape(shape), again.data, q.data)
    return Quantized(data, scale, q.zero_point, q.axis)


def scale_that_holds_bias(
    weight_scale: Floats, input_scale: float, bias: Floats, *, per_channel: bool
) -> Floats:
    """Return weight scales, raised where input_scale * weight_scale is too fine for an int32 bias.

    MobileNetV3's dead squeeze-and-excite weights (1e-7) need this: without it the bias
    saturates and the layer's answer is lost (onnxruntime#22020).
    """
    limit = 2.0 * np.abs(bias.astype(np.float64))
    if per_channel:  # several biases may share a scale, see bias_scale
        limit = limit.reshape(-1, weight_scale.size).max(axis=0)
    else:
        limit = np.asarray(np.max(limit, initial=0.0))
    smallest = 1.0001 * limit / (2.0**32 - 2.0)
    candidate = float(input_scale) * weight_scale.astype(np.float64)
    raised = (candidate < smallest) & (candidate > 0.0)
    ratio = np.where(raised, smallest / np.where(candidate > 0.0, candidate, 1.0), 1.0)
    raised_scale = (weight_scale.astype(np.float64) * ratio).astype(np.float32)
    held: Floats = np.where(raised, raised_scale, weight_scale).astype(np.float32)
    return held


def one_per_channel(bias: Floats, weight_scale: Floats) -> Floats:
    """Return a Gemm's bias written out: ONNX lets it be one number, or one for every row."""
    shape = np.broadcast_shapes(bias.shape, weight_scale.shape)
    return np.ascontiguousarray(np.broadcast_to(bias, shape))


def bias_scale(input_scale: float, weight_scale: Floats, bias: Floats) -> Floats:
    """Return the scale of an int32 bias: one, or one for each of its channels.

    The weights of a ConvTranspose with groups have the channels of one group on their axis, so
    each of their scales serves the same channel of every group.
    """
    scale = np.asarray(np.float32(input_scale) * weight_scale, dtype=np.float32)
    return scale if scale.ndim == 0 else np.tile(scale, bias.shape[-1] // scale.size)


def quantize_bias(bias: Floats, scale: Floats) -> tuple[NDArray[np.int32], int]:
    """Return the int32 bias and how many of its values saturate."""
    wide = (bias.astype(np.float64) / scale.astype(np.float64)).round()
    bounds = np.iinfo(np.int32)
    saturated = int(np.count_nonzero((wide < bounds.min) | (wide > bounds.max)))
    return np.clip(wide, bounds.min, bounds.max).astype(np.int32), saturated

"""Integer arithmetic of quantization: scales, zero points, rounding.

The formulas and their float widths are those of onnxruntime.quantization, so that what we
write is bit for bit what it would write (tests/test_stock_equality.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# name → (numpy type, lowest, highest, lowest when symmetric, highest when symmetric)
RANGES: dict[str, tuple[type[np.generic], int, int, int, int]] = {
    "s8": (np.int8, -128, 127, -127, 127),
    "s7": (np.int8, -64, 64, -64, 64),
    "u8": (np.uint8, 0, 255, 0, 255),
    "s4": (np.int8, -8, 7, -7, 7),
    "s16": (np.int16, -32768, 32767, -32767, 32767),
    "u16": (np.uint16, 0, 65535, 0, 65535),
}
TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True, slots=True)
class Quantized:
    """Integers with their scale; value ≈ (data - zero_point) * scale along `axis`."""

    data: NDArray[np.generic]
    scale: Floats
    zero_point: NDArray[np.generic]
    axis: int | None

    def restore(self) -> Floats:
        scale, zero = self.scale, self.zero_point.astype(np.float32)
        if self.axis is not None:
            shape = [1] * self.data.ndim
            shape[self.axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape)
        restored: Floats = ((self.data.astype(np.float32) - zero) * scale).astype(np.float32)
        return restored


def affine(
    low: Floats | np.float32, high: Floats | np.float32, kind: str, *, symmetric: bool
) -> tuple[Floats, NDArray[np.generic]]:
    """Scale and zero point for ranges [low, high] (elementwise), zero always included."""
    dtype, qmin, qmax, smin, smax = RANGES[kind]
    low = np.minimum(low, np.float32(0)).astype(np.float32)
    high = np.maximum(high, np.float32(0)).astype(np.float32)
    if symmetric:
        bound = np.maximum(np.abs(low), np.abs(high))
        low, high = -bound, bound
        qmin, qmax = smin, smax
    wide = (high.astype(np.float64) - low.astype(np.float64)) / float(qmax - qmin)
    degenerate = wide < TINY
    safe = np.where(degenerate, 1.0, wide)
    if symmetric:
        # dead channels too: QLinearConv wants one zero point for all of them
        zero = np.full(safe.shape, np.round((qmin + qmax) / 2.0))
    else:
        zero = np.where(degenerate, 0.0, np.round(qmin - low / safe))
    return safe.astype(np.float32), zero.astype(dtype)


def round_to(
    values: Floats, scale: Floats, zero_point: NDArray[np.generic], kind: str
) -> NDArray[np.generic]:
    """Nearest integers (ties to even), clipped to the type's whole range."""
    dtype, qmin, qmax, _, _ = RANGES["s8" if kind == "s7" else kind]
    scaled = (values.astype(np.float32) / scale).round() + zero_point.astype(np.float32)
    integers: NDArray[np.generic] = np.clip(scaled, qmin, qmax).astype(dtype)
    return integers


def quantize(values: Floats, kind: str, *, axis: int | None) -> Quantized:
    """Round to nearest. Per channel is symmetric always: QLinearConv wants equal zero points."""
    symmetric = axis is not None or kind in ("s8", "s7", "s4")
    if axis is None:
        scale, zero = affine(values.min(), values.max(), kind, symmetric=symmetric)
        return Quantized(round_to(values, scale, zero, kind), scale, zero, None)
    others = tuple(i for i in range(values.ndim) if i != axis)
    low, high = values.min(axis=others), values.max(axis=others)
    scale, zero = affine(low, high, kind, symmetric=symmetric)
    return requantize(values, scale, zero, kind, axis=axis)


def requantize(
    values: Floats, scale: Floats, zero: NDArray[np.generic], kind: str, *, axis: int | None
) -> Quantized:
    """Round to nearest with scales that are given."""
    if axis is None:
        return Quantized(round_to(values, scale, zero, kind), scale, zero, None)
    shape = [1] * values.ndim
    shape[axis] = -1
    data = round_to(values, scale.reshape(shape), zero.reshape(shape), kind)
    return Quantized(data, scale, zero, axis)


def unsigned(q: Quantized) -> Quantized:
    """The same values with u8 integers: symmetric s8, moved up by 128."""
    data = (q.data.astype(np.int16) + 128).astype(np.uint8)
    zero = (q.zero_point.astype(np.int16) + 128).astype(np.uint8)
    return Quantized(data, q.scale, zero, q.axis)


def rescaled(values: Floats, q: Quantized, scale: Floats, kind: str) -> Quantized:
    """The same integers, but for channels whose scale is another: those are rounded again."""
    if np.array_equal(scale, q.scale):
        return q
    again = requantize(values, scale, q.zero_point, kind, axis=q.axis)
    if q.axis is None:
        return again
    shape = [1] * values.ndim
    shape[q.axis] = -1
    data = np.where((scale != q.scale).reshape(shape), again.data, q.data)
    return Quantized(data, scale, q.zero_point, q.axis)


def scale_that_holds_bias(
    weight_scale: Floats, input_scale: float, bias: Floats, *, per_channel: bool
) -> Floats:
    """Weight scales, raised where input_scale * weight_scale is too fine for an int32 bias.

    MobileNetV3's dead squeeze-and-excite weights (1e-7) need this: without it the bias
    saturates and the layer's answer is lost (onnxruntime#22020).
    """
    limit = 2.0 * np.abs(bias.astype(np.float64))
    limit = limit if per_channel else np.asarray(np.max(limit, initial=0.0))
    smallest = 1.0001 * limit / (2.0**32 - 2.0)
    candidate = float(input_scale) * weight_scale.astype(np.float64)
    raised = (candidate < smallest) & (candidate > 0.0)
    ratio = np.where(raised, smallest / np.where(candidate > 0.0, candidate, 1.0), 1.0)
    wanted = (weight_scale.astype(np.float64) * ratio).astype(np.float32)
    held: Floats = np.where(raised, wanted, weight_scale).astype(np.float32)
    return held


def quantize_bias(bias: Floats, scale: Floats) -> tuple[NDArray[np.int32], int]:
    """int32 bias and how many of its values saturate."""
    wide = (bias.astype(np.float64) / scale.astype(np.float64)).round()
    bounds = np.iinfo(np.int32)
    saturated = int(np.count_nonzero((wide < bounds.min) | (wide > bounds.max)))
    return np.clip(wide, bounds.min, bounds.max).astype(np.int32), saturated

"""Four-bit numbers in blocks: 32, 64 or 128 in a row share a scale.

A block has few numbers, so its largest decides much: the scale of each block is the one of a few
shares of the full range whose squared rounding error is smallest. Scales are numbers that half
precision has, where they fit: they are stored so.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqto.schemes.integers import TINY, Floats, Quantized
from seqto.schemes.types import IntType

SHARES = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)  # of the full range of a block
ROWS_AT_ONCE = 1 << 21  # numbers that are looked at together: memory stays small
HALF_RANGE = (6.2e-5, 6.0e4)  # magnitudes that half precision has with all its digits


def quantize_blocks(values: Floats, to: IntType, *, axis: int, block: int) -> Quantized:
    """Return a matrix's numbers rounded, blocks running along `axis`; the last may be short."""
    rows = values if axis == 1 else values.T
    length = rows.shape[1]
    if length % block:  # the last block is a short one: zeros do not change its range
        rows = np.pad(rows, ((0, 0), (0, -length % block)))
    count, columns = rows.shape
    data = np.empty((count, columns), to.dtype)
    scale = np.empty((count, columns // block), np.float32)
    zero = np.zeros((count, columns // block), to.dtype)
    step = max(1, ROWS_AT_ONCE // columns)
    for start in range(0, count, step):
        part = slice(start, start + step)
        blocks = rows[part].reshape(-1, columns // block, block).astype(np.float32)
        best = _rounded_signed(blocks, to) if to.signed else _rounded_unsigned(blocks, to)
        data[part] = best[0].reshape(-1, columns)
        scale[part], zero[part] = best[1], best[2]
    quantized = Quantized(data[:, :length], scale, zero, 1, block)
    return quantized if axis == 1 else quantized.turned()


Rounded = tuple[NDArray[np.generic], Floats, NDArray[np.generic]]  # data, scale, zero point


def _rounded_signed(blocks: Floats, to: IntType) -> Rounded:
    widest = np.abs(blocks).max(axis=2)
    zero = np.zeros(widest.shape, to.dtype)
    best: Rounded | None = None
    error = np.full(widest.shape, np.inf)
    for share in SHARES:
        scale = half_scales(widest * np.float32(share / to.highest))
        data = np.clip(np.round(blocks / scale[..., None]), to.lowest, to.highest)
        best, error = _better(best, error, blocks, (data, scale, zero))
    assert best is not None
    return best[0].astype(to.dtype), best[1], zero


def _rounded_unsigned(blocks: Floats, to: IntType) -> Rounded:
    low = np.minimum(blocks.min(axis=2), 0.0)
    high = np.maximum(blocks.max(axis=2), 0.0)
    best: Rounded | None = None
    error = np.full(low.shape, np.inf)
    for share in SHARES:
        scale = half_scales((high - low) * np.float32(share / to.high))
        zero = np.clip(np.round(-low * np.float32(share) / scale), to.low, to.high)
        steps = np.round(blocks / scale[..., None]) + zero[..., None]
        best, error = _better(best, error, blocks, (np.clip(steps, to.low, to.high), scale, zero))
    assert best is not None
    return best[0].astype(to.dtype), best[1], best[2].astype(to.dtype)


def _better(
    best: Rounded | None, error: NDArray[np.float64], blocks: Floats, tried: Rounded
) -> tuple[Rounded, NDArray[np.float64]]:
    """Return the better of two roundings of every block, with its error."""
    data, scale, zero = tried
    gap = blocks - (data.astype(np.float32) - zero.astype(np.float32)[..., None]) * scale[..., None]
    squares = np.square(gap, dtype=np.float32).sum(axis=2, dtype=np.float64)
    if best is None:
        return tried, squares
    improved = squares < error
    chosen = (
        np.where(improved[..., None], data, best[0]),
        np.where(improved, scale, best[1]),
        np.where(improved, zero, best[2]),
    )
    return chosen, np.where(improved, squares, error)


def half_scales(scale: Floats) -> Floats:
    """Return scales as half precision has them, where it has them well; a dead block's is 1."""
    scale = np.where(scale > TINY, scale, 1.0).astype(np.float32)
    fits = (scale > HALF_RANGE[0]) & (scale < HALF_RANGE[1])
    return np.where(fits, np.where(fits, scale, 1.0).astype(np.float16), scale).astype(np.float32)

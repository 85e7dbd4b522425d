"""Four bits with a multiplier for every few inputs: int8 weights whose blocks are multiples.

A weight is scale · m · q: q has four bits, the multiplier m of each block of inputs is one of 1 to
8, and the scale is one a channel. So m · q lies within -64 … 56: an int8 weight as any other, which
no integer kernel saturates on, and which every kernel for int8 takes at full speed. In the file a
weight has four bits and a block of sixteen a half byte more; both are multiplied when a session
loads. Against four bits with a scale a channel, the error of rounding is about halved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.schemes.error_feedback import Doubles

LOW, HIGH = -8, 7  # of the four bits


LARGEST = 8  # multiplier: -8 · 8 is the most that two products without VNNI add up to in 16 bits
SHARES = np.linspace(1.0, 0.5, 12)  # of the scale at which no weight is clipped
# weights that are looked at at a time: 128 kB of doubles, which stay in a core's cache over the
# hundred passes of a search. Each row has its own grid, so the parts change no result.
PART = 16_384


@dataclass(frozen=True, slots=True)
class MultipleGrid:
    """The values that the weights of each block may take: scale · multiplier · (-8 … 7)."""

    scale: Doubles  # [rows]
    multiplier: Doubles  # [rows, blocks]
    size: int  # inputs of a block

    def some(self, rows: NDArray[np.int64]) -> MultipleGrid:
        return MultipleGrid(self.scale[rows], self.multiplier[rows], self.size)

    def with_scale(self, scale: Doubles) -> MultipleGrid:
        return MultipleGrid(scale, self.multiplier, self.size)

    def column(self, values: Doubles, index: int, data: Doubles) -> tuple[Doubles, Doubles]:
        del data  # weights of other columns say nothing about this one
        multiplier = self.multiplier[:, index // self.size]
        step = self.scale * multiplier
        rounded = np.clip(np.round(values / step), LOW, HIGH)
        return rounded * multiplier, rounded * step

    def nearest(self, rows: Doubles) -> Doubles:
        multiplier = np.repeat(self.multiplier, self.size, axis=1)[:, : rows.shape[1]]
        step = self.scale[:, None] * multiplier
        return np.clip(np.round(rows / step), LOW, HIGH) * multiplier

    def restored(self, data: Doubles) -> Doubles:
        values: Doubles = data * self.scale[:, None]
        return values


def search_grid(rows: NDArray[Any], importance: Doubles | None, *, size: int) -> MultipleGrid:
    """Return the scales and multipliers whose plain rounding error, weighted, is smallest."""
    count = max(1, PART // max(1, rows.shape[1]))
    grids = [
        _search_part(rows[first : first + count], importance, size=size)
        for first in range(0, max(1, len(rows)), count)
    ]
    return MultipleGrid(
        np.concatenate([grid.scale for grid in grids]),
        np.concatenate([grid.multiplier for grid in grids]),
        size,
    )


def _search_part(rows: NDArray[Any], importance: Doubles | None, *, size: int) -> MultipleGrid:
    values = rows.astype(np.float64)
    full = np.maximum(-values.min(axis=1) / -LOW, values.max(axis=1) / HIGH) / LARGEST
    full = np.where(full > np.finfo(np.float32).tiny, full, 1.0)  # of a dead row: 1
    best: MultipleGrid | None = None
    best_error = np.full(len(values), np.inf)
    for share in SHARES:
        scale = (full * share).astype(np.float32).astype(np.float64)
        grid, error = _with_scale(values, scale, importance, size=size)
        better = error < best_error
        if best is not None:
            grid = MultipleGrid(
                np.where(better, grid.scale, best.scale),
                np.where(better[:, None], grid.multiplier, best.multiplier),
                size,
            )
        best, best_error = grid, np.minimum(error, best_error)
    assert best is not None
    return best


def round_with_scale(rows: NDArray[Any], scale: NDArray[Any], *, size: int) -> Doubles:
    """Return the nearest multiples under scales that are given."""
    values = rows.astype(np.float64)
    grid, _ = _with_scale(values, scale.astype(np.float64), None, size=size)
    return grid.nearest(values)


def _with_scale(
    values: Doubles, scale: Doubles, importance: Doubles | None, *, size: int
) -> tuple[MultipleGrid, Doubles]:
    """Return the best multiplier of every block, and the weighted error of every row."""
    columns = values.shape[1]
    weights = np.ones(columns) if importance is None else importance / max(importance.mean(), 1e-30)
    padding = -columns % size
    weighted = np.pad(weights + 1e-3, (0, padding)).reshape(1, -1, size)
    blocks = np.pad(values, ((0, 0), (0, padding))).reshape(len(values), -1, size)
    least = np.full(blocks.shape[:2], np.inf)
    chosen = np.ones(blocks.shape[:2])
    gap = np.empty_like(blocks)
    for multiplier in range(1, LARGEST + 1):
        step = (scale * multiplier)[:, None, None]
        np.rint(np.divide(blocks, step, out=gap), out=gap)
        np.multiply(np.clip(gap, LOW, HIGH, out=gap), step, out=gap)
        np.subtract(blocks, gap, out=gap)
        np.multiply(gap, gap, out=gap)
        error = np.multiply(gap, weighted, out=gap).sum(axis=2)
        chosen = np.where(error < least, multiplier, chosen)
        least = np.minimum(error, least)
    return MultipleGrid(scale, chosen, size), least.sum(axis=1)


def divide(rows: NDArray[Any], *, size: int) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Return multiples as four-bit numbers [rows, blocks, size] and multipliers [rows, blocks, 1].

    Rows that are no multiple of a block are filled with zeros.
    """
    padding = -rows.shape[1] % size
    blocks = np.pad(rows, ((0, 0), (0, padding))).astype(np.int16).reshape(len(rows), -1, size)
    multiplier = np.zeros(blocks.shape[:2], np.int16)
    for candidate in range(LARGEST, 0, -1):
        quotient = blocks // candidate
        fits = (quotient * candidate == blocks) & (quotient >= LOW) & (quotient <= HIGH)
        multiplier = np.where(fits.all(axis=2), candidate, multiplier)
    if not multiplier.all():
        raise ValueError("a block of weights is no multiple of four-bit numbers")
    quotient = blocks // multiplier[..., None]
    return quotient.astype(np.int8), multiplier[..., None].astype(np.uint8)

"""Few bits with a scale for every block of inputs: the grid of `DequantizeLinear` with blocks.

A block is `size` neighbouring inputs of one output channel. Its scale (and zero point) is chosen
by the error that plain rounding would leave, weighted by diag(H) where a Gram matrix is known; so
a block is clipped where that costs less than a coarser step. Then columns are rounded one by one
with their errors passed on (error_feedback.py), in the order of their importance: the grid is
fixed before, so any order may be taken.

    blocks = round_blocks(weight.T, grams, BlockForm(bits=4, size=32))   # MatMul: K x N
    blocks = round_blocks(table, None, BlockForm(bits=4, size=32))       # embedding: rows x width
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import PlanError
from seqto.schemes.error_feedback import Doubles, best_damping, factor, round_columns
from seqto.schemes.integers import Floats

DAMPINGS = (0.01, 0.1, 1.0)  # of the mean diagonal
SHARES = np.linspace(1.0, 0.6, 17)  # of a block's full range: candidates of the clipping search
ROWS_AT_A_TIME = 4096  # of a long matrix: what a search over scales holds at a time


@dataclass(frozen=True, slots=True)
class BlockForm:
    """How a block is kept: bits of a weight, inputs of a block, with zero points or around zero."""

    bits: int = 4
    size: int = 32
    zero_points: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise PlanError(f"blocks of {self.bits} bits: use 2 to 8")
        if self.size < 16 or self.size & (self.size - 1):
            raise PlanError(f"blocks of {self.size} inputs: use a power of two from 16 on")

    @property
    def name(self) -> str:
        """The name in indexes and codes: s4b32 around zero, u4b32 with zero points."""
        return f"{'u' if self.zero_points else 's'}{self.bits}b{self.size}"

    @staticmethod
    def parse(name: str) -> BlockForm | None:
        """Return the form that a name stands for, or None where it names none."""
        match = re.fullmatch(r"([su])([2-8])b(\d+)", name)
        return BlockForm(int(match[2]), int(match[3]), match[1] == "u") if match else None

    @property
    def low(self) -> int:
        return 0 if self.zero_points else -(1 << (self.bits - 1))

    @property
    def high(self) -> int:
        return self.low + (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class Blocks:
    """Integers [outputs, inputs] with scales and zero points [outputs, blocks]."""

    form: BlockForm
    data: NDArray[np.int8]
    scale: Floats
    zero_point: NDArray[np.int8]  # zeros where the form has none

    def restore(self) -> Floats:
        """Return the values that the integers stand for."""
        columns, size = self.data.shape[1], self.form.size
        zero = np.repeat(self.zero_point, size, axis=1)[:, :columns].astype(np.float32)
        scale = np.repeat(self.scale, size, axis=1)[:, :columns]
        restored: Floats = (self.data.astype(np.float32) - zero) * scale
        return restored


@dataclass(frozen=True, slots=True)
class BlockGrid:
    """The values that the weights of each block may take."""

    form: BlockForm
    scale: Doubles  # [rows, blocks]
    zero: Doubles

    def some(self, rows: NDArray[np.int64]) -> BlockGrid:
        return BlockGrid(self.form, self.scale[rows], self.zero[rows])

    def column(self, values: Doubles, index: int, data: Doubles) -> tuple[Doubles, Doubles]:
        del data  # weights of other columns say nothing about this one
        block = index // self.form.size
        scale, zero = self.scale[:, block], self.zero[:, block]
        rounded = np.clip(np.round(values / scale) + zero, self.form.low, self.form.high)
        return rounded, (rounded - zero) * scale

    def nearest(self, rows: Doubles) -> Doubles:
        scale, zero = self._spread(self.scale, rows), self._spread(self.zero, rows)
        return np.clip(np.round(rows / scale) + zero, self.form.low, self.form.high)

    def restored(self, data: Doubles) -> Doubles:
        values: Doubles = (data - self._spread(self.zero, data)) * self._spread(self.scale, data)
        return values

    def _spread(self, values: Doubles, rows: Doubles) -> Doubles:
        return np.repeat(values, self.form.size, axis=1)[:, : rows.shape[1]]


def round_blocks(
    rows: NDArray[Any],
    grams: Doubles | None,
    form: BlockForm,
    *,
    dampings: tuple[float, ...] = DAMPINGS,
) -> Blocks:
    """Return the blocks of a matrix [outputs, inputs] with small output error.

    `grams` are the Gram matrices of two halves of the samples [2, inputs, inputs]: one half rounds,
    the other judges how much damping helps, and whether passing errors on helps at all. None: to
    the nearest, every input as important as any other.
    """
    importance = None if grams is None else np.diag(grams.sum(axis=0))
    grid = block_grid(rows, form, importance=importance)
    if grams is None:
        return _blocks(grid, _nearest(rows, grid))
    damping = best_damping(rows, grid, grams, dampings)
    if damping is None:
        return _blocks(grid, _nearest(rows, grid))
    passed = factor(grams.sum(axis=0), damping)
    data = np.empty(rows.shape, np.float32)
    for chosen in _in_turn(len(rows)):
        data[chosen] = round_columns(rows[chosen].astype(np.float64), passed, grid.some(chosen))
    return _blocks(grid, data)


def block_grid(
    rows: NDArray[Any], form: BlockForm, *, importance: Doubles | None = None
) -> BlockGrid:
    """Return the scales and zero points whose plain rounding error, weighted, is smallest.

    Scales are numbers of half precision where they fit, so that storing them so loses nothing.
    """
    columns = rows.shape[1]
    weights = np.ones(columns) if importance is None else importance.astype(np.float64)
    weights = weights / max(float(weights.mean()), 1e-30) + 1e-3
    padding = -columns % form.size
    padded = np.pad(weights, (0, padding)).reshape(1, -1, form.size)
    parts = []
    for chosen in _in_turn(len(rows)):
        some = rows[chosen].astype(np.float64)
        blocks = np.pad(some, ((0, 0), (0, padding))).reshape(len(some), -1, form.size)
        parts.append(_searched(blocks, padded, form))
    scale, zero = (np.concatenate(x) for x in zip(*parts, strict=True))
    return BlockGrid(form, scale, zero)


def _searched(blocks: Doubles, weights: Doubles, form: BlockForm) -> tuple[Doubles, Doubles]:
    """Return the best (scale, zero point) of every block among shares of its full range."""
    low, high = blocks.min(axis=2), blocks.max(axis=2)
    best_error = np.full(low.shape, np.inf)
    best_scale, best_zero = np.ones(low.shape), np.zeros(low.shape)
    for scale, zero in _candidates(low, high, form):
        data = np.clip(np.round(blocks / scale[..., None]) + zero[..., None], form.low, form.high)
        gap = blocks - (data - zero[..., None]) * scale[..., None]
        error = (gap * gap * weights).sum(axis=2)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best_scale = np.where(better, scale, best_scale)
        best_zero = np.where(better, zero, best_zero)
    return best_scale, best_zero


def _candidates(low: Doubles, high: Doubles, form: BlockForm) -> list[tuple[Doubles, Doubles]]:
    candidates = []
    for share in SHARES:
        if form.zero_points:
            bottom, top = np.minimum(low, 0.0) * share, np.maximum(high, 0.0) * share
            scale = _half((top - bottom) / (form.high - form.low))
            candidates.append((scale, np.clip(np.round(-bottom / scale), form.low, form.high)))
            continue
        # one integer more lies below zero: of use where the largest weight is negative
        wide = np.maximum(np.maximum(-low, high) / form.high, 0.0)
        tight = np.maximum(-low / -form.low, high / form.high)
        for full in (wide, tight):
            candidates.append((_half(full * share), np.zeros(low.shape)))
    return candidates


def _half(scale: Doubles) -> Doubles:
    """Return scales as half precision holds them.

    A dead block gets 1; tiny ones stay as they are.
    """
    with np.errstate(over="ignore"):
        half = scale.astype(np.float16).astype(np.float64)
    fits = np.isfinite(half) & (half >= 2.0**-14)  # the smallest normal number
    single = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32).astype(np.float64)
    return np.where(scale > 0, np.where(fits, half, single), 1.0)


def _in_turn(count: int) -> Iterator[NDArray[np.int64]]:
    """Yield rows of a long matrix, some at a time: an embedding table as doubles would not fit."""
    for start in range(0, count, ROWS_AT_A_TIME):
        yield np.arange(start, min(start + ROWS_AT_A_TIME, count))


def _nearest(rows: NDArray[Any], grid: BlockGrid) -> Floats:
    data = np.empty(rows.shape, np.float32)
    for chosen in _in_turn(len(rows)):
        data[chosen] = grid.some(chosen).nearest(rows[chosen].astype(np.float64))
    return data


def _blocks(grid: BlockGrid, data: NDArray[Any]) -> Blocks:
    # u8 blocks go up to 255, which int8 cannot hold
    integer: Any = np.int8 if grid.form.high <= 127 else np.uint8
    return Blocks(
        grid.form,
        np.ascontiguousarray(data.astype(integer)),
        grid.scale.astype(np.float32),
        grid.zero.astype(integer),
    )

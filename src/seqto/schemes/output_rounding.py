"""Rounding that minimises a layer's *output* error, not its weights' error.

For a row w of the weight matrix and the Gram matrix H = X Xᵀ of what flows into the layer, the
output error of rounding w to q is (w-q) H (w-q)ᵀ. Weights are rounded one column after the other
and each column's error is passed on to those not yet rounded, by the inverse of H (Frantar et
al., "GPTQ", 2022; the idea is Hassibi's optimal brain surgeon). The scale of each row is chosen
first, by the error that plain rounding would leave under diag(H).

H comes from few samples (fifty pictures give fifty rows to a classifier with a thousand inputs),
so it is damped, and how much is decided by what helps on samples that H has not seen; where
nothing helps there, weights are rounded to the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqto.records import Layer
from seqto.schemes.integers import (
    PAIR_LIMIT,
    TINY,
    Floats,
    Quantized,
    limit_pairs,
    neighbours,
    scale_for_pairs,
)
from seqto.schemes.types import IntType

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


DAMPINGS = (0.01, 0.1, 1.0, 10.0)  # of the mean diagonal


TRIAL_ROWS = 48  # output channels on which dampings are compared


SHRINK_STEPS = 20  # candidate scales between 1 and 0.5 of the full range


BLOCK = 128  # columns whose errors are passed on together: the same result, better locality


class Rounder:
    """One layer's weights and Gram matrices (of two halves of the samples); rounds to any type."""

    def __init__(
        self, layer: Layer, values: Floats, grams: NDArray[np.float64], *, axis: int
    ) -> None:
        self._moved = np.moveaxis(values, axis, 0)
        self._axis = axis
        self._rows = self._moved.reshape(values.shape[axis], -1).astype(np.float64)
        if grams.shape[1] != self._rows.shape[1]:
            raise ValueError(f"layer {layer.name!r}: Gram {grams.shape}, rows {self._rows.shape}")
        self._pairs = neighbours(values.shape, axis)
        # the two halves, and both together
        self._grams = (grams[0], grams[1], grams.sum(axis=0))

    def round(self, *types: IntType) -> dict[IntType, Quantized]:
        """Per-channel symmetric integers with small output error; types share all factors."""
        importance = np.diag(self._grams[2])
        grids = {}
        for to in types:
            low, high = to.symmetric_low, to.symmetric_high
            paired = to.pair_limit is not None
            pairs = self._pairs if paired else None
            scale = best_scales(self._rows, importance, low=low, high=high, pairs=pairs)
            grids[to] = Grid.uniform(scale, low, high, paired=paired)
        by_damping: dict[float | None, list[IntType]] = {}
        for to, damping in self._best_dampings(grids).items():
            by_damping.setdefault(damping, []).append(to)
        rounded: dict[IntType, Quantized] = {}
        for damping, alike in by_damping.items():
            whole = Grid.stacked([grids[t] for t in alike])
            data = self._rounded(np.tile(self._rows, (len(alike), 1)), whole, damping, half=2)
            for to, integers in zip(alike, np.split(data, len(alike)), strict=True):
                rounded[to] = self._quantized(to, integers, grids[to].scale)
        return {to: rounded[to] for to in types}

    def _quantized(
        self, to: IntType, data: NDArray[np.float64], scale: NDArray[np.float64]
    ) -> Quantized:
        integers = np.moveaxis(data.astype(to.dtype).reshape(self._moved.shape), 0, self._axis)
        zero = np.zeros(len(scale), dtype=to.dtype)
        return Quantized(np.ascontiguousarray(integers), scale.astype(np.float32), zero, self._axis)

    def _rounded(
        self, rows: NDArray[np.float64], grid: Grid, damping: float | None, *, half: int
    ) -> NDArray[np.float64]:
        if damping is None:
            return grid.nearest(rows, self._pairs)
        return pass_errors_on(rows, factor(self._grams[half], damping), grid, self._pairs)

    def _best_dampings(self, grids: Mapping[IntType, Grid]) -> dict[IntType, float | None]:
        """Round some rows by one half of the samples, judge by the other; None: nearest wins."""
        count = len(self._rows)
        chosen = np.linspace(0, count - 1, min(TRIAL_ROWS, count)).astype(int)
        some = np.tile(self._rows[chosen], (len(grids), 1))
        grid = Grid.stacked([g.some(chosen) for g in grids.values()])
        error: dict[IntType, dict[float | None, float]] = {to: {} for to in grids}
        for damping in (None, *DAMPINGS):
            data = self._rounded(some, grid, damping, half=0)
            gaps = np.split(some - data * grid.scale[:, None], len(grids))
            for to, gap in zip(grids, gaps, strict=True):
                error[to][damping] = self._output_error(gap)
        return {to: min(by, key=by.__getitem__) for to, by in error.items()}

    def _output_error(self, gap: NDArray[np.float64]) -> float:
        return float(((gap @ self._grams[1]) * gap).sum())


@dataclass(frozen=True, slots=True)
class Grid:
    """The integers that each row may take, and their scale."""

    scale: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    paired: NDArray[np.bool_]  # rows whose neighbours must not saturate a 16-bit sum

    @staticmethod
    def uniform(scale: NDArray[np.float64], low: int, high: int, *, paired: bool) -> Grid:
        full = np.full(len(scale), 1.0)
        return Grid(scale, low * full, high * full, np.full(len(scale), paired))

    @staticmethod
    def stacked(grids: Sequence[Grid]) -> Grid:
        fields = zip(*((g.scale, g.low, g.high, g.paired) for g in grids), strict=True)
        return Grid(*(np.concatenate(f) for f in fields))

    def some(self, rows: NDArray[np.int64]) -> Grid:
        return Grid(self.scale[rows], self.low[rows], self.high[rows], self.paired[rows])

    def nearest(self, rows: NDArray[np.float64], pairs: Pairs) -> NDArray[np.float64]:
        scaled = np.round(rows / self.scale[:, None])
        data = np.clip(scaled, self.low[:, None], self.high[:, None])
        data[self.paired] = limit_pairs(data[self.paired], *pairs)
        return data

    def beside(
        self, neighbour: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(low, high) of the integers whose neighbour has been rounded already."""
        low = np.where(self.paired & (neighbour < 0), -PAIR_LIMIT - neighbour, self.low)
        high = np.where(self.paired & (neighbour > 0), PAIR_LIMIT - neighbour, self.high)
        return np.maximum(low, self.low), np.minimum(high, self.high)


@dataclass(frozen=True, slots=True)
class Factor:
    """The order in which columns are rounded, and U with inv(H) = Uᵀ U in that order."""

    order: NDArray[np.int64]
    upper: NDArray[np.float64]


def factor(gram: NDArray[np.float64], damping: float) -> Factor:
    """Most important columns first, so that later ones can make up for them.

    With the columns of H in reverse, L Lᵀ = H gives U = inv(L) in reverse: no inverse of H is
    formed, which is ten times faster.
    """
    from scipy.linalg.lapack import dpotrf, dtrtri

    diagonal = np.diag(gram)
    dead = diagonal <= 0
    matrix = gram + np.diag(np.where(dead, 1.0, 0.0))
    matrix += np.eye(len(gram)) * damping * float(np.mean(np.diag(matrix)))
    order = np.argsort(-np.diag(matrix), kind="stable")
    backwards = order[::-1]
    lower, failed = dpotrf(matrix[np.ix_(backwards, backwards)], lower=1, clean=1)
    if failed:
        raise np.linalg.LinAlgError("the damped Gram matrix is not positive definite")
    inverse, _ = dtrtri(lower, lower=1)
    return Factor(order, np.ascontiguousarray(inverse[::-1, ::-1]))


def best_scales(
    rows: NDArray[np.float64],
    importance: NDArray[np.float64],
    *,
    low: int,
    high: int,
    pairs: Pairs | None = None,
) -> NDArray[np.float64]:
    """One scale a row: the one whose plain rounding error, weighted, is smallest."""
    widest = np.abs(rows).max(axis=1)
    full = np.where(widest > TINY, widest, high) / high  # a dead row needs no scale: 1
    if pairs is not None:
        full = np.maximum(full, scale_for_pairs(rows, *pairs))
    weights = importance / max(float(importance.mean()), 1e-30) + 1e-3
    best = full.copy()
    best_error = np.full(full.shape, np.inf)
    for share in np.linspace(1.0, 0.5, SHRINK_STEPS):
        scale = (full * share).astype(np.float32).astype(np.float64)
        rounded = np.clip(np.round(rows / scale[:, None]), low, high)
        if pairs is not None:
            rounded = limit_pairs(rounded, *pairs)
        error = ((rows - rounded * scale[:, None]) ** 2 * weights).sum(axis=1)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best = np.where(better, scale, best)
    chosen: NDArray[np.float64] = best
    return chosen


def pass_errors_on(
    rows: NDArray[np.float64], passed: Factor, grid: Grid, pairs: Pairs
) -> NDArray[np.float64]:
    """Round column by column; later columns make up for the errors of earlier ones."""
    upper, size = passed.upper, rows.shape[1]
    earlier = _earlier_neighbours(passed.order, pairs) if grid.paired.any() else {}
    # one column after the other is read and written: they lie together
    work = np.asfortranarray(rows[:, passed.order])
    data = np.empty_like(work)
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        errors = np.empty((rows.shape[0], stop - start), order="F")
        for column in range(start, stop):
            low, high = grid.low, grid.high
            if column in earlier:
                low, high = grid.beside(data[:, earlier[column]])
            rounded = np.clip(np.round(work[:, column] / grid.scale), low, high)
            data[:, column] = rounded
            error = (work[:, column] - rounded * grid.scale) / upper[column, column]
            errors[:, column - start] = error
            work[:, column + 1 : stop] -= np.outer(upper[column, column + 1 : stop], error).T
        work[:, stop:] -= errors @ upper[start:stop, stop:]
    result = np.empty(rows.shape)
    result[:, passed.order] = data
    return result


def _earlier_neighbours(order: NDArray[np.int64], pairs: Pairs) -> dict[int, int]:
    """Position in the order of rounding → that of its neighbour, where that comes first."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    both = np.sort(np.stack([place[pairs[0]], place[pairs[1]]], axis=1), axis=1)
    return {int(later): int(first) for first, later in both}

"""Rounding that minimises a layer's *output* error, not its weights' error; a scale a channel.

Weights are rounded column by column with their errors passed on (error_feedback.py). The scale of
each row is chosen first, by the error that plain rounding would leave under diag(H).

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
from seqto.schemes.error_feedback import (
    TRIAL_ROWS,
    Doubles,
    Factor,
    JudgedGrid,
    factor,
    output_error,
    round_columns,
)
from seqto.schemes.integers import (
    PAIR_LIMIT,
    TINY,
    Floats,
    Quantized,
    limit_pairs,
    neighbours,
    scale_for_pairs,
)
from seqto.schemes.multiples import MultipleGrid, search_grid
from seqto.schemes.types import IntType

Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]


DAMPINGS = (0.01, 0.1, 1.0, 10.0)  # of the mean diagonal
FIT_DAMPING = 0.01  # of the mean diagonal, where a scale is fitted
SHRINK_STEPS = 20  # candidate scales between 1 and 0.5 of the full range


class Rounder:
    """One layer's weights and Gram matrices (of two halves of the samples); rounds to any type."""

    def __init__(self, layer: Layer, values: Floats, grams: Doubles, *, axis: int) -> None:
        self._moved = np.moveaxis(values, axis, 0)
        self._axis = axis
        self._rows = self._moved.reshape(values.shape[axis], -1).astype(np.float64)
        if grams.shape[1] != self._rows.shape[1]:
            raise ValueError(f"layer {layer.name!r}: Gram {grams.shape}, rows {self._rows.shape}")
        self._pairs = neighbours(values.shape, axis)
        # the two halves, and both together
        self._grams = (grams[0], grams[1], grams.sum(axis=0))

    def round(self, *types: IntType) -> dict[IntType, Quantized]:
        """Return per-channel symmetric integers with small output error.

        Types share all factors.
        """
        channels = {to: self._channel_grid(to) for to in types if not to.multiples}
        multiples = {
            to: search_grid(self._rows, np.diag(self._grams[2]), size=to.multiples)
            for to in types
            if to.multiples
        }
        by_damping: dict[float | None, list[IntType]] = {}
        for to, damping in self._best_dampings(channels, multiples).items():
            by_damping.setdefault(damping, []).append(to)
        rounded: dict[IntType, Quantized] = {}
        for damping, alike in by_damping.items():
            passed = None if damping is None else factor(self._grams[2], damping)
            rounded |= self._channels({to: channels[to] for to in alike if to in channels}, passed)
            for to in alike:
                if to in multiples:
                    rounded[to] = self._multiples(to, multiples[to], passed)
        return {to: rounded[to] for to in types}

    def _multiples(self, to: IntType, grid: MultipleGrid, passed: Factor | None) -> Quantized:
        """Return four bits with multipliers.

        The scale of each row is fitted to what was rounded.
        """
        total = self._grams[2]
        data = _passed_on(self._rows, grid, passed)
        refitted = grid.with_scale(self._fitted_scale(data, grid.scale))
        again = _passed_on(self._rows, refitted, passed)
        rows = [(data, grid), (data, refitted), (again, refitted)]
        errors = [output_error(self._rows - g.restored(d), total) for d, g in rows]
        data, grid = rows[int(np.argmin(errors))]
        return self._quantized(to, data, grid.scale)

    def _fitted_scale(self, data: Doubles, scale: Doubles) -> Doubles:
        """Return the scale of each row that leaves its integers the least output error."""
        total = self._grams[2] + np.eye(len(self._grams[2])) * FIT_DAMPING * np.mean(
            np.diag(self._grams[2])
        )
        spread = data @ total
        power = (spread * data).sum(axis=1)
        least_squares = (spread * self._rows).sum(axis=1) / np.where(power > 0, power, 1.0)
        held = np.clip(np.where(power > 0, least_squares, scale), 0.8 * scale, 1.25 * scale)
        fitted: Doubles = held.astype(np.float32).astype(np.float64)
        return fitted

    def _channel_grid(self, to: IntType) -> ChannelGrid:
        low, high = to.symmetric_low, to.symmetric_high
        paired = to.pair_limit is not None
        pairs = self._pairs if paired else None
        importance = np.diag(self._grams[2])
        scale = best_scales(self._rows, importance, low=low, high=high, pairs=pairs)
        return ChannelGrid.uniform(scale, low, high, paired=paired, pairs=self._pairs)

    def _channels(
        self, grids: Mapping[IntType, ChannelGrid], passed: Factor | None
    ) -> dict[IntType, Quantized]:
        """Round to several types at the same time."""
        if not grids:
            return {}
        rows = np.tile(self._rows, (len(grids), 1))
        data = _passed_on(rows, ChannelGrid.stacked(list(grids.values())), passed)
        return {
            to: self._quantized(to, integers, grids[to].scale)
            for to, integers in zip(grids, np.split(data, len(grids)), strict=True)
        }

    def _quantized(self, to: IntType, data: Doubles, scale: Doubles) -> Quantized:
        integers = np.moveaxis(data.astype(to.dtype).reshape(self._moved.shape), 0, self._axis)
        zero = np.zeros(len(scale), dtype=to.dtype)
        return Quantized(np.ascontiguousarray(integers), scale.astype(np.float32), zero, self._axis)

    def _best_dampings(
        self, channels: Mapping[IntType, ChannelGrid], multiples: Mapping[IntType, MultipleGrid]
    ) -> dict[IntType, float | None]:
        """Round some rows by one half of the samples, judge by the other; None: nearest wins."""
        count = len(self._rows)
        chosen = np.linspace(0, count - 1, min(TRIAL_ROWS, count)).astype(np.int64)
        some = self._rows[chosen]
        # the factor of a damping is made once, and serves all grids
        small: list[tuple[list[IntType], Doubles, JudgedGrid]] = [
            ([to], some, grid.some(chosen)) for to, grid in multiples.items()
        ]
        if channels:
            stacked = ChannelGrid.stacked([grid.some(chosen) for grid in channels.values()])
            small.append((list(channels), np.tile(some, (len(channels), 1)), stacked))
        error: dict[IntType, dict[float | None, float]] = {to: {} for to in (*multiples, *channels)}
        for damping in (None, *DAMPINGS):
            passed = None if damping is None else factor(self._grams[0], damping)
            for types, rows, grid in small:
                gap = rows - grid.restored(_passed_on(rows, grid, passed))
                for to, own in zip(types, np.split(gap, len(types)), strict=True):
                    error[to][damping] = output_error(own, self._grams[1])
        return {to: min(by, key=by.__getitem__) for to, by in error.items()}


def _passed_on(rows: Doubles, grid: JudgedGrid, passed: Factor | None) -> Doubles:
    """Return rows rounded with the errors passed on; None: to the nearest."""
    return grid.nearest(rows) if passed is None else round_columns(rows, passed, grid)


@dataclass(frozen=True, slots=True)
class ChannelGrid:
    """The integers that each row may take, and their scale."""

    scale: Doubles
    low: Doubles
    high: Doubles
    paired: NDArray[np.bool_]  # rows whose neighbours must not saturate a 16-bit sum
    pairs: Pairs

    @staticmethod
    def uniform(scale: Doubles, low: int, high: int, *, paired: bool, pairs: Pairs) -> ChannelGrid:
        full = np.full(len(scale), 1.0)
        return ChannelGrid(scale, low * full, high * full, np.full(len(scale), paired), pairs)

    @staticmethod
    def stacked(grids: Sequence[ChannelGrid]) -> ChannelGrid:
        fields = zip(*((g.scale, g.low, g.high, g.paired) for g in grids), strict=True)
        scale, low, high, paired = (np.concatenate(f) for f in fields)
        return ChannelGrid(scale, low, high, paired, grids[0].pairs)

    def some(self, rows: NDArray[np.int64]) -> ChannelGrid:
        fields = (self.scale[rows], self.low[rows], self.high[rows], self.paired[rows])
        return ChannelGrid(*fields, self.pairs)

    def nearest(self, rows: Doubles) -> Doubles:
        scaled = np.round(rows / self.scale[:, None])
        data = np.clip(scaled, self.low[:, None], self.high[:, None])
        data[self.paired] = limit_pairs(data[self.paired], *self.pairs)
        return data

    def restored(self, data: Doubles) -> Doubles:
        values: Doubles = data * self.scale[:, None]
        return values

    def column(self, values: Doubles, index: int, data: Doubles) -> tuple[Doubles, Doubles]:
        low, high = self.low, self.high
        partner = self._partner(index)
        if partner is not None:
            low, high = self._beside(data[:, partner])
        rounded = np.clip(np.round(values / self.scale), low, high)
        return rounded, rounded * self.scale

    def _partner(self, index: int) -> int | None:
        """Return the column that a kernel adds this one's products to."""
        if not self.paired.any():
            return None
        for one, two in (self.pairs, self.pairs[::-1]):
            positions = np.flatnonzero(one == index)
            if len(positions):
                return int(two[positions[0]])
        return None

    def _beside(self, neighbour: Doubles) -> tuple[Doubles, Doubles]:
        """Return (low, high) beside a neighbour.

        Comparisons with NaN (not rounded yet) are False.
        """
        low = np.where(self.paired & (neighbour < 0), -PAIR_LIMIT - neighbour, self.low)
        high = np.where(self.paired & (neighbour > 0), PAIR_LIMIT - neighbour, self.high)
        return np.maximum(low, self.low), np.minimum(high, self.high)


def best_scales(
    rows: Doubles,
    importance: Doubles,
    *,
    low: int,
    high: int,
    pairs: Pairs | None = None,
) -> Doubles:
    """Return one scale a row: the one whose plain rounding error, weighted, is smallest."""
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
    chosen: Doubles = best
    return chosen

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

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqto.contracts import Layer
from seqto.schemes.integers import RANGES, TINY, Floats, Quantized

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
        # the two halves, and both together: factors cost more than rounding, types share them
        self._grams = (grams[0], grams[1], grams.sum(axis=0))
        self._factors: dict[tuple[int, float], Factor] = {}

    def round(self, kind: str) -> Quantized:
        """Per-channel symmetric integers with small output error."""
        dtype, _, _, low, high = RANGES[kind]
        rows = self._rows
        scale = best_scales(rows, np.diag(self._grams[2]), low=low, high=high)
        damping = self._best_damping(scale, low=low, high=high)
        if damping is None:
            data = nearest(rows, scale, low=low, high=high)
        else:
            data = pass_errors_on(rows, self._factor(2, damping), scale, low=low, high=high)
        integers = np.moveaxis(data.astype(dtype).reshape(self._moved.shape), 0, self._axis)
        zero = np.zeros(rows.shape[0], dtype=dtype)
        return Quantized(np.ascontiguousarray(integers), scale.astype(np.float32), zero, self._axis)

    def _factor(self, half: int, damping: float) -> Factor:
        key = (half, damping)
        if key not in self._factors:
            self._factors[key] = factor(self._grams[half], damping)
        return self._factors[key]

    def _best_damping(self, scale: NDArray[np.float64], *, low: int, high: int) -> float | None:
        """Round some rows by one half of the samples, judge by the other; None: nearest wins."""
        count = len(self._rows)
        chosen = np.linspace(0, count - 1, min(TRIAL_ROWS, count)).astype(int)
        some, their_scale = self._rows[chosen], scale[chosen]
        plain = nearest(some, their_scale, low=low, high=high)
        offers: list[tuple[float | None, NDArray[np.float64]]] = [(None, plain)]
        for damping in DAMPINGS:
            passed = self._factor(0, damping)
            data = pass_errors_on(some, passed, their_scale, low=low, high=high)
            offers.append((damping, data))
        error = {d: self._output_error(some - x * their_scale[:, None]) for d, x in offers}
        return min(error, key=lambda d: error[d])

    def _output_error(self, gap: NDArray[np.float64]) -> float:
        return float(np.einsum("ri,ij,rj->", gap, self._grams[1], gap, optimize=True))


@dataclass(frozen=True, slots=True)
class Factor:
    """The order in which columns are rounded, and U with inv(H) = Uᵀ U in that order."""

    order: NDArray[np.int64]
    upper: NDArray[np.float64]


def factor(gram: NDArray[np.float64], damping: float) -> Factor:
    """Most important columns first, so that later ones can make up for them."""
    dead = np.diag(gram) <= 0
    matrix = gram + np.diag(np.where(dead, 1.0, 0.0))
    matrix += np.eye(len(gram)) * damping * float(np.mean(np.diag(matrix)))
    order = np.argsort(-np.diag(matrix), kind="stable")
    matrix = matrix[np.ix_(order, order)]
    return Factor(order, np.linalg.cholesky(np.linalg.inv(matrix)).T)


def nearest(
    rows: NDArray[np.float64], scale: NDArray[np.float64], *, low: int, high: int
) -> NDArray[np.float64]:
    rounded: NDArray[np.float64] = np.clip(np.round(rows / scale[:, None]), low, high)
    return rounded


def best_scales(
    rows: NDArray[np.float64], importance: NDArray[np.float64], *, low: int, high: int
) -> NDArray[np.float64]:
    """One scale a row: the one whose plain rounding error, weighted, is smallest."""
    widest = np.abs(rows).max(axis=1)
    full = np.where(widest > TINY, widest, high) / high  # a dead row needs no scale: 1
    weights = importance / max(float(importance.mean()), 1e-30) + 1e-3
    best = full.copy()
    best_error = np.full(full.shape, np.inf)
    for share in np.linspace(1.0, 0.5, SHRINK_STEPS):
        scale = (full * share).astype(np.float32).astype(np.float64)
        rounded = nearest(rows, scale, low=low, high=high) * scale[:, None]
        error = ((rows - rounded) ** 2 * weights).sum(axis=1)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best = np.where(better, scale, best)
    chosen: NDArray[np.float64] = best
    return chosen


def pass_errors_on(
    rows: NDArray[np.float64],
    passed: Factor,
    scale: NDArray[np.float64],
    *,
    low: int,
    high: int,
) -> NDArray[np.float64]:
    """Round column by column; later columns make up for the errors of earlier ones."""
    upper, size = passed.upper, rows.shape[1]
    work = rows[:, passed.order]
    data = np.zeros_like(work)
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        errors = np.zeros((rows.shape[0], stop - start))
        for column in range(start, stop):
            rounded = np.clip(np.round(work[:, column] / scale), low, high)
            data[:, column] = rounded
            error = (work[:, column] - rounded * scale) / upper[column, column]
            work[:, column:stop] -= np.outer(error, upper[column, column:stop])
            errors[:, column - start] = error
        work[:, stop:] -= errors @ upper[start:stop, stop:]
    result = np.empty_like(data)
    result[:, passed.order] = data
    return result

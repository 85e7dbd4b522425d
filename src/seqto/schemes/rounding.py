"""Rounding that minimises a layer's *output* error, not its weights' error.

For a row w of the weight matrix and the Gram matrix H = X Xᵀ of what flows into the layer, the
output error of rounding w to q is (w-q) H (w-q)ᵀ. Weights are rounded one column after the other
and each column's error is passed on to those not yet rounded, by the inverse of H (Frantar et
al., "GPTQ", 2022; the idea is Hassibi's optimal brain surgeon). The scale of each row is chosen
first, by the error that plain rounding would leave under diag(H).

H comes from few samples (fifty pictures give fifty rows to a classifier with a thousand inputs),
so it is damped, and how much is decided by what helps on samples that H has not seen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seqto.contracts import Layer
from seqto.schemes.integers import RANGES, Floats, Quantized

DAMPINGS = (0.01, 0.1, 1.0, 10.0)  # of the mean diagonal
TRIAL_ROWS = 48  # output channels on which dampings are compared
SHRINK_STEPS = 20  # candidate scales between 1 and 0.5 of the full range
BLOCK = 128  # columns whose errors are passed on together: the same result, better locality


def round_for_output(
    layer: Layer, values: Floats, grams: NDArray[np.float64], kind: str, *, axis: int
) -> Quantized:
    """Per-channel symmetric integers with small output error; `grams` are of two halves."""
    rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1).astype(np.float64)
    gram = grams.sum(axis=0)
    if gram.shape[0] != rows.shape[1]:
        raise ValueError(f"layer {layer.name!r}: Gram {gram.shape} against rows {rows.shape}")
    _, _, _, low, high = RANGES[kind]
    scale = best_scales(rows, np.diag(gram), low=low, high=high)
    damping = best_damping(rows, grams, scale, low=low, high=high)
    data = pass_errors_on(rows, gram, scale, low=low, high=high, damping=damping)
    dtype = RANGES[kind][0]
    moved = data.astype(dtype).reshape(np.moveaxis(values, axis, 0).shape)
    restored_axis = np.ascontiguousarray(np.moveaxis(moved, 0, axis))
    zero = np.zeros(rows.shape[0], dtype=dtype)
    return Quantized(restored_axis, scale.astype(np.float32), zero, axis)


def best_scales(
    rows: NDArray[np.float64], importance: NDArray[np.float64], *, low: int, high: int
) -> NDArray[np.float64]:
    """One scale a row: the one whose plain rounding error, weighted, is smallest."""
    full = np.maximum(np.abs(rows).max(axis=1), 1e-12) / high
    weights = importance / max(float(importance.mean()), 1e-30) + 1e-3
    best = full.copy()
    best_error = np.full(full.shape, np.inf)
    for share in np.linspace(1.0, 0.5, SHRINK_STEPS):
        scale = (full * share).astype(np.float32).astype(np.float64)
        rounded = np.clip(np.round(rows / scale[:, None]), low, high) * scale[:, None]
        error = ((rows - rounded) ** 2 * weights).sum(axis=1)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best = np.where(better, scale, best)
    chosen: NDArray[np.float64] = best
    return chosen


def best_damping(
    rows: NDArray[np.float64],
    grams: NDArray[np.float64],
    scale: NDArray[np.float64],
    *,
    low: int,
    high: int,
) -> float:
    """Round some rows by one half of the samples, judge them by the other half."""
    chosen = np.linspace(0, len(rows) - 1, min(TRIAL_ROWS, len(rows))).astype(int)
    some, their_scale = rows[chosen], scale[chosen]
    error: dict[float, float] = {}
    for damping in DAMPINGS:
        data = pass_errors_on(some, grams[0], their_scale, low=low, high=high, damping=damping)
        gap = some - data * their_scale[:, None]
        error[damping] = float(np.einsum("ri,ij,rj->", gap, grams[1], gap, optimize=True))
    return min(error, key=lambda d: error[d])


def pass_errors_on(
    rows: NDArray[np.float64],
    gram: NDArray[np.float64],
    scale: NDArray[np.float64],
    *,
    low: int,
    high: int,
    damping: float,
) -> NDArray[np.float64]:
    """Round column by column, most important first; later columns make up for earlier ones."""
    size = gram.shape[0]
    dead = np.diag(gram) <= 0
    work = rows.copy()
    matrix = gram + np.diag(np.where(dead, 1.0, 0.0))
    matrix += np.eye(size) * damping * float(np.mean(np.diag(matrix)))
    order = np.argsort(-np.diag(matrix), kind="stable")
    work, matrix = work[:, order], matrix[np.ix_(order, order)]
    upper = np.linalg.cholesky(np.linalg.inv(matrix)).T  # inv(H) = Uᵀ U
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
    result[:, order] = data
    return result

"""Range methods: minmax, percentile, entropy and mse, from histograms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from seqto.errors import DataError

BINS = 2048
PERCENTILE = 99.99


# -------------------------------------------------------------------------- ranges from histograms


def range_by(
    method: str, histogram: NDArray[np.int64], low: float, high: float
) -> tuple[float, float]:
    """Return a range that clips what is rare, by the rule of `method`."""
    if histogram.sum() == 0 or high <= low:
        return low, high
    if method == "percentile":
        return _percentile(histogram, low, high)
    if method == "mse":
        return _search(histogram, low, high, _squared_error)
    if method == "entropy":
        return _search(histogram, low, high, _divergence)
    raise DataError(f"unknown calibration method {method!r}: minmax, percentile, entropy or mse")


def _percentile(histogram: NDArray[np.int64], low: float, high: float) -> tuple[float, float]:
    share = np.cumsum(histogram) / histogram.sum()
    width = (high - low) / BINS
    tail = (1.0 - PERCENTILE / 100.0) / 2.0
    first = int(np.searchsorted(share, tail))
    last = int(np.searchsorted(share, 1.0 - tail))
    new_low = low if low >= 0 else low + first * width
    return new_low, low + (last + 1) * width


def _search(
    histogram: NDArray[np.int64],
    low: float,
    high: float,
    cost: Callable[[NDArray[np.float64], NDArray[np.float64], float, float], float],
) -> tuple[float, float]:
    """Return the best of some shrunken ranges; both ends shrink towards zero independently."""
    centers = low + (np.arange(BINS) + 0.5) * (high - low) / BINS
    weights = histogram.astype(np.float64) / histogram.sum()
    shares = np.linspace(1.0, 0.2, 33)
    best_high = min(shares, key=lambda s: cost(centers, weights, low, high * s))
    top = high * best_high
    if low >= 0:
        return low, top
    best_low = min(shares, key=lambda s: cost(centers, weights, low * s, top))
    return low * best_low, top


def _levels(low: float, high: float) -> tuple[float, float, float]:
    low, high = min(low, 0.0), max(high, 0.0)
    return low, high, max((high - low) / 255.0, 1e-30)


def _squared_error(
    centers: NDArray[np.float64], weights: NDArray[np.float64], low: float, high: float
) -> float:
    low, high, step = _levels(low, high)
    rounded = np.round((np.clip(centers, low, high) - low) / step) * step + low
    # values inside a bin are spread: rounding costs at least step²/12 within the range
    inside = (centers >= low) & (centers <= high)
    error = np.where(inside, step * step / 12.0, (centers - rounded) ** 2)
    return float((error * weights).sum())


def _divergence(
    centers: NDArray[np.float64], weights: NDArray[np.float64], low: float, high: float
) -> float:
    """Return the KL divergence of the clipped, 256-level histogram from the full one."""
    low, high, step = _levels(low, high)
    level = np.round((np.clip(centers, low, high) - low) / step).astype(np.int64)
    mass = np.bincount(level, weights=weights, minlength=256)
    filled = np.bincount(level, weights=(weights > 0).astype(np.float64), minlength=256)
    inside = (centers >= low) & (centers <= high)
    spread = np.where(filled[level] > 0, mass[level] / np.maximum(filled[level], 1), 0.0)
    model = np.where((weights > 0) & inside, spread, 1e-12)
    model = model / model.sum()
    known = weights > 0
    return float((weights[known] * np.log(weights[known] / np.maximum(model[known], 1e-30))).sum())

"""Confidence intervals of measured shares, mean distances and differences of scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray


def wilson(successes: int, samples: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a share: honest near 0 and 1 and for few samples."""
    if not 0 <= successes <= samples:
        raise ValueError(f"{successes} successes of {samples} samples")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not between 0 and 1")
    if samples == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / samples
    weight = 1 + z * z / samples
    centre = (share + z * z / (2 * samples)) / weight
    half = z / weight * math.sqrt(share * (1 - share) / samples + (z / (2 * samples)) ** 2)
    # the ends are exact in theory; rounding must not put a share of 0 outside its own interval
    low = 0.0 if successes == 0 else max(0.0, min(share, centre - half))
    high = 1.0 if successes == samples else min(1.0, max(share, centre + half))
    return low, high


RESAMPLES = 1000


def bootstrap_mean(
    values: NDArray[np.float64], *, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of a mean over samples.

    For values that are not 0 or 1.
    """
    sample = np.asarray(values, dtype=np.float64)
    if not len(sample):
        return 0.0, 1.0
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        means[i] = sample[rng.integers(0, len(sample), len(sample))].mean()
    mean = float(sample.mean())
    low, high = _ends(means, confidence)
    return min(low, mean), max(high, mean)


def bootstrap_differences(
    figures: Callable[[NDArray[np.int64]], tuple[Mapping[str, float], Mapping[str, float]]],
    samples: int,
    *,
    names: Sequence[str],
    resamples: int = 200,
    seed: int = 0,
    confidence: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Return intervals of a − b by name, where `figures(rows)` gives both of the same rows.

    A paired bootstrap: pairing takes out what makes samples easy or hard for both models.
    """
    rng = np.random.default_rng(seed)
    gaps = np.empty((resamples, len(names)))
    for i in range(resamples):
        first, second = figures(rng.integers(0, samples, samples))
        gaps[i] = [first[name] - second[name] for name in names]
    return {name: _ends(gaps[:, i], confidence) for i, name in enumerate(names)}


def mean_interval(
    values: NDArray[np.float64], *, seed: int = 0, confidence: float = 0.95
) -> tuple[float, float]:
    """Return an interval of a mean distance: Wilson's of zeros and ones, else a bootstrap's."""
    distances = np.asarray(values)
    if np.isin(distances, (0.0, 1.0)).all():
        return wilson(int(distances.sum()), len(distances), confidence=confidence)
    return bootstrap_mean(distances, seed=seed, confidence=confidence)


def weighted_interval(
    values: NDArray[np.float64],
    weights: NDArray[np.float64],
    *,
    seed: int = 0,
    confidence: float = 0.95,
) -> tuple[float, float]:
    """Return an interval of a weighted mean distance: a bootstrap over samples that count.

    Where all of these have the same distance of 0 or 1, a bootstrap would show no doubt: Wilson's.
    """
    counts = np.asarray(weights, dtype=np.float64) > 0
    distances, heavy = np.asarray(values)[counts], np.asarray(weights, dtype=np.float64)[counts]
    if not len(distances):
        return 0.0, 1.0
    if (distances == 0).all() or (distances == 1).all():
        return wilson(int(distances.sum()), len(distances), confidence=confidence)
    rng = np.random.default_rng(seed)
    means = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        rows = rng.integers(0, len(distances), len(distances))
        means[i] = np.average(distances[rows], weights=heavy[rows])
    mean = float(np.average(distances, weights=heavy))
    low, high = _ends(means, confidence)
    return min(low, mean), max(high, mean)


def _ends(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)

"""Confidence intervals of measured shares."""

from __future__ import annotations

import math
from statistics import NormalDist


def wilson(successes: int, samples: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share: honest near 0 and 1 and for few samples."""
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

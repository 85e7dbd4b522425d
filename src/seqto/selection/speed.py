"""Verdict on a measured latency: faster, slower, about as fast as float, or nothing certain.

A ratio to float is a median over interleaved rounds with a 95 % interval. What is written about it
must be true for the whole interval: one that holds 1 is no gain, and a wide one that holds 1 says
only that the machine was busy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

# of the high end over the low one: beyond this, an interval that holds 1 covers gains and losses
# that a user would care about
WIDE = 1.25
SESSIONS_DIFFER = 0.02  # two sessions of one model differ by about this share


class Speed(StrEnum):
    """A candidate's time beside float's, judged by the interval of their ratio."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "about as fast"
    UNCERTAIN = "uncertain"


def ends(latency: Mapping[str, Any]) -> tuple[float, float]:
    """Return the interval of the ratio; old journals may have none, then the ratio itself."""
    ratio = float(latency["ratio"])
    low, high = latency.get("ratio_low") or ratio, latency.get("ratio_high") or ratio
    return min(low, ratio), max(high, ratio)


def is_wide(latency: Mapping[str, Any]) -> bool:
    """Return whether the interval is too wide to name one factor."""
    low, high = ends(latency)
    return low <= 0 or high / low > WIDE


def speed_of(latency: Mapping[str, Any]) -> Speed:
    """Judge a latency as JSON: by its interval, not by its median alone."""
    low, high = ends(latency)
    before = latency.get("float_median")
    if before and not low / WIDE <= latency["median"] / before <= high * WIDE:
        return Speed.UNCERTAIN  # rounds and medians contradict each other: a busy machine
    if low <= 1.0 <= high:
        return Speed.UNCERTAIN if is_wide(latency) else Speed.SAME
    if abs(latency["ratio"] - 1.0) < SESSIONS_DIFFER:
        return Speed.SAME
    return Speed.FASTER if high < 1.0 else Speed.SLOWER

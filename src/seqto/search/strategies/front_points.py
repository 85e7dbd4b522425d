"""Points of damage, bytes and milliseconds: which damage counts, and points that lie apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seqto.record.trial import Trial
from seqto.search.strategies.targets import damage_of
from seqto.selection.recommend import loss_curve

HOPELESS_LOSS = 0.25  # plans beyond this are of no use to anybody


def price_point(prices: Sequence[float], *, timed: bool) -> tuple[float, ...]:
    """Return damage, bytes and, where time is an objective, milliseconds."""
    noise, size, time = prices
    return (noise, size, time) if timed else (noise, size)


def is_hopeless(trial: Trial) -> bool:
    """Return whether a trial loses too much to be useful."""
    return trial.loss is not None and trial.loss.value > HOPELESS_LOSS


def hopeless_damage(trials: Iterable[Trial]) -> float:
    """Return the smallest damage at which a known trial loses too much to be useful."""
    return min((damage_of(t) for t in trials if is_hopeless(t)), default=np.inf)


def harmless_damage(trials: Iterable[Trial]) -> float:
    """Return the damage below which no answer changes among so few samples: less buys nothing."""
    known = [t for t in trials if t.loss is not None]
    curve = loss_curve(known)
    samples = max((t.loss.samples for t in known if t.loss), default=1)
    return curve.damage_at(0.25 / samples) if curve else 0.0


def clamp_damage(point: tuple[float, ...], floor: float) -> tuple[float, ...]:
    """Return the point with at least the damage of `floor`."""
    return (max(point[0], floor), *point[1:])


def spread_points(points: Sequence[Sequence[float]], count: int) -> list[int]:
    """Return up to `count` points far from each other: extremes first, then the farthest."""
    if len(points) <= count:
        return list(range(len(points)))
    table = np.array(points, dtype=float)
    table[:, 0] = np.log10(np.maximum(table[:, 0], 1e-9))  # noise spans decades
    span = np.ptp(table, axis=0)
    table = (table - table.min(axis=0)) / np.where(span > 0, span, 1.0)
    chosen = list(dict.fromkeys(int(i) for i in table.argmin(axis=0)))[:count]
    while len(chosen) < count:
        gaps = np.min(np.linalg.norm(table[:, None, :] - table[None, chosen, :], axis=2), axis=1)
        chosen.append(int(gaps.argmax()))
    return chosen

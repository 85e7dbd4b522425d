"""Which trials to recommend: the front's extremes, and what a practitioner asks for.

balanced   nearest the ideal point after normalisation; a search over schemes (frontier, evolve)
           looks only at trials within the tolerated loss, where there are any, since its front
           reaches down to files that are tiny and useless
loss, …    the best of the front in each objective
drop_in    least damage among trials that are no larger than the fully quantized model and no
           slower than float: better than plain int8 in everything
small      the smallest file within the tolerated loss
fast       the fastest within the tolerated loss and 1.05 × the fully quantized model's bytes

Losses on a few hundred samples differ by luck. Where several trials are within one standard
error of the best, the one with the least damage (a smooth figure) is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from seqto import pareto

Json = dict[str, Any]
FAST_SIZE = 1.05  # of the fully quantized model's bytes


def choose(
    rows: Sequence[tuple[Json, Sequence[float]]],
    *,
    names: Sequence[str],
    fully_quantized: Json | None,
    tolerance: float,
    within_tolerance: bool,
) -> tuple[list[int], dict[str, int]]:
    """(front, recommendations) as trial numbers; rows are (trial, its objectives)."""
    if not rows or not names:
        return [], {}
    points = [list(point) for _, point in rows]
    trials = [trial for trial, _ in rows]
    on_front = pareto.front(points)
    chosen = {name: trials[i]["number"] for name, i in pareto.top(points, names=names).items()}
    usable = [i for i in on_front if loss_of(trials[i]) <= tolerance]
    if within_tolerance and usable:
        best = pareto.top([points[i] for i in usable], names=names)["balanced"]
        chosen["balanced"] = trials[usable[best]]["number"]
    chosen.update(_practical(trials, fully_quantized, tolerance=tolerance))
    return sorted(trials[i]["number"] for i in on_front), chosen


def _practical(
    trials: Sequence[Json], fully_quantized: Json | None, *, tolerance: float
) -> dict[str, int]:
    if fully_quantized is None:
        return {}
    limit = fully_quantized["size_bytes"]
    timed = [t for t in trials if t["latency_ms"] is not None]
    within = [t for t in trials if loss_of(t) <= tolerance]
    found: dict[str, int] = {}
    fitting = [t for t in timed if t["size_bytes"] <= limit and ratio_of(t) <= 1.0]
    if fitting:
        found["drop_in"] = steadiest(fitting)["number"]
    if within:
        found["small"] = min(within, key=lambda t: (t["size_bytes"], loss_of(t)))["number"]
    quick = [t for t in within if t in timed and t["size_bytes"] <= FAST_SIZE * limit]
    if quick:
        found["fast"] = min(quick, key=_by(ratio_of, loss_of))["number"]
    return found


def steadiest(trials: Sequence[Json]) -> Json:
    """The least damage among those whose loss is within one standard error of the lowest."""
    lowest = min(trials, key=loss_of)
    rate, samples = max(loss_of(lowest), 1e-3), lowest["loss"]["samples"]
    slack = math.sqrt(rate * (1.0 - rate) / samples)
    near = [t for t in trials if loss_of(t) <= loss_of(lowest) + slack]
    return min(near, key=lambda t: (math.inf if t["damage"] is None else t["damage"], loss_of(t)))


def loss_of(trial: Mapping[str, Any]) -> float:
    return float(trial["loss"]["value"]) if trial["loss"] else math.inf


def ratio_of(trial: Mapping[str, Any]) -> float:
    return float(trial["latency_ms"]["ratio"])


def _by(*keys: Callable[[Json], float]) -> Callable[[Json], tuple[float, ...]]:
    return lambda trial: tuple(key(trial) for key in keys)

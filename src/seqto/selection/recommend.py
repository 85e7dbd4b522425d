"""Which trials to recommend: the front's extremes, and what a practitioner asks for.

balanced   nearest the ideal point after normalisation; a search over schemes (frontier, evolve)
           looks only at trials within the tolerated loss, where there are any, since its front
           reaches down to files that are tiny and useless
loss, …    the best of the front in each objective
drop_in    no larger than the fully quantized model and no slower than float: better than plain
           int8 in everything; of those that lose least the fastest. Trials that are surely faster
           than float and within the tolerated loss go before those that are about as fast
small      the smallest file within the tolerated loss
fast       the fastest within the tolerated loss and 1.05 × the fully quantized model's bytes

Where the fully quantized model did not run, the float model's bytes take its place as the limit,
for the search too (strategies/aims.py).

Losses on a few hundred samples differ by luck, and the best of many trials is partly the luckiest:
`small`, `fast` and `balanced` want trials that will *probably* stay within the tolerated loss on
other samples (luck.py), where there are any; "lose least" allows one standard error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from seqto.selection import expected_loss, pareto

FAST_SIZE = 1.05  # of the fully quantized model's bytes: what a fast model may take


TOLERANCE = 0.025  # loss that is put up with, where no setting says another


Json = dict[str, Any]


SURELY = 0.95  # of float's time: faster beyond all doubt


AS_FAST = 1.03  # times that differ by less are the same: the less damage counts


def choose(
    rows: Sequence[tuple[Json, Sequence[float]]],
    *,
    names: Sequence[str],
    fully_quantized: Json | None,
    float_bytes: int | None = None,
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
    curve = expected_loss.LossCurve.fit(seen_in(t) for t in trials)
    tolerable = {t["number"] for t in within(trials, tolerance, curve)}
    usable = [i for i in on_front if trials[i]["number"] in tolerable]
    if within_tolerance and usable:
        best = pareto.top([points[i] for i in usable], names=names)["balanced"]
        chosen["balanced"] = trials[usable[best]]["number"]
    limit = float_bytes if fully_quantized is None else fully_quantized["size_bytes"]
    if limit:
        chosen.update(_practical(trials, tolerable, limit, curve, tolerance=tolerance))
    return sorted(trials[i]["number"] for i in on_front), chosen


def within(
    trials: Sequence[Json], tolerance: float, curve: expected_loss.LossCurve | None
) -> Sequence[Json]:
    """Trials that probably lose no more than is tolerated; failing that, those that did not."""
    counted = [t for t in trials if loss_of(t) <= tolerance]
    return [t for t in counted if expected_loss.bound(seen_in(t), curve) <= tolerance] or counted


def _practical(
    trials: Sequence[Json],
    tolerable: Container[int],
    limit: float,
    curve: expected_loss.LossCurve | None,
    *,
    tolerance: float,
) -> dict[str, int]:
    timed = [t for t in trials if t["latency_ms"] is not None]
    usable = [t for t in trials if t["number"] in tolerable]
    found: dict[str, int] = {}
    fitting = [t for t in timed if t["size_bytes"] <= limit and not_slower(t)]
    # what only stores integers runs float's kernels, and a clock cannot say whether it is slower
    faster = [t for t in fitting if surely_faster(t) and loss_of(t) <= tolerance]
    fitting = faster or fitting
    if fitting:
        found["drop_in"] = min(steady(fitting, curve), key=_by(ratio_of, loss_of))["number"]
    if usable:
        found["small"] = min(usable, key=lambda t: (t["size_bytes"], loss_of(t)))["number"]
    quick = [t for t in usable if t in timed and t["size_bytes"] <= FAST_SIZE * limit]
    if quick:
        limit = AS_FAST * min(ratio_of(t) for t in quick)
        fastest = [t for t in quick if ratio_of(t) <= limit]
        found["fast"] = min(fastest, key=_by(damage_in, ratio_of))["number"]
    return found


def steady(trials: Sequence[Json], curve: expected_loss.LossCurve | None) -> list[Json]:
    """Those whose expected loss is within one standard error of the lowest."""
    hoped = [expected_loss.expected(seen_in(t), curve) for t in trials]
    lowest, error = min(hoped)
    slack = max(error, 1.0 / trials[0]["loss"]["samples"])
    return [t for t, (mean, _) in zip(trials, hoped, strict=True) if mean <= lowest + slack]


def seen_in(trial: Mapping[str, Any]) -> expected_loss.Seen:
    samples = int(trial["loss"]["samples"]) if trial["loss"] else 0
    return trial["damage"], loss_of(trial), samples


def loss_of(trial: Mapping[str, Any]) -> float:
    return float(trial["loss"]["value"]) if trial["loss"] else math.inf


def damage_in(trial: Mapping[str, Any]) -> float:
    return math.inf if trial["damage"] is None else float(trial["damage"])


def ratio_of(trial: Mapping[str, Any]) -> float:
    return float(trial["latency_ms"]["ratio"])


def not_slower(trial: Mapping[str, Any]) -> bool:
    """Than float, as far as can be measured: what is folded at load runs float's kernels."""
    latency = trial["latency_ms"]
    return float(latency.get("ratio_low") or latency["ratio"]) <= 1.0


def surely_faster(trial: Mapping[str, Any]) -> bool:
    """By more than one session of the same model differs from another (about two per cent)."""
    latency = trial["latency_ms"]
    return float(latency.get("ratio_high") or latency["ratio"]) <= SURELY


def _by(*keys: Callable[[Json], float]) -> Callable[[Json], tuple[float, ...]]:
    return lambda trial: tuple(key(trial) for key in keys)

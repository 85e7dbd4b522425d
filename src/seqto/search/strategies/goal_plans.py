"""Plans for the region that a goal's bounds leave: bytes, time and loss bounded at once.

Plans for many prices of bytes and milliseconds are squeezed under the byte limit and priced. Those
that keep all bounds compete in what is wanted, or in what is not bounded; where none keeps them,
those that miss by least are tried, so that the nearest miss is near. Predictions are off by some
per cent, so the bounds are planned for with different margins.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.search.space import Space
from seqto.search.strategies.byte_budget import squeeze
from seqto.search.strategies.descent import Descent
from seqto.search.strategies.latency_fit import float_ms
from seqto.search.strategies.noise_model import NoiseModel, Prices, Schemes
from seqto.search.strategies.targets import (
    damage_allowed,
    float_plan,
    measured_trials,
    unknown_plans,
    unpriced_bytes,
)
from seqto.selection.goal import Goal
from seqto.selection.pareto import front
from seqto.selection.recommend import loss_curve

MIXES = ((1.0, 0.0), (1.0, 0.2), (0.5, 0.5), (0.1, 1.0), (0.0, 1.0))  # prices: bytes, ms
RATES = np.geomspace(1e-5, 3.0, 12)  # noise that all of the float model's bytes and time are worth
# shares of the bounds on loss and time that a plan is made for: predictions are off
MARGINS = ((0.9, 1.0), (0.6, 0.95), (0.3, 0.9))
MOST = 3  # plans for one margin
AXES = {"loss": 0, "accuracy_drop": 0, "size": 1, "latency": 2}  # of Prices
BYTE_MARGIN = 0.999


@dataclass(frozen=True, slots=True)
class Region:
    """Limits of noise, bytes and milliseconds, as a noise model prices them."""

    noise: float = math.inf
    size: float = math.inf
    time: float = math.inf

    def excess(self, prices: Sequence[float]) -> float:
        """Return by what share of the limits a plan misses them; 0 where it keeps all."""
        limits = (self.noise, self.size, self.time)
        over = (p / limit - 1 for p, limit in zip(prices, limits, strict=True) if limit > 0)
        return math.hypot(*(max(0.0, x) for x in over))


def ratio_limit(goal: Goal, space: Space) -> float:
    """Return the ratio to float's time that a goal allows; infinite where time is not bounded."""
    speedup, latency = goal.limit("min_speedup"), goal.limit("max_latency")
    ratios = [1 / speedup] if speedup else []
    if latency is not None and space.float_latency_ms:
        ratios.append(latency / space.float_latency_ms)
    return min(ratios, default=math.inf)


def is_planned_for(goal: Goal | None) -> bool:
    """Return whether a goal bounds bytes or time; a bound of the loss is the tolerated loss."""
    bounded = ("max_size", "min_speedup", "max_latency")
    return goal is not None and any(goal.limit(name) is not None for name in bounded)


def region_of(
    goal: Goal,
    model: NoiseModel,
    trials: Sequence[Trial],
    *,
    loss: float = math.inf,
    time_share: float = 1.0,
) -> Region:
    """Return the limits that a goal leaves; `loss` is the one to plan for, where it is bounded."""
    size = goal.limit("max_size")
    curve = loss_curve(trials)
    bounded = math.isfinite(loss) and curve is not None
    ratio = time_share * ratio_limit(goal, model.space)
    return Region(
        noise=damage_allowed(model, trials, loss) if bounded else math.inf,
        size=math.inf if size is None else BYTE_MARGIN * size - unpriced_bytes(model, trials),
        time=ratio * float_ms(model.space) if float_ms(model.space) > 0 else math.inf,
    )


def goal_plans(
    goal: Goal,
    model: NoiseModel,
    known: Mapping[str, Trial],
    float_model: Plan,
    *,
    objectives: Sequence[str],
) -> list[tuple[Plan, str]]:
    """Return new plans for a goal: the best that the model expects to keep its bounds."""
    trials = measured_trials(known)
    if not trials:
        return []
    bounds = [goal.limit(name) for name in ("max_loss", "max_score_drop")]
    loss = min((b for b in bounds if b is not None), default=math.inf)
    axes = free_axes(goal, objectives)
    candidates = _candidates(model, region_of(goal, model, trials))
    priced = [(model.prices(plan), plan) for plan in candidates]
    plans: list[tuple[Schemes, str]] = []
    for loss_share, time_share in MARGINS:
        region = region_of(goal, model, trials, loss=loss_share * loss, time_share=time_share)
        best = _best(priced, region, axes)
        plans += [(plan, f"goal, {time_share:.0%} of its time") for plan in best]
    return unknown_plans(plans, known, float_model)


def free_axes(goal: Goal, objectives: Sequence[str]) -> tuple[int, ...]:
    """Return the prices to minimise: that of `goal.want`, else those that are not bounded."""
    if goal.want is not None:
        return (AXES[goal.want],)
    bounded = {AXES.get(b.figure.objective) for b in goal.bounds}
    wished = {AXES[name] for name in objectives if name in AXES}
    return tuple(sorted(wished - bounded)) or (0,)


def _candidates(model: NoiseModel, region: Region) -> list[Schemes]:
    """Return plans along the whole trade-off, squeezed under the byte limit where they can be."""
    start = float_plan(model)
    _, all_bytes, all_ms = model.prices(start)
    unique: dict[str, Schemes] = {}
    for share_bytes, share_ms in MIXES:
        plan = start
        for rate in RATES:
            byte_price = rate * share_bytes / max(all_bytes, 1.0)
            ms_price = rate * share_ms / max(all_ms, 1e-9)
            plan = Descent(model, byte_price, ms_price).best_plan(plan)
            fitted = squeeze(model, plan, region.size) if math.isfinite(region.size) else plan
            chosen = plan if fitted is None else fitted
            unique.setdefault(Plan.of(chosen).key, chosen)
    return list(unique.values())


def _best(
    priced: Sequence[tuple[Prices, Schemes]], region: Region, axes: Sequence[int]
) -> list[Schemes]:
    """Return the best within a region, at most MOST; where none is within, the nearest."""
    inside = [(prices, plan) for prices, plan in priced if region.excess(prices) <= 0]
    if not inside:
        nearest = sorted(priced, key=lambda pair: region.excess(pair[0]))
        return [plan for _, plan in nearest[:MOST]]
    points = [[prices[a] for a in axes] for prices, _ in inside]
    chosen = [inside[i] for i in front(points)]
    # of a long front the ends and the middle; ties go to less noise
    chosen.sort(key=lambda pair: ([pair[0][a] for a in axes], pair[0][0]))
    positions = np.unique(np.linspace(0, len(chosen) - 1, MOST).round().astype(int))
    return [chosen[i][1] for i in positions]

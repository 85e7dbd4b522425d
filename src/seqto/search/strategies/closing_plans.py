"""Last plans of a search: they close in on the fastest and on the smallest trial that will do.

Plans are made for a few levels of loss (targets.py), which leave gaps. Between the best trial that
will probably stay within the tolerated loss and a better one that will not, plans of a damage in
between are tried. And what is fastest is squeezed: with the same kernels its bytes cost no time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.search.space import scheme_by_layer
from seqto.search.strategies.byte_budget import squeeze
from seqto.search.strategies.noise_model import NoiseModel, Schemes
from seqto.search.strategies.targets import (
    SMALLEST,
    Target,
    byte_limit,
    damage_of,
    fast_target,
    measured_trials,
    meet,
    optimism,
    unknown_plans,
    unpriced_bytes,
)
from seqto.selection.recommend import FAST_SIZE, loss_curve, probable_loss, ratio_of

BETWEEN = 3  # plans between two trials
SQUEEZED = (0.97, 0.94, 0.9)  # of the fastest trial's bytes


def bisect_picks(
    model: NoiseModel,
    known: Mapping[str, Trial],
    float_model: Plan,
    *,
    tolerance: float,
    timed: bool,
) -> list[tuple[Plan, str]]:
    """Return plans between the best trial that will probably do and a better one that will not."""
    trials = measured_trials(known)
    curve = loss_curve(trials)
    if curve is None:
        return []
    losses = {t.number: probable_loss(t, curve) for t in trials}
    plans = _between(
        model, trials, losses, SMALLEST, tolerance=tolerance, key=lambda t: t.size_bytes
    )
    if timed and model.space.latency_of:
        limit = byte_limit(model.space, known)
        quick = [t for t in trials if t.latency and t.size_bytes <= FAST_SIZE * limit]
        target = fast_target(limit - unpriced_bytes(model, trials))
        plans += _between(model, quick, losses, target, tolerance=tolerance, key=ratio_of)
        plans += _squeezed_fastest(model, quick, losses, tolerance=tolerance)
    return unknown_plans(plans, known, float_model)


def _between(
    model: NoiseModel,
    trials: Sequence[Trial],
    losses: Mapping[int, float],
    target: Target,
    *,
    tolerance: float,
    key: Callable[[Trial], float],
) -> list[tuple[Schemes | None, str]]:
    """Return plans whose damage is between those of two trials; less of `key` is better."""
    best, rival = _best_and_rival(trials, losses, tolerance=tolerance, key=key)
    if best is None or rival is None or not 0 < damage_of(best) < damage_of(rival):
        return []
    note = f"{target.name}, between {best.number} and {rival.number}"
    levels = np.geomspace(damage_of(best), damage_of(rival), BETWEEN + 2)[1:-1]
    return [(meet(model, target, d / optimism(model, trials, d)), note) for d in levels]


def _best_and_rival(
    trials: Sequence[Trial],
    losses: Mapping[int, float],
    *,
    tolerance: float,
    key: Callable[[Trial], float],
) -> tuple[Trial | None, Trial | None]:
    """Return the best that will do, and of the better ones that will not the least lossy."""
    doing = [t for t in trials if losses[t.number] <= tolerance]
    best = min(doing, key=key, default=None)
    if best is None:
        return None, None
    better = [t for t in trials if losses[t.number] > tolerance and key(t) < key(best)]
    return best, min(better, key=lambda t: losses[t.number], default=None)


def _squeezed_fastest(
    model: NoiseModel,
    quick: Sequence[Trial],
    losses: Mapping[int, float],
    *,
    tolerance: float,
) -> list[tuple[Schemes | None, str]]:
    """Return the plan of the fastest trial that will do, with fewer bytes and the same kernels."""
    fastest, _ = _best_and_rival(quick, losses, tolerance=tolerance, key=ratio_of)
    if fastest is None:
        return []
    plan = scheme_by_layer(model.space, fastest.plan)
    size = model.prices(plan)[1]
    note = f"fastest, trial {fastest.number}, smaller"
    return [(squeeze(model, plan, share * size), note) for share in SQUEEZED]

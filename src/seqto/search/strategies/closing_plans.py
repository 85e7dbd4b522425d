"""Last plans of a search: they close in on the fastest and on the smallest trial that will do.

Plans are made for a few levels of loss (targets.py), which leave gaps. Between the best trial that
will probably stay within the tolerated loss and a better one that will not, plans of a damage in
between are tried. And the fastest and the smallest such trial are squeezed, the fastest with the
same kernels, so that its bytes cost no time: what was measured knows more than the noise model.
And what is as fast as the fastest, with the least damage that its bytes allow, is tried, and what
has fewer bytes than the smallest, with the least damage that these allow: a trial that will do owes
it partly to luck on a few hundred samples, so that its own plan need not be a good one.

A round that finds a better trial is followed by another from there, up to `CLOSING_ROUNDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.search.space import scheme_by_layer
from seqto.search.strategies.byte_budget import quieten, squeeze
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
    quietest_within,
    unknown_plans,
    unpriced_bytes,
)
from seqto.selection.recommend import FAST_SIZE, loss_curve, probable_loss, ratio_of

CLOSING_ROUNDS = 3
BETWEEN = 3  # plans between two trials
SQUEEZED = (0.97, 0.94, 0.9)  # of a trial's bytes


def bisect_picks(
    model: NoiseModel,
    known: Mapping[str, Trial],
    float_model: Plan,
    *,
    tolerance: float,
    timed: bool,
    fresh: Container[str] | None = None,
) -> list[tuple[Plan, str]]:
    """Return plans between the best trial that will probably do and a better one that will not.

    `fresh`: keys of the plans that the last round has run; only from these it goes on.
    """
    trials = measured_trials(known)
    curve = loss_curve(trials)
    if curve is None:
        return []
    losses = {t.number: probable_loss(t, curve) for t in trials}
    limit = byte_limit(model.space, known)
    picks = [_Pick(SMALLEST, trials, lambda t: float(t.size_bytes), "smallest")]
    if timed and model.space.latency_of:
        quick = [t for t in trials if t.latency and t.size_bytes <= FAST_SIZE * limit]
        target = fast_target(limit, unpriced=unpriced_bytes(model, trials))
        picks.append(_Pick(target, quick, ratio_of, "fastest"))
    plans: list[tuple[Schemes | None, str]] = []
    for pick in picks:
        best, rival = pick.best_and_rival(losses, tolerance=tolerance)
        if best is not None and (fresh is None or best.plan.key in fresh):
            plans += _between(model, pick, best, rival)
            plans += _squeezed(model, pick, best)
            if pick.target is SMALLEST:
                plans += _least_damage(model, pick, best)
            else:
                plan = quieten(model, scheme_by_layer(model.space, best.plan), pick.target.limit)
                plans.append((plan, f"{pick.superlative}, trial {best.number}, less damage"))
    return unknown_plans(plans, known, float_model)


@dataclass(frozen=True, slots=True)
class _Pick:
    """A pick that is closed in on: less of `figure` is better."""

    target: Target
    trials: Sequence[Trial]
    figure: Callable[[Trial], float]
    superlative: str

    def best_and_rival(
        self, losses: Mapping[int, float], *, tolerance: float
    ) -> tuple[Trial | None, Trial | None]:
        """Return the best that will do, and of the better ones that will not the least lossy."""
        doing = [t for t in self.trials if losses[t.number] <= tolerance]
        best = min(doing, key=self.figure, default=None)
        if best is None:
            return None, None
        limit = self.figure(best)
        better = [t for t in self.trials if t not in doing and self.figure(t) < limit]
        return best, min(better, key=lambda t: losses[t.number], default=None)


def _between(
    model: NoiseModel, pick: _Pick, best: Trial, rival: Trial | None
) -> list[tuple[Schemes | None, str]]:
    """Return plans whose damage is between those of two trials."""
    if rival is None or not 0 < damage_of(best) < damage_of(rival):
        return []
    note = f"{pick.target.name}, between {best.number} and {rival.number}"
    levels = np.geomspace(damage_of(best), damage_of(rival), BETWEEN + 2)[1:-1]
    plans = [meet(model, pick.target, d / optimism(model, pick.trials, d)) for d in levels]
    gains = pick.target.gains
    most = model.prices_of(best.plan)[gains]  # what is no better than the best is not worth a trial
    return [(p, note) for p in plans if p is not None and model.prices(p)[gains] <= most]


def _squeezed(model: NoiseModel, pick: _Pick, best: Trial) -> list[tuple[Schemes | None, str]]:
    """Return the plan of a trial with fewer bytes and the same kind of kernels."""
    plan = scheme_by_layer(model.space, best.plan)
    size = model.prices(plan)[1]
    note = f"{pick.superlative}, trial {best.number}, smaller"
    return [(squeeze(model, plan, share * size), note) for share in SQUEEZED]


def _least_damage(model: NoiseModel, pick: _Pick, best: Trial) -> list[tuple[Schemes | None, str]]:
    """Return the plans of least noise with fewer bytes than a trial."""
    size = model.prices_of(best.plan)[1]
    note = f"least damage below {best.number}"
    return [(quietest_within(model, pick.trials, share * size), note) for share in SQUEEZED]

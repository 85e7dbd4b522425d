"""Plans near measured ones: the swaps of schemes that the noise model expects to pay most."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import EVALUATION
from seqto.schemes.scheme import Scheme
from seqto.search.space import scheme_by_layer
from seqto.search.strategies.front_points import (
    clamp_damage,
    harmless_damage,
    hopeless_damage,
    price_point,
    spread_points,
)
from seqto.search.strategies.latency_fit import float_ms
from seqto.search.strategies.noise_model import NoiseModel, Schemes
from seqto.search.strategies.targets import damage_of
from seqto.search.strategies.uniform_plans import has_bias
from seqto.selection.pareto import front

BUNDLES = (1, 2, 4, 8, 16, 32)  # swaps that a neighbour of a trial differs by


def neighbours(
    model: NoiseModel, known: Mapping[str, Trial], *, count: int, timed: bool
) -> list[tuple[Plan, str]]:
    """Return changes of front plans that should give points which no known trial dominates."""
    trials = [t for t in known.values() if t.error is None and EVALUATION in t.measurements]
    floor = harmless_damage(trials)
    measured = [clamp_damage(_measured(model, t, timed=timed), floor) for t in trials]
    on_front = [trials[i] for i in front(measured)] if measured else []
    limit = hopeless_damage(known.values())
    offers: list[tuple[tuple[float, ...], Plan, str]] = []
    for trial in on_front:
        if damage_of(trial) >= limit:
            continue
        before = _measured(model, trial, timed=timed)
        for plan, note, delta in _moves(model, trial, timed=timed):
            if plan.key not in known:
                point = tuple(
                    a + b for a, b in zip(before, price_point(delta, timed=timed), strict=True)
                )
                offers.append((clamp_damage(point, floor), plan, note))
    points = [point for point, _, _ in offers]
    better = [i for i in front([*points, *measured]) if i < len(points)]
    chosen = spread_points([points[i] for i in better], count)
    return [offers[better[i]][1:] for i in sorted(chosen)]


def _measured(model: NoiseModel, trial: Trial, *, timed: bool) -> tuple[float, ...]:
    """Return damage, bytes and milliseconds of a trial, as if the machine were always as fast."""
    time = trial.latency.ratio * float_ms(model.space) if trial.latency else 1e9
    point = (damage_of(trial), float(trial.size_bytes), time)
    return point if timed else point[:2]


def _moves(
    model: NoiseModel, trial: Trial, *, timed: bool
) -> Iterable[tuple[Plan, str, tuple[float, float, float]]]:
    """Yield bundles of 1, 2, 4, … swaps, best exchange rate first, in each direction."""
    space = model.space
    plan = scheme_by_layer(space, trial.plan)
    now = model.prices(plan)
    directions = {"smaller": (0, 1), "cleaner": (1, 0)}
    if timed:
        directions |= {"faster": (0, 2), "cleaner for time": (2, 0)}
    for note, (pays, gains) in directions.items():
        swaps = _swaps(model, plan, pays=pays, gains=gains)
        for count in BUNDLES:
            if count > len(swaps):
                break
            changed = {**plan, **dict(swaps[:count])}
            after = model.prices(changed)
            delta = (after[0] - now[0], after[1] - now[1], after[2] - now[2])
            yield (
                trial.plan.with_schemes(changed),
                f"{note}, {count} swap{'s' if count > 1 else ''}",
                delta,
            )
    if not trial.plan.correct_bias and has_bias(space, plan):
        # assumes 5 % less damage, so that the plan is scheduled; the measurement replaces it
        noise = -0.05 * damage_of(trial)
        corrected = dataclasses.replace(trial.plan, correct_bias=True)
        yield corrected, "bias correction", (noise, 0.0, 0.0)


def _swaps(model: NoiseModel, plan: Schemes, *, pays: int, gains: int) -> list[tuple[str, Scheme]]:
    """Return one swap a layer that lowers price `gains`, cheapest in price `pays` first."""
    swaps = []
    for layer in model.space.layers:
        best = None
        for scheme in model.space.menu[layer.name]:
            if scheme == plan[layer.name]:
                continue
            grown = model.swap(plan, layer, scheme)
            gain, cost = -grown[gains], grown[pays]
            if gain <= 0:
                continue
            rate = max(cost, 0.0) / gain
            if best is None or rate < best[0]:
                best = (rate, layer.name, scheme)
        if best is not None:
            swaps.append(best)
    return [(name, scheme) for _, name, scheme in sorted(swaps, key=lambda f: f[:2])]

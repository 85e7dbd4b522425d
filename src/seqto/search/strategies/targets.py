"""Plans for what a user will ask for, by what the trials so far have taught.

fast      least time     within the tolerated loss, at most 1.01 × the fully quantized bytes
drop-in   least time     at a fraction of that loss, no larger than fully quantized
small     fewest bytes   within the tolerated loss
portable  as drop-in,    of schemes whose answers do not depend on the CPU

How much damage a loss allows is read off the run's own trials (selection/expected_loss.py), how far
the noise model is off at that damage too; where the byte limit does not let a plan get so low, a
little more than the least possible is allowed. A plan that meets the damage is searched by
bisection over the price of bytes and milliseconds, and squeezed under the byte limit. Prices reach
the convex hull only, and one large table can leave a wide gap in it: for `small` the plan is then
squeezed until the damage is used up.

What little time buys less damage is bought, as long as the bytes allow it. The levels of loss leave
gaps, which closing_plans.py fills.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import EVALUATION
from seqto.search.choices import type_may_saturate
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.byte_budget import quieten, squeeze
from seqto.search.strategies.descent import Descent
from seqto.search.strategies.noise_model import NoiseModel, Schemes, is_static
from seqto.selection import recommend
from seqto.selection.racing import saw_all_samples
from seqto.selection.recommend import FAST, FAST_SIZE, loss_curve

# shares of the tolerated loss (selection among many trials flatters the chosen), and how much
# more than the least possible noise is allowed where that is above it
LEVELS = ((0.3, 1.25), (0.6, 2.0), (0.9, 3.0))
PORTABLE_LEVEL = LEVELS[0]  # the surest: the only one where a portable trial is good already
# prices of bytes and milliseconds where time counts. Every integer layer adds a few bytes of nodes:
# under a tight limit they must be few
QUICK = ((0.0, 1.0), (0.5, 0.5), (1.0, 0.2), (1.0, 0.05))
NEAR = 5  # trials that tell how far the noise model is off
STEPS = 7  # of bisection: prices within a tenth, bytes within a hundredth
RATES = (1e-5, 3.0)  # noise that all of the float model's bytes and time are worth


@dataclass(frozen=True, slots=True)
class Target:
    """Least time or bytes under a byte limit, for some mixes of the prices of both."""

    name: str
    limit: float  # bytes
    mixes: tuple[tuple[float, float], ...]  # shares of the price: bytes, milliseconds
    gains: int  # index into Prices


SMALLEST = Target("small", math.inf, ((1.0, 0.0),), 1)


def target_plans(
    model: NoiseModel,
    known: Mapping[str, Trial],
    float_model: Plan,
    *,
    tolerance: float,
    timed: bool,
) -> list[tuple[Plan, str]]:
    """Return new plans, one for each target and level of loss that can be met."""
    trials = measured_trials(known)
    curve = loss_curve(trials)
    if curve is None:
        return []
    limit, unpriced = byte_limit(model.space, known), unpriced_bytes(model, trials)
    goals = [SMALLEST]
    if timed and model.space.latency_of:
        full = 0.999 * limit - unpriced
        goals += [fast_target(limit, unpriced=unpriced), Target("drop-in", full, QUICK, 2)]
    least = {target.name: _least_noise(model, target.limit) for target in goals}
    plans: list[tuple[Schemes | None, str]] = []
    for share, slack in LEVELS:
        noise = damage_allowed(model, trials, share * tolerance)
        for target in goals:
            plan = meet(model, target, max(noise, slack * least[target.name]))
            if plan is not None and target is not SMALLEST:
                plan = quieten(model, plan, target.limit) or plan
            plans.append((plan, f"{target.name} at {share * tolerance:.1%}"))
    if timed and model.space.latency_of:
        plans += _portable_plans(model, trials, limit - unpriced, tolerance=tolerance)
    return unknown_plans(plans, known, float_model)


def _portable_plans(
    model: NoiseModel, trials: Sequence[Trial], limit: float, *, tolerance: float
) -> list[tuple[Schemes | None, str]]:
    """Return plans of portable schemes, as many levels as there is need for.

    Portable schemes have fewer bits or more bytes, so the surest level is often a plan of float
    kernels: while no portable trial is clearly faster than float, the others are planned too.
    """
    restricted = _portable_only(model)
    if restricted is None:
        return []
    target = Target("portable", 0.999 * limit, QUICK, 2)
    least = _least_noise(restricted, target.limit)
    full = limit + unpriced_bytes(model, trials)
    good = any(
        t.is_portable
        and saw_all_samples(t)
        and t.size_bytes <= full
        and recommend.clearly_faster(t)
        and recommend.loss_of(t) <= tolerance
        for t in trials
    )
    plans: list[tuple[Schemes | None, str]] = []
    for share, slack in (PORTABLE_LEVEL,) if good else LEVELS:
        noise = damage_allowed(model, trials, share * tolerance)
        plan = meet(restricted, target, max(noise, slack * least))
        plans.append((plan, f"portable at {share * tolerance:.1%}"))
    return plans


def unknown_plans(
    plans: Sequence[tuple[Schemes | None, str]], known: Mapping[str, Trial], float_model: Plan
) -> list[tuple[Plan, str]]:
    """Return plans that no trial has run, each once, with the note of the first."""
    unknown: dict[str, tuple[Plan, str]] = {}
    for schemes, note in plans:
        plan = None if schemes is None else float_model.with_schemes(schemes)
        if plan is not None and plan.key not in known:
            unknown.setdefault(plan.key, (plan, note))
    return list(unknown.values())


def _portable_only(model: NoiseModel) -> NoiseModel | None:
    """Return the model with portable choices alone; None where all are, or a layer has none."""
    space = model.space
    menu = {
        x.name: tuple(s for s in space.menu[x.name] if not type_may_saturate(x, s))
        for x in space.layers
    }
    if not all(menu.values()) or menu == {x.name: tuple(space.menu[x.name]) for x in space.layers}:
        return None
    return dataclasses.replace(model, space=dataclasses.replace(space, menu=menu))


def fast_target(full: float, *, unpriced: float) -> Target:
    """Return the target of the pick `fast`; `full`: bytes of the fully quantized model."""
    return Target(FAST, 0.999 * FAST_SIZE * full - unpriced, QUICK, 2)


def measured_trials(known: Mapping[str, Trial]) -> list[Trial]:
    """Return the trials that ran on the evaluation split."""
    return [t for t in known.values() if t.error is None and EVALUATION in t.measurements]


def _least_noise(model: NoiseModel, limit: float) -> float:
    """Return the noise of the plan that runs in float and is squeezed under the byte limit."""
    if math.isinf(limit):
        return 0.0
    clean = Descent(model, 1e-3 / max(limit, 1.0), 0.0).best_plan(float_plan(model))
    fitted = squeeze(model, clean, limit)
    return model.prices(fitted)[0] if fitted is not None else 0.0


def float_plan(model: NoiseModel) -> Schemes:
    """Return the first choice of every layer."""
    return {x.name: model.space.menu[x.name][0] for x in model.space.layers}


def damage_allowed(model: NoiseModel, trials: Sequence[Trial], loss: float) -> float:
    """Return the predicted noise of plans that lose as much as that; infinite if unknown."""
    curve = loss_curve(trials)
    if curve is None:
        return math.inf
    damage = curve.damage_at(loss)
    return damage / optimism(model, trials, damage)


def optimism(model: NoiseModel, trials: Sequence[Trial], damage: float) -> float:
    """Return measured over predicted damage, the median of trials whose damage is nearest."""
    gaps = []
    for trial in trials:
        noise = model.prices_of(trial.plan)[0]
        if noise > 0 and damage_of(trial) > 0:
            off = math.log(damage_of(trial) / noise)
            gaps.append((abs(math.log(damage_of(trial) / damage)), off))
    nearest = [off for _, off in sorted(gaps)[:NEAR]]
    return math.exp(float(np.median(nearest))) if nearest else 1.0


def meet(model: NoiseModel, target: Target, noise: float) -> Schemes | None:
    """Return the plan that gains most with at most this noise, of all mixes; None if none does."""
    start = float_plan(model)
    _, all_bytes, all_ms = model.prices(start)
    best: tuple[float, Schemes] | None = None
    for share_bytes, share_ms in target.mixes:
        low, high, plan = math.log(RATES[0]), math.log(RATES[1]), start
        for _ in range(STEPS):
            rate = math.exp((low + high) / 2)
            byte_price = rate * share_bytes / max(all_bytes, 1.0)
            ms_price = rate * share_ms / max(all_ms, 1e-9)
            plan = Descent(model, byte_price, ms_price).best_plan(plan)
            fitted = squeeze(model, plan, target.limit)
            prices = model.prices(fitted) if fitted is not None else None
            if fitted is None or prices is None:
                low = (low + high) / 2  # too many bytes: they must cost more
            elif prices[0] > noise:
                high = (low + high) / 2
            else:
                low = (low + high) / 2
                if best is None or prices[target.gains] < best[0]:
                    best = (prices[target.gains], fitted)
    if best is None or target is not SMALLEST:
        return best[1] if best is not None else None
    return _use_up(model, best[1], noise)


def quietest_within(model: NoiseModel, trials: Sequence[Trial], limit: float) -> Schemes | None:
    """Return the plan of least noise within a byte limit; None if none is that small.

    Plans of trials and for many prices of a byte are squeezed under the limit: from a plan near it
    bytes are counted finely, one far above it leaves more layers to choose among.
    """
    plan = float_plan(model)
    all_bytes = max(model.prices(plan)[1], 1.0)
    low, high = (math.log(rate) for rate in RATES)
    starts = [plan, *(scheme_by_layer(model.space, t.plan) for t in trials)]
    fitting = [squeeze(model, start, limit) for start in starts]
    for _ in range(2 * STEPS):
        middle = (low + high) / 2
        plan = Descent(model, math.exp(middle) / all_bytes, 0.0).best_plan(plan)
        fitting.append(squeeze(model, plan, limit))
        if model.prices(plan)[1] > limit:
            low = middle
        else:
            high = middle
    return min((p for p in fitting if p), key=lambda p: model.prices(p)[0], default=None)


def _use_up(model: NoiseModel, plan: Schemes, noise: float) -> Schemes:
    """Return the plan squeezed as far as the noise allows."""
    smallest = plan
    low, high = _fewest_bytes(model, plan), model.prices(plan)[1]
    for _ in range(STEPS):
        limit = (low + high) / 2
        squeezed = squeeze(model, plan, limit)
        if squeezed is None or model.prices(squeezed)[0] > noise:
            low = limit
        else:
            high = limit
            smallest = min(smallest, squeezed, key=lambda p: model.prices(p)[1])
    return smallest


def _fewest_bytes(model: NoiseModel, plan: Schemes) -> float:
    """Return the bytes of the smallest scheme of each layer; static layers stay static."""
    alike = (
        [s for s in model.space.menu[name] if is_static(s) == is_static(scheme)] or [scheme]
        for name, scheme in plan.items()
    )
    smallest = (
        min(model.own(name, s)[1] for s in schemes)
        for name, schemes in zip(plan, alike, strict=True)
    )
    return float(sum(smallest))


# --------------------------------------------------------------------- shared with the strategies


def byte_limit(space: Space, known: Mapping[str, Trial]) -> float:
    """Return the bytes of the fully quantized model, the limit of `drop_in` and `fast`."""
    full = known.get(space.fully_quantized.key)
    ran = full if full is not None and full.plan.schemes else None
    return recommend.byte_limit(ran, space.float_bytes)


def unpriced_bytes(model: NoiseModel, measured: Sequence[Trial]) -> float:
    """Return the bytes that prices leave out (nodes, names: the same for all plans), by trials."""
    gaps = [t.size_bytes - model.prices_of(t.plan)[1] for t in measured]
    return float(np.median(gaps))


def damage_of(trial: Trial) -> float:
    """Return the damage at the output; that of a failed trial is beyond all measure."""
    measurement = next(iter(trial.measurements.values()), None)
    if trial.error is not None or measurement is None or measurement.damage is None:
        return 1e6
    return measurement.damage

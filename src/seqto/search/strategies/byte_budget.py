"""The least noisy swaps that bring a plan under a byte limit: a multiple-choice knapsack."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqto.schemes.scheme import Scheme
from seqto.search.strategies.noise_model import NoiseModel, Schemes, is_static

BINS = 400  # that the bytes which must go are counted in
SAME_MS = 1.001  # of a layer's time: profiles of one kernel are one figure
ABOUT_AS_FAST = 1.02  # of a plan's time: the pick `fast` calls 1.03 the same (recommend.py)
RATES = (1e-6, 1e3)  # noise that a millisecond may be worth
RATE_STEPS = 12  # of bisection


@dataclass(frozen=True, slots=True)
class _Step:
    """One layer's options and, for each number of bins saved, which of them got there."""

    layer: str
    options: tuple[Scheme, ...]
    chosen: NDArray[np.int64]  # option, or -1 for leaving the layer as it is
    before: NDArray[np.int64]  # bins saved before this layer


def squeeze(model: NoiseModel, plan: Schemes, limit: float) -> Schemes | None:
    """Return the plan with swaps of the same kind that bring it under the limit, None if none do.

    Static layers stay static.
    """
    need = model.prices(plan)[1] - limit
    if need <= 0:
        return dict(plan)
    noise = np.full(BINS + 1, np.inf)
    noise[0] = 0.0
    steps = []
    for layer in model.space.layers:
        step, noise = _decide(model, plan, layer.name, noise, bin_bytes=need / BINS)
        steps.append(step)
    if not np.isfinite(noise[BINS]):
        return None
    changed, saved = dict(plan), BINS
    for step in reversed(steps):
        if step.chosen[saved] >= 0:
            changed[step.layer] = step.options[int(step.chosen[saved])]
        saved = int(step.before[saved])
    return changed


def quieten(model: NoiseModel, plan: Schemes, limit: float) -> Schemes | None:
    """Return the least noisy plan within the byte limit that takes as long as a plan.

    Plans of least time pay no attention to bytes and noise that cost no time, and noise that
    little time would remove. The kinds of kernels stay. None where the plan itself is the least
    noisy one.
    """
    alike = {
        name: [s for s in model.space.menu[name] if is_static(s) == is_static(scheme)] or [scheme]
        for name, scheme in plan.items()
    }
    longest = ABOUT_AS_FAST * model.prices(plan)[2]
    low, high = RATES
    for _ in range(RATE_STEPS):
        rate = math.sqrt(low * high)
        if model.prices(_quietest(model, alike, rate=rate))[2] <= longest:
            high = rate
        else:
            low = rate
    quiet = _quietest(model, alike, rate=high)
    menu = {}
    for name, options in alike.items():
        ms = SAME_MS * model.own(name, quiet[name])[2]
        menu[name] = tuple(s for s in options if model.own(name, s)[2] <= ms)
    restricted = dataclasses.replace(model, space=dataclasses.replace(model.space, menu=menu))
    fitted = squeeze(restricted, quiet, limit)
    if fitted is None or model.prices(fitted)[0] >= model.prices(plan)[0]:
        return None
    return fitted


def _quietest(model: NoiseModel, menu: Mapping[str, Sequence[Scheme]], *, rate: float) -> Schemes:
    """Return the scheme of each layer with the least noise, a millisecond counting as so much."""

    def price(name: str, scheme: Scheme) -> tuple[float, float]:
        noise, size, ms = model.own(name, scheme)
        return noise + rate * ms, size

    return {name: min(ss, key=functools.partial(price, name)) for name, ss in menu.items()}


def _decide(
    model: NoiseModel,
    plan: Schemes,
    name: str,
    noise: NDArray[np.float64],
    *,
    bin_bytes: float,
) -> tuple[_Step, NDArray[np.float64]]:
    """Decide one layer; return also the least noise for every number of bins saved so far."""
    now = model.own(name, plan[name])
    options = tuple(
        s
        for s in model.space.menu[name]
        if s != plan[name] and is_static(s) == is_static(plan[name])
    )
    after = noise.copy()
    chosen = np.full(BINS + 1, -1)
    before = np.arange(BINS + 1)
    have = np.arange(BINS + 1)
    for option, scheme in enumerate(options):
        own = model.own(name, scheme)
        bins = int((now[1] - own[1]) / bin_bytes)
        if bins <= 0:
            continue
        offered = noise + max(own[0] - now[0], 0.0)
        reached = np.minimum(have + bins, BINS)
        # several counts reach the last bin: the cheapest of them counts
        ends = have[reached == BINS]
        last = ends[[int(np.argmin(offered[ends]))]]
        inner = have[reached < BINS]
        for source, target in [(inner, reached[inner]), (last, reached[last])]:
            better = offered[source] < after[target]
            after[target[better]] = offered[source[better]]
            chosen[target[better]] = option
            before[target[better]] = source[better]
    return _Step(name, options, chosen, before), after

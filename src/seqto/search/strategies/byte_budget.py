"""The least noisy swaps that bring a plan under a byte limit: a multiple-choice knapsack."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqto.schemes.scheme import Scheme
from seqto.search.strategies.noise_model import NoiseModel, Schemes, is_static

BINS = 400  # that the bytes which must go are counted in


SAME_MS = 1.001  # of a layer's time: profiles of one kernel are one figure


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
    """Return the least noisy plan within the byte limit whose layers all are as fast as a plan's.

    Plans of least time pay no attention to bytes and noise that cost no time. None where the plan
    itself is the least noisy one.
    """
    menu = {}
    for name, scheme in plan.items():
        ms = SAME_MS * model.own(name, scheme)[2]
        alike = [
            s
            for s in model.space.menu[name]
            if is_static(s) == is_static(scheme) and model.own(name, s)[2] <= ms
        ]
        menu[name] = tuple(alike) or (scheme,)
    restricted = dataclasses.replace(model, space=dataclasses.replace(model.space, menu=menu))
    quiet = {n: min(ss, key=lambda s: model.own(n, s)[:2]) for n, ss in menu.items()}
    fitted = squeeze(restricted, quiet, limit)
    if fitted is None or model.prices(fitted)[0] >= model.prices(plan)[0]:
        return None
    return fitted


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

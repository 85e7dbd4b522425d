"""Plans just under byte limits: the fully quantized model's, and those of the front's gaps.

Sweeps reach the convex hull only; one large four-bit layer can leave a wide gap in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.search.space import Space
from seqto.search.strategies.byte_budget import squeeze
from seqto.search.strategies.front_points import hopeless_damage, price_point, spread_points
from seqto.search.strategies.noise_model import NoiseModel, Schemes
from seqto.search.strategies.targets import (
    byte_limit,
    damage_of,
    measured_trials,
    unknown_plans,
    unpriced_bytes,
)
from seqto.selection.pareto import front

Named = tuple[Plan, str]  # a plan and what it is called
GAPS = 3  # of the measured front that are filled


def int8_limit(space: Space, known: Mapping[str, Trial]) -> dict[str, float]:
    """Return a byte limit just under the fully quantized model, by its name."""
    return {"as small as int8": 0.999 * byte_limit(space, known)}


def gap_limits(known: Mapping[str, Trial]) -> dict[str, float]:
    """Return byte limits in the widest gaps of the measured front, by name."""
    gaps = _gaps(measured_trials(known))
    return {f"{(low + high) / 2e6:.2f} MB": (low + high) / 2 for low, high in gaps}


def plans_within(
    limits: Mapping[str, float],
    model: NoiseModel,
    plans: Sequence[Schemes],
    known: Mapping[str, Trial],
    float_model: Plan,
    *,
    timed: bool,
) -> list[Named]:
    """Return new plans within each of the byte limits, squeezed from other plans."""
    measured = measured_trials(known)
    if not measured:
        return []
    unpriced = unpriced_bytes(model, measured)
    squeezed = [
        (plan, note)
        for note, limit in limits.items()
        for plan in _squeeze_to(model, plans, limit - unpriced, timed=timed)
    ]
    return unknown_plans(squeezed, known, float_model)


def _squeeze_to(
    model: NoiseModel, plans: Sequence[Schemes], limit: float, *, timed: bool
) -> list[Schemes]:
    """Return up to three plans within the limit that are good in noise, and in time."""
    unique = {Plan.of(p).key: p for p in plans}
    squeezed = [squeeze(model, p, limit) for p in unique.values() if model.prices(p)[1] > limit]
    fitting = [p for p in squeezed if p is not None]
    if not fitting:
        return []
    points = [price_point(model.prices(p), timed=timed) for p in fitting]
    best = front([(p[0], *p[2:]) for p in points])
    chosen = spread_points([(points[i][0], *points[i][2:]) for i in best], 3 if timed else 1)
    return [fitting[best[i]] for i in chosen]


def _gaps(trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """Return the widest steps in size between useful trials of the measured front."""
    limit = hopeless_damage(trials)
    points = [(damage_of(t), float(t.size_bytes)) for t in trials if damage_of(t) < limit]
    sizes = sorted(points[i][1] for i in front(points)) if points else []
    steps = list(itertools.pairwise(sizes))
    return sorted(steps, key=lambda s: s[0] / s[1])[:GAPS]

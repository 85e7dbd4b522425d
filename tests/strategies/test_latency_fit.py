"""Profiled times are mended by what whole plans took."""

from __future__ import annotations

import numpy as np
from small_space import World

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import Latency
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.latency_fit import float_ms, with_fitted_latency
from seqto.search.strategies.noise_model import NoiseModel, fit


def a_space() -> Space:
    world = World(12)
    return world.space(boundary_ms=dict.fromkeys(world.tensor, 0.02))


def a_trial(number: int, plan: Plan, ratio: float) -> Trial:
    latency = Latency(1.0, 1.0, ratio, ratio, ratio, 100)
    return Trial(number, plan, size_bytes=1, latency=latency)


def plans(space: Space, count: int, *, seed: int) -> list[Plan]:
    rng = np.random.default_rng(seed)
    return [
        Plan.of({x.name: str(rng.choice(space.menu[x.name])) for x in space.layers})
        for _ in range(count)
    ]


def truth(model: NoiseModel, plan: Plan) -> float:
    """A device on which integers are slower than profiled and every change costs a layer's time."""
    space = model.space
    codes = scheme_by_layer(space, plan)
    own = sum(
        space.latency_of[(n, c)] * (1.4 if c.kind == "static" else 1.0) for n, c in codes.items()
    )
    changes = sum(model.changes(t, codes) for t in model.tensor)
    return (own + 0.3 * changes) / float_ms(space)


def error(model: NoiseModel, space: Space, true: NoiseModel) -> float:
    seen = plans(space, 30, seed=9)
    gaps = [
        model.prices(scheme_by_layer(space, p))[2] / float_ms(space) - truth(true, p) for p in seen
    ]
    return float(np.sqrt(np.mean(np.square(gaps))))


def test_times_of_plans_that_were_not_timed_get_better() -> None:
    space = a_space()
    model = fit(space, {})
    timed = [a_trial(i, p, truth(model, p)) for i, p in enumerate(plans(space, 15, seed=1))]
    assert error(with_fitted_latency(model, timed), space, model) < 0.4 * error(model, space, model)


def test_the_float_model_stays_as_fast_as_itself() -> None:
    space = a_space()
    model = fit(space, {})
    timed = [a_trial(i, p, 3.0 * truth(model, p)) for i, p in enumerate(plans(space, 9, seed=2))]
    found = with_fitted_latency(model, timed)
    assert (
        found.prices(scheme_by_layer(space, Plan()))[2]
        == model.prices(scheme_by_layer(space, Plan()))[2]
    )


def test_without_times_nothing_is_mended() -> None:
    space = a_space()
    model = fit(space, {})
    assert with_fitted_latency(model, []) is model
    strange = a_trial(0, Plan.of({space.layers[0].name: "static-s8-s8-tensor"}), 5.0)
    assert with_fitted_latency(model, [strange]) is model

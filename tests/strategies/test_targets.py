"""Plans that aim at what users ask for, in a world whose noise, bytes and times are known."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_space import MENU, World, drive

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Latency
from seqto.schemes.types import S8
from seqto.search.choices import type_may_saturate
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.byte_budget import quieten, squeeze
from seqto.search.strategies.closing_plans import SQUEEZED, bisect_picks
from seqto.search.strategies.frontier import Frontier
from seqto.search.strategies.goal_plans import goal_plans, region_of
from seqto.search.strategies.noise_model import NoiseModel, fit, is_static
from seqto.search.strategies.targets import (
    SMALLEST,
    byte_limit,
    damage_of,
    fast_target,
    float_plan,
    measured_trials,
    meet,
    quietest_within,
    target_plans,
)
from seqto.selection.expected_loss import Observation, bound
from seqto.selection.goal import Goal, find_answer, misses
from seqto.selection.objectives import OBJECTIVES
from seqto.selection.recommend import loss_curve

SEEDS = (0, 1, 2)
TOLERANCE = 0.008  # less than the plan with all layers static loses, in most of these worlds


@functools.cache
def searched(seed: int) -> tuple[World, NoiseModel, dict[str, Trial]]:
    """Return a world, the noise model that exact probes give, and the trials of a short search."""
    world = World(16, seed=seed)
    space = world.space()
    probes = {
        (x.name, c): world.damage(Plan.of({x.name: c}))
        for x in world.layers
        for c in MENU
        if not c.is_float
    }
    # a search that cares for another loss leaves what is asked here open
    trials = drive(world, Frontier(rounds=0, tolerance=0.2).search(space, seed=0))
    return world, fit(space, probes), {t.plan.key: t for t in trials}


def probable(trials: list[Trial]) -> dict[int, float]:
    curve = loss_curve(trials)
    return {
        t.number: bound(Observation(damage_of(t), t.loss.value, t.loss.samples), curve)
        for t in trials
        if t.loss
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_closing_in_on_the_fastest_plans_between_what_does_and_what_does_not(seed: int) -> None:
    world, model, known = searched(seed)
    trials = list(known.values())
    size = 1.01 * trials[0].size_bytes
    losses = probable(trials)
    fitting = [t for t in trials if t.latency and t.size_bytes <= size]
    doing = [t for t in fitting if losses[t.number] <= TOLERANCE]
    best = min(t.latency.ratio for t in doing if t.latency)
    worst = max(damage_of(t) for t in fitting)
    for plan, _ in closing_plans(model, known, "fast, between "):
        trial = world.trial(plan)
        assert plan.key not in known
        assert trial.size_bytes <= size
        assert damage_of(trial) < worst
        assert trial.latency is not None
        assert trial.latency.ratio <= best + 1 / 16  # one layer: the model knows times by profile


@pytest.mark.parametrize("seed", SEEDS)
def test_closing_in_on_the_smallest_plans_files_smaller_than_what_does(seed: int) -> None:
    world, model, known = searched(seed)
    losses = probable(list(known.values()))
    doing = [t for t in known.values() if losses[t.number] <= TOLERANCE]
    best = min(doing, key=lambda t: t.size_bytes)
    for plan, _ in closing_plans(model, known, "small, between "):
        assert plan.key not in known
        assert world.trial(plan).size_bytes < best.size_bytes


@pytest.mark.parametrize("seed", SEEDS)
def test_below_the_smallest_trial_the_plan_of_least_noise_is_tried(seed: int) -> None:
    """What will do, will do partly by luck: its own plan need not be a good one."""
    _, model, known = searched(seed)
    losses = probable(list(known.values()))
    doing = [t for t in known.values() if losses[t.number] <= TOLERANCE]
    smallest = min(doing, key=lambda t: t.size_bytes)
    tried = {plan.key for plan, _ in closing_plans(model, known, "")} | set(known)
    for share in SQUEEZED:
        limit = share * model.prices_of(smallest.plan)[1]
        plan = quietest_within(model, list(known.values()), limit)
        assert plan is not None
        assert Plan.of(plan).key in tried
        noise, size, _ = model.prices(plan)
        assert size <= limit
        for trial in known.values():
            own = squeeze(model, scheme_by_layer(model.space, trial.plan), limit)
            assert own is None or noise <= model.prices(own)[0]


@pytest.mark.parametrize("pick", ["fastest", "smallest"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_pick_is_squeezed_without_a_change_of_kernels(seed: int, pick: str) -> None:
    _, model, known = searched(seed)
    trials = {t.number: t for t in known.values()}
    for plan, note in closing_plans(model, known, f"{pick}, trial "):
        fastest = scheme_by_layer(model.space, trials[int(note.split()[2][:-1])].plan)
        squeezed = scheme_by_layer(model.space, plan)
        if note.endswith("less damage"):
            assert model.prices(squeezed)[0] < model.prices(fastest)[0]
        else:
            assert model.prices(squeezed)[1] < model.prices(fastest)[1]
        assert all(is_static(squeezed[x]) == is_static(fastest[x]) for x in fastest)


@pytest.mark.parametrize("seed", SEEDS)
def test_bytes_that_cost_no_time_are_spent_on_less_damage(seed: int) -> None:
    _, model, known = searched(seed)
    for share in (0.2, 0.5, 1.0):
        start = float_plan(model)
        limit = 0.6 * model.prices(start)[1]
        fastest = meet(
            model, fast_target(limit, unpriced=0.0), share * damage_of(next(iter(known.values())))
        )
        assert fastest is not None
        quiet = quieten(model, fastest, limit)
        if quiet is None:
            continue
        noise, size, ms = model.prices(quiet)
        before = model.prices(fastest)
        assert noise < before[0]
        assert size <= limit
        assert ms <= 1.021 * before[2]
        # nothing as fast and less noisy is left that fits
        for layer in model.space.layers:
            now = model.own(layer.name, quiet[layer.name])
            for scheme in model.space.menu[layer.name]:
                own = model.own(layer.name, scheme)
                alike = is_static(scheme) == is_static(quiet[layer.name]) and own[2] <= now[2]
                assert not (alike and own[0] < 0.99 * now[0] and own[1] <= now[1])


def test_closing_tries_what_is_as_fast_with_less_damage() -> None:
    runs = [searched(seed) for seed in SEEDS]
    notes = [
        note
        for _, model, known in runs
        for _, note in closing_plans(model, known, "fastest, trial ")
    ]
    assert any(note.endswith("less damage") for note in notes)


def test_closing_in_has_something_to_try() -> None:
    runs = [searched(seed) for seed in SEEDS]
    for note in ("fast, between ", "small, between ", "fastest, trial ", "smallest, trial "):
        assert any(closing_plans(model, known, note) for _, model, known in runs)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_further_round_goes_on_only_from_what_the_last_one_has_found(seed: int) -> None:
    _, model, known = searched(seed)
    losses = probable(list(known.values()))
    doing = [t for t in known.values() if losses[t.number] <= TOLERANCE]
    smallest = min(doing, key=lambda t: t.size_bytes)
    assert closing_plans(model, known, "", fresh=frozenset()) == []
    again = closing_plans(model, known, "", fresh={smallest.plan.key})
    assert all(f" {smallest.number}" in note for _, note in again)


def test_nothing_is_closed_in_on_where_all_will_do_or_none() -> None:
    _, model, known = searched(0)
    assert closing_plans(model, known, "fast, between ", tolerance=1.0) == []
    assert closing_plans(model, known, "", tolerance=0.0) == []
    assert closing_plans(model, {}, "") == []


def test_the_smallest_plan_uses_up_the_damage_that_it_may_do() -> None:
    """A large table with two choices leaves a gap in the hull that prices reach."""
    _, model, _ = searched(0)
    start = float_plan(model)
    most = meet(model, SMALLEST, math.inf)
    assert most is not None
    for share in (0.1, 0.3, 0.6):
        noise = share * model.prices(most)[0]
        plan = meet(model, SMALLEST, noise)
        assert plan is not None
        assert model.prices(plan)[0] <= noise
        # no other layer can be made smaller within what is left
        left = noise - model.prices(plan)[0]
        for name in start:
            now = model.own(name, plan[name])
            for scheme in model.space.menu[name]:
                own = model.own(name, scheme)
                smaller = now[1] - own[1] > 0.02 * model.prices(plan)[1]
                alike = is_static(scheme) == is_static(plan[name])
                assert not (alike and smaller and own[0] - now[0] < left)


def closing_plans(
    model: NoiseModel,
    known: dict[str, Trial],
    note: str,
    *,
    tolerance: float = TOLERANCE,
    fresh: Container[str] | None = None,
) -> list[tuple[Plan, str]]:
    plans = bisect_picks(model, known, Plan(), tolerance=tolerance, timed=True, fresh=fresh)
    return [(plan, name) for plan, name in plans if name.startswith(note)]


def test_targets_stay_within_their_byte_limits() -> None:
    world, model, known = searched(0)
    full = next(iter(known.values())).size_bytes
    plans = target_plans(model, known, Plan(), tolerance=TOLERANCE, timed=True)
    assert plans
    for plan, note in plans:
        limit = {"fast": 1.01 * full, "drop-in": full}.get(note.split()[0])
        assert limit is None or world.trial(plan).size_bytes <= limit


def portable_targets(known: dict[str, Trial]) -> list[Plan]:
    """Of a device with exact products: s8 does no damage, so the other targets take that."""
    _, model, _ = searched(0)
    weight = {
        k: 0.0 if k[1].weight is S8 and is_static(k[1]) else v for k, v in model.weight.items()
    }
    exact = dataclasses.replace(model, weight=weight)
    plans = target_plans(exact, known, Plan(), tolerance=TOLERANCE, timed=True)
    return [p for p, note in plans if note.startswith("portable")]


def test_some_targets_are_plans_of_portable_schemes_as_small_as_int8() -> None:
    world, _, known = searched(0)
    full = next(iter(known.values())).size_bytes
    plans = portable_targets(known)
    assert len(plans) > 1
    for plan in plans:
        assert not any(type_may_saturate(x, plan.scheme_of(x.name)) for x in world.layers)
        assert world.trial(plan).size_bytes <= full


def test_one_portable_target_is_enough_where_a_portable_trial_is_good() -> None:
    _, _, known = searched(0)
    (first, trial), *_ = known.items()
    measurement = dataclasses.replace(
        trial.measurements[EVALUATION],
        loss=dataclasses.replace(trial.measurements[EVALUATION].loss, value=0.0),
    )
    good = dataclasses.replace(
        trial,
        may_saturate=(),
        measurements={EVALUATION: measurement},
        latency=Latency(1.0, 1.0, 0.5, 0.49, 0.51, 20),
    )
    assert len(portable_targets({**known, first: good})) == 1


def test_no_portable_target_where_every_choice_is_portable() -> None:
    _, model, known = searched(0)
    space = model.space
    menu = {
        x.name: tuple(s for s in space.menu[x.name] if not type_may_saturate(x, s))
        for x in space.layers
    }
    only = dataclasses.replace(model, space=dataclasses.replace(space, menu=menu))
    plans = target_plans(only, known, Plan(), tolerance=TOLERANCE, timed=True)
    assert not [note for _, note in plans if note.startswith("portable")]


def test_where_the_fully_quantized_model_failed_floats_bytes_are_the_limit() -> None:
    """The same limit as the report's recommendations have; not the bytes of the next trial."""
    world, model, known = searched(0)
    space = dataclasses.replace(model.space, float_bytes=4 * sum(world.bytes.values()))
    full = space.fully_quantized.key
    assert byte_limit(space, known) == known[full].size_bytes
    failed = dataclasses.replace(known[full], error=Failure("load", "no"), measurements={})
    others = {k: t for k, t in known.items() if k != full}
    for left in (others, {full: failed, **others}):
        assert byte_limit(space, left) == space.float_bytes
        wider = dataclasses.replace(model, space=space)
        assert target_plans(wider, left, Plan(), tolerance=TOLERANCE, timed=True)


def test_a_search_goes_on_when_the_fully_quantized_model_fails() -> None:
    world = World(8)
    space = world.space(float_bytes=4 * sum(world.bytes.values()))
    search = Frontier(rounds=1).search(space, seed=0)
    ask, trials = next(search), []
    with contextlib.suppress(StopIteration):
        while True:
            answers = world.answer(ask)
            for i, trial in enumerate(answers):
                if trial.plan == space.fully_quantized and not ask.probe:
                    answers[i] = Trial(trial.number, trial.plan, error=Failure("load", "no"))
            trials += [] if ask.probe else answers
            ask = search.send(answers)
    assert trials[0].error is not None
    assert len(trials) > 10


GOALS = (
    {"max_size": 0.5},
    {"max_size": 0.6, "want": "fastest"},
    {"min_speedup": 1.2},
    {"min_speedup": 1.2, "want": "smallest"},
    {"max_size": 0.6, "min_speedup": 1.1, "want": "lowest-loss"},
    {"max_size": 0.7, "max_loss": 0.05, "want": "fastest"},
)


def search_of(goal: dict[str, Any], space: Space) -> dict[str, Any]:
    """Return the settings of a goal whose size is a share of the float model's."""
    size = goal.get("max_size")
    total = sum(space.bytes_of[x.name, space.menu[x.name][0]] for x in space.layers)
    return goal if size is None else {**goal, "max_size": size * total}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("given", GOALS, ids=str)
def test_goal_plans_are_priced_within_the_bounds_if_any_plan_can_be(
    given: dict[str, Any], seed: int
) -> None:
    _, model, known = searched(seed)
    goal = Goal.of(search_of(given, model.space))
    assert goal is not None
    plans = goal_plans(goal, model, known, Plan(), objectives=("loss", "size", "latency"))
    region = region_of(goal, model, measured_trials(known))
    reachable = any(
        region.excess(model.prices(scheme_by_layer(model.space, t.plan))) <= 0
        for t in known.values()
    )
    excess = [region.excess(model.prices(scheme_by_layer(model.space, p))) for p, _ in plans]
    if reachable and plans:
        assert min(excess) <= 1e-9


@pytest.mark.parametrize("given", GOALS, ids=str)
def test_a_search_with_a_goal_ends_nearer_to_it_or_better_within(given: dict[str, Any]) -> None:
    world = World(12, seed=1)
    space = world.space()
    settings = search_of(given, space)
    goal = Goal.of(settings)
    assert goal is not None
    aimed, plain = (
        drive(world, Frontier(tolerance=0.02, **more).search(space, seed=0))
        for more in (settings, {})
    )
    inside = [[t for t in trials if not misses(goal, t, None)] for trials in (aimed, plain)]
    shares = [len(kept) / len(all_) for kept, all_ in zip(inside, (aimed, plain), strict=True)]
    assert shares[0] >= shares[1], "more of the trials are of use"
    if inside[1] and goal.want:
        objectives = ("loss", "size", "latency")
        best = [figure(goal, trials, objectives) for trials in (aimed, plain)]
        assert best[0] <= 1.02 * best[1] + 1e-9, "and the answer is about as good, or better"


def figure(goal: Goal, trials: list[Trial], objectives: tuple[str, ...]) -> float:
    """Return what is wanted of the answer, else its loss."""
    found = find_answer(
        goal, trials, baseline=None, probable=lambda _trial: 0.0, objectives=objectives
    )
    chosen = next(t for t in trials if t.number == found.trial)
    value = OBJECTIVES[goal.want or "loss"].value(chosen, None)
    assert value is not None
    return value


def test_a_goal_that_nothing_keeps_gets_the_nearest_plans() -> None:
    _, model, known = searched(0)
    goal = Goal.of({"max_size": 10.0, "want": "fastest"})
    assert goal is not None
    assert goal_plans(goal, model, known, Plan(), objectives=("loss", "size", "latency"))

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_space import World, drive

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.schemes.scheme import FP32
from seqto.schemes.types import S4, S8
from seqto.search.strategies.evolve import Evolve
from seqto.search.strategies.front_points import spread_points
from seqto.search.strategies.frontier import Frontier, even_parts
from seqto.search.strategies.targets import damage_of
from seqto.selection import pareto


def volume(trials: list[Trial], world: World) -> float:
    floats = sum(4 * b for b in world.bytes.values())
    points = [(t.loss.value, float(t.size_bytes)) for t in trials if t.loss]
    return pareto.hypervolume(points, reference=(0.2, floats)) / (0.2 * floats)


def test_the_same_seed_asks_the_same_plans() -> None:
    runs = []
    for _ in range(2):
        world = World(12)
        drive(world, Frontier().search(world.space(), seed=3))
        runs.append([p.key for p in world.tried])
    assert runs[0] == runs[1]
    assert len(runs[0]) == len(set(runs[0])), "a plan was asked twice"


@pytest.mark.parametrize("objectives", [("loss", "size"), ("loss", "size", "latency")])
def test_the_ask_size_changes_no_plan(objectives: tuple[str, ...]) -> None:
    """Plans are decided a phase at a time; an ask is a part of a phase (docs/cluster.md)."""
    runs = []
    for ask in (1, 8, 64):
        world = World(12)
        drive(world, Frontier(objectives=objectives, ask=ask).search(world.space(), seed=3))
        runs.append([p.key for p in world.tried])
    assert runs[0] == runs[1] == runs[2]


def test_saturating_kernels_are_avoided_where_the_device_shows_them() -> None:
    world = World(12)
    trials = drive(world, Frontier().search(world.space(), seed=0))
    best = min(
        (t for t in trials if t.size_bytes < 1.1 * min(x.size_bytes for x in trials)), key=damage_of
    )
    assert not any(s.kind == "static" and s.weight is S8 for _, s in best.plan.schemes)


def test_the_front_beats_every_uniform_plan() -> None:
    world = World(12)
    trials = drive(world, Frontier().search(world.space(), seed=0))
    uniform = [t for t in trials if len({c for _, c in t.plan.schemes}) == 1]
    assert volume(trials, world) > volume(uniform, world)


def test_user_exclusions_stay_in_every_plan() -> None:
    world = World(6)
    space = world.space(fixed={"l2": FP32})
    menu = {**space.menu, "l2": (FP32,)}
    default = {k: v for k, v in space.default.items() if k != "l2"}
    fixed = type(space)(
        space.layers,
        menu,
        default,
        space.bytes_of,
        (),
        fixed={"l2": FP32},
        latency_of=space.latency_of,
    )
    for trial in drive(world, Frontier().search(fixed, seed=0)):
        assert "l2" not in dict(trial.plan.schemes)


def test_a_failing_scheme_does_not_end_the_search() -> None:
    from seqto.records import Failure

    world = World(6)
    honest = world.trial

    def trial(plan: Plan, *, probe: bool = False) -> Trial:
        made = honest(plan, probe=probe)
        if any(s.weight is S4 for _, s in plan.schemes):
            return Trial(made.number, plan, error=Failure("load", "no such kernel"))
        return made

    world.trial = trial  # type: ignore[method-assign]
    trials = drive(world, Frontier().search(world.space(), seed=0))
    assert sum(t.error is None for t in trials) > 8


def test_evolve_is_seeded_and_deterministic() -> None:
    keys = []
    for _ in range(2):
        world = World(8)
        strategy = Evolve(objectives=("loss", "size"), population=8, generations=3, seeds=4)
        trials = drive(world, strategy.search(world.space(), seed=5))
        keys.append([t.plan.key for t in trials])
        assert trials[0].plan.as_dict(), "frontier's anchors come first"
    assert keys[0] == keys[1]


@pytest.mark.parametrize("count", [1, 3, 10])
def test_spread_points_keep_the_extremes(count: int) -> None:
    points = [(10.0 ** (-i / 2), float(i)) for i in range(12)]
    chosen = spread_points(points, count)
    assert len(chosen) == len(set(chosen)) == count
    if count > 1:
        assert {0, 11} <= set(chosen)


def test_a_bias_is_corrected_only_where_there_is_one() -> None:
    for with_bias in (False, True):
        world = World(6)
        if with_bias:
            world.layers = tuple(dataclasses.replace(x, bias="b") for x in world.layers)
        drive(world, Frontier().search(world.space(), seed=0))
        assert any(p.correct_bias for p in world.tried) == with_bias


def test_with_a_time_budget_the_first_ask_gives_a_front() -> None:
    world = World(8)
    usual = next(Frontier().search(world.space(), seed=0))
    hurried = next(Frontier(max_minutes=1.0).search(world.space(), seed=0))
    assert usual.plans == hurried.plans[: len(usual.plans)]
    assert hurried.notes[len(usual.notes) :] == ("uniform fp16", "uniform weight-s8-channel")
    assert not any(plan.rounds_for_output for plan in hurried.plans)


def test_asks_are_of_even_size() -> None:
    """A small last ask would leave workers idle."""
    plans = [(Plan(), str(i)) for i in range(17)]
    assert [len(part) for part in even_parts(plans, 8)] == [8, 9]
    assert [len(part) for part in even_parts(plans[:10], 8)] == [10]
    assert [len(part) for part in even_parts(plans[:14], 8)] == [7, 7]
    assert even_parts([], 8) == []
    for size in (1, 3, 8, 64):
        assert [p for part in even_parts(plans, size) for p in part] == plans


def test_a_plan_as_small_as_int8_is_among_the_first_after_the_probes() -> None:
    world = World(12)
    notes: list[str] = []
    search = Frontier().search(world.space(), seed=3)
    asked = next(search)
    while not any(note.startswith("swept") for note in asked.notes):
        asked = search.send(world.answer(asked))
    notes = list(asked.notes)
    assert notes[0] == "as small as int8"

"""Layers that destroy every plan which quantizes them are found, alone and in pairs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_space import World, drive

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.search.strategies.culprits import culprits
from seqto.search.strategies.front_points import HOPELESS_LOSS
from seqto.search.strategies.frontier import Frontier
from seqto.search.strategies.uniform_plans import plain_uniform


class FatalWorld(World):
    """Some layers destroy the output where all of a group are quantized, or any of it."""

    def __init__(self, count: int, *, fatal: tuple[str, ...], alone: bool, seed: int = 0) -> None:
        super().__init__(count, seed=seed)
        self.fatal, self.alone = fatal, alone

    def damage(self, plan: Plan) -> float:
        quantized = [n for n in self.fatal if plan.scheme_of(n).kind == "static"]
        others = [n for n, s in plan.schemes if s.kind == "static" and n not in self.fatal]
        hit = bool(quantized) and (self.alone or bool(others))
        return super().damage(plan) + (1.0 if hit else 0.0)


def found_in(world: World) -> tuple[str, ...]:
    space = world.space()
    search = culprits(space.layers, plain_uniform(space), Plan())
    ask = next(search)
    try:
        while True:
            assert ask.probe
            ask = search.send(world.answer(ask))
    except StopIteration as end:
        return tuple(end.value)


@pytest.mark.parametrize("fatal", [("l39",), ("l0",), ("l7", "l31"), ("l38", "l39")])
def test_layers_that_are_fatal_alone_are_found_and_no_others(fatal: tuple[str, ...]) -> None:
    assert found_in(FatalWorld(40, fatal=fatal, alone=True)) == fatal


@pytest.mark.parametrize("fatal", [("l20", "l21"), ("l0", "l1"), ("l38", "l39")])
def test_neighbours_that_are_fatal_in_company_only_are_found(fatal: tuple[str, ...]) -> None:
    """Quantized alone they do no harm: only keeping them float amid the rest shows them."""
    assert set(fatal) <= set(found_in(FatalWorld(40, fatal=fatal, alone=False)))


def test_spread_damage_has_no_culprits() -> None:
    world = World(40)
    world.tensor = dict.fromkeys(world.tensor, 0.05)
    assert found_in(world) == ()


def test_the_search_recovers_from_a_fatal_layer() -> None:
    world = FatalWorld(20, fatal=("l19",), alone=True)
    trials: list[Trial] = drive(world, Frontier().search(world.space(), seed=0))
    useful = [t for t in trials if t.loss and t.loss.value <= HOPELESS_LOSS]
    assert len(useful) > 0.7 * len(trials), "most trials must not repeat the fatal one"
    static = [t for t in useful if sum(s.kind == "static" for _, s in t.plan.schemes) >= 15]
    assert static, "the other layers run as integers"
    assert all(t.plan.scheme_of("l19").kind != "static" for t in useful)

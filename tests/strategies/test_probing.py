"""Large models are probed by groups of layers; what hurts is still told layer by layer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small_space import World

from seqto.assembly.plan import Plan
from seqto.search.strategies.probing import MOST_SINGLE, probe


def probed(world: World) -> tuple[dict[tuple[str, str], float], int]:
    """The damage of each (layer, code), and how many runs it took."""
    search = probe(world.space(), Plan(), uniform_damage=1.0)
    runs = 0
    ask = next(search)
    try:
        while True:
            runs += len(ask.plans)
            ask = search.send(world.answer(ask))
    except StopIteration as end:
        return {(name, str(s)): d for (name, s), d in end.value.items()}, runs


def test_a_small_model_is_probed_layer_by_layer() -> None:
    world = World(12)
    found, runs = probed(world)
    assert runs == len(found)
    for (name, code), damage in found.items():
        alone = world.trial(Plan.of({name: _scheme(world, name, code)}), probe=True)
        assert damage == pytest.approx(alone.measurements["calibration"].damage)


def test_a_large_model_takes_few_probes_and_its_worst_layers_are_told_exactly() -> None:
    world = World(300)
    for name in ("l3", "l150", "l299"):
        world.rounding[name] = 0.5
    found, runs = probed(world)
    assert len(found) > MOST_SINGLE
    assert runs < 0.5 * len(found)
    for code in {code for _, code in found}:
        worst = sorted((d, name) for (name, c), d in found.items() if c == code)[-3:]
        assert {name for _, name in worst} == {"l3", "l150", "l299"}


def test_the_sum_of_all_layers_is_that_of_the_whole() -> None:
    world = World(300)
    world.tensor = dict.fromkeys(world.tensor, 0.0)
    found, _ = probed(world)
    code = "weight-s8-channel"
    total = sum(d for (_, c), d in found.items() if c == code)
    assert total == pytest.approx(sum(world.rounding.values()), rel=1e-6)


def _scheme(world: World, name: str, code: str) -> object:
    return next(s for s in world.space().menu[name] if str(s) == code)

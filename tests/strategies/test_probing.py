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
    """Return the damage of each (layer, code), and how many runs it took."""
    search = probe(world.space(), Plan(), uniform_damage=1.0)
    runs = 0
    ask = next(search)
    try:
        while True:
            runs += len(ask.plans)
            ask = search.send(world.answer(ask))
    except StopIteration as end:
        return {(name, str(s)): d for (name, s), d in end.value.items()}, runs


def test_a_small_model_is_probed_layer_by_layer_where_that_matters() -> None:
    world = World(12)
    found, runs = probed(world)
    grouped = {key for key in found if key[1] == "weight-s8-channel"}
    assert grouped
    assert runs < len(found)
    for (name, code), damage in found.items():
        if (name, code) in grouped:
            continue
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


def test_eight_bit_weights_that_hurt_are_told() -> None:
    world = World(12)
    world.rounding["l5"] = 0.5
    found, _ = probed(world)
    alone = world.trial(Plan.of({"l5": _scheme(world, "l5", "weight-s8-channel")}), probe=True)
    damage = alone.measurements["calibration"].damage
    assert found["l5", "weight-s8-channel"] == pytest.approx(damage, rel=0.2)
    others = [d for (name, c), d in found.items() if c == "weight-s8-channel" and name != "l5"]
    assert max(others) < 0.2 * damage


@pytest.mark.parametrize("bad", [0, 20])
def test_eight_hundred_layers_take_at_most_three_probes_for_two_layers(bad: int) -> None:
    world = World(800)
    uniform = sum(world.rounding.values()) + sum(world.tensor.values())
    for i in range(bad):
        world.rounding[f"l{40 * i}"] = 0.05 * uniform
    search = probe(world.space(), Plan(), uniform_damage=uniform)
    runs = 0
    ask = next(search)
    try:
        while True:
            runs += len(ask.plans)
            ask = search.send(world.answer(ask))
    except StopIteration:
        pass
    assert runs <= 1.5 * 800

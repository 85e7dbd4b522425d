"""The papers' procedure, without a device: fake trials in, plans out."""

from __future__ import annotations

import dataclasses

import pytest

from seqto.assembly.plan import Plan
from seqto.errors import ConfigError
from seqto.record.trial import Trial
from seqto.records import Failure
from seqto.search.space import Space
from seqto.search.strategies.stepwise import Stepwise
from seqto.testing.fakes import fake_trial, small_space


def asked(strategy: Stepwise, space: Space, *, seed: int = 0) -> list[tuple[Plan, str]]:
    """Return all steps, with answers from fake trials."""
    generator = strategy.search(space, seed=seed)
    found: list[tuple[Plan, str]] = []
    ask = next(generator)
    while True:
        found += list(zip(ask.plans, ask.notes, strict=True))
        try:
            ask = generator.send([fake_trial(space, p) for p in ask.plans])
        except StopIteration:
            return found


def excluded(plan: Plan, space: Space) -> set[str]:
    return {x.name for x in space.layers if x.op_type != "Output"} - {n for n, _ in plan.schemes}


def test_it_begins_fully_quantized_and_ends_with_nothing_quantized() -> None:
    space = small_space()
    steps = asked(Stepwise(stop_loss=-1.0), space)
    assert steps[0] == (Plan.of(space.default), "fully quantized")
    assert steps[-1][0] == Plan()
    assert len(steps) == len(space.ranking) + 1


def test_each_step_gives_back_one_more_layer_worst_first() -> None:
    space = small_space()
    plans = [p for p, _ in asked(Stepwise(stop_loss=-1.0), space)]
    worst = [row.layer for row in space.ranking]
    for count, plan in enumerate(plans):
        assert excluded(plan, space) == set(worst[:count])


def test_the_output_is_given_back_with_the_layer_that_makes_it() -> None:
    space = small_space()
    output = next(x for x in space.layers if x.op_type == "Output")
    maker = next(x.name for x in space.layers if x.output == output.inputs[0])
    for plan, _ in asked(Stepwise(stop_loss=-1.0), space):
        assert (plan.scheme_of(output.name).kind == "fp32") == (maker in excluded(plan, space))


def test_reverse_is_the_ranking_backwards() -> None:
    space = small_space()
    plans = [p for p, _ in asked(Stepwise(order="reverse", stop_loss=-1.0), space)]
    best = [row.layer for row in space.ranking][::-1]
    for count, plan in enumerate(plans):
        assert excluded(plan, space) == set(best[:count])


def test_random_orders_follow_the_seed() -> None:
    space = small_space(layers=9)
    runs = [asked(Stepwise(order="random", stop_loss=-1.0), space, seed=s) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][-1][0] == Plan()


def test_it_stops_when_the_loss_is_low_enough() -> None:
    space = small_space()
    losses = []
    for plan, _ in asked(Stepwise(stop_loss=0.04, batch=1), space):
        loss = fake_trial(space, plan).loss
        assert loss is not None
        losses.append(loss.value)
    assert losses[-1] <= 0.04
    assert all(loss > 0.04 for loss in losses[:-1])
    assert len(losses) < len(space.ranking) + 1


def test_what_the_user_excludes_is_never_quantized_nor_given_back() -> None:
    space = small_space()
    kept = dataclasses.replace(space, fixed={"conv0": "fp32"})
    steps = asked(Stepwise(stop_loss=-1.0), kept)
    assert all(p.scheme_of("conv0").kind == "fp32" for p, _ in steps)
    assert not any("conv0" in note for _, note in steps)


def test_failed_trials_do_not_stop_it() -> None:
    space = small_space()
    generator = Stepwise(batch=2).search(space, seed=0)
    ask, count = next(generator), 0
    try:
        while True:
            count += len(ask.plans)
            ask = generator.send([Trial(0, p, error=Failure("load", "no")) for p in ask.plans])
    except StopIteration:
        pass
    assert count == len(space.ranking) + 1


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="'best' is none of worst"):
        Stepwise(order="best")

"""Goals: the best trial within bounds, or the nearest and what it misses by."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.assembly.plan import Plan
from seqto.config import make
from seqto.errors import ConfigError
from seqto.record.trial import Trial
from seqto.records import EVALUATION, REPORT, Latency, Loss, Measurement
from seqto.selection.goal import Answer, Bound, Goal, find_answer, misses
from seqto.selection.recommend import pick_named


def measured(split: str, loss: float) -> Measurement:
    return Measurement(split, "x", Loss(loss, loss, loss, 300), damage=0.01)


def trial(number: int, *, loss: float, size: int, ratio: float = 1.0) -> Trial:
    return Trial(
        number,
        Plan.of({f"layer{number}": "fp16"}),
        size,
        measurements={EVALUATION: measured(EVALUATION, loss)},
        latency=Latency(ratio, ratio, ratio, ratio, ratio, 10),
    )


TRIALS = [
    trial(0, loss=0.0, size=300, ratio=1.0),
    trial(1, loss=0.008, size=120, ratio=0.9),
    trial(2, loss=0.009, size=150, ratio=0.7),
    trial(3, loss=0.05, size=80, ratio=0.5),
]


def answer(goal: Goal, trials: list[Trial] | None = None) -> Answer:
    return find_answer(
        goal,
        TRIALS if trials is None else trials,
        baseline=None,
        probable=lambda t: t.loss.value if t.loss else 1.0,
        objectives=("loss", "size", "latency"),
    )


def goal(**search: object) -> Goal:
    found = Goal.of(search)
    assert found is not None
    return found


def test_the_answer_is_the_best_in_what_is_wanted_within_the_bounds() -> None:
    assert answer(goal(want="smallest", max_loss=0.01)).trial == 1
    assert answer(goal(want="fastest", max_loss=0.01)).trial == 2
    assert answer(goal(want="smallest")).trial == 3
    assert answer(goal(want="lowest-loss", max_size=130)).trial == 1
    assert answer(goal(want="lowest-loss", min_speedup=1.3)).trial == 2
    assert answer(goal(max_size=100)).trial == 3  # the best by what is not bounded


def test_without_a_goal_nothing_is_asked_for() -> None:
    assert Goal.of({"max_loss": None, "tolerance": 0.02}) is None


def test_the_nearest_miss_says_by_how_much_and_which_bound_is_in_the_way() -> None:
    found = answer(goal(want="smallest", max_loss=0.01, max_size=100))
    assert not found.met
    assert found.nearest == 1
    assert [(m.setting, round(m.excess, 2)) for m in found.misses] == [("max_size", 0.2)]
    assert found.opened_by == ("max_loss", "max_size")


def test_a_trial_that_misses_on_the_report_split_makes_room_for_the_next() -> None:
    missed = {**TRIALS[1].measurements, REPORT: measured(REPORT, 0.02)}
    trials = [TRIALS[0], dataclasses.replace(TRIALS[1], measurements=missed), *TRIALS[2:]]
    assert answer(goal(want="smallest", max_loss=0.01), trials).trial == 2


def held_out(found: Trial, loss: float, samples: int) -> Trial:
    report = Measurement(REPORT, "x", Loss(loss, loss, loss, samples), damage=0.01)
    return dataclasses.replace(found, measurements={**found.measurements, REPORT: report})


def test_few_held_out_samples_do_not_outweigh_what_the_search_saw() -> None:
    lucky = held_out(trial(0, loss=0.05, size=100), 0.0, 30)
    assert [m.setting for m in misses(goal(max_loss=0.01), lucky, None)] == ["max_loss"]
    assert misses(goal(max_loss=0.046), lucky, None) == []


def test_many_held_out_samples_are_not_outweighed_by_a_lucky_search() -> None:
    lucky = held_out(trial(0, loss=0.0, size=100), 0.012, 350)
    assert [m.value for m in misses(goal(max_loss=0.01), lucky, None)] == [0.012]


def test_the_bound_that_costs_most_is_named() -> None:
    found = answer(goal(max_loss=0.01, max_size=20, min_speedup=1.05))
    assert found.costliest == "max_size"
    assert answer(goal(max_size=20)).costliest is None, "there is one only"


@pytest.mark.parametrize("setting", ["max_size", "min_speedup", "max_latency", "max_peak_memory"])
def test_a_bound_that_nothing_can_keep_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="can be kept by no model"):
        make({}, {f"search.{setting}": 0})


def test_a_bound_of_the_score_is_aimed_at_too() -> None:
    assert make({}, {"search.max_score_drop": "1%"}).search.tolerance == 0.01


def test_what_was_not_measured_is_no_answer_and_may_become_one() -> None:
    found = answer(goal(want="smallest", max_peak_memory=1e6))
    assert (found.met, found.pending) == (False, 3)
    assert found.misses[0].value is None


bounds = st.lists(
    st.one_of(
        st.builds(Bound, st.just("max_loss"), st.floats(0, 0.1)),
        st.builds(Bound, st.just("max_size"), st.floats(50, 400)),
        st.builds(Bound, st.just("min_speedup"), st.floats(0.5, 3)),
    ),
    max_size=3,
    unique_by=lambda b: b.setting,
)


@given(bounds, st.sampled_from(["size", "latency", "loss", None]))
def test_an_answer_keeps_every_bound_and_none_is_said_only_if_there_is_none(
    limits: list[Bound], want: str | None
) -> None:
    asked = Goal(want, tuple(limits))
    found = answer(asked)
    inside = [t.number for t in TRIALS if not misses(asked, t, None)]
    assert found.met == bool(inside)
    assert found.trial in inside if inside else found.nearest is not None


def test_bounds_are_written_with_their_units() -> None:
    search = make(
        {"search": {"max_loss": "1%", "max_size": "4MB", "max_latency": "8ms", "min_speedup": 1.3}}
    ).search
    assert (search.max_loss, search.max_size, search.max_latency) == (0.01, 4e6, 8.0)
    assert search.tolerance == 0.01  # the search aims where the bound is
    assert make({"search": {"max_loss": 0.01, "tolerance": 0.03}}).search.tolerance == 0.03


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("max_loss", "1", "1% or 0.01"),
        ("max_loss", "4MB", "1% or 0.01"),
        ("max_size", "big", "4MB"),
        ("max_latency", "8 minutes", "8ms"),
        ("want", "cheapest", "smallest"),
        ("max_loss", "150%", "between 0 and 1"),
    ],
)
def test_a_bound_that_is_not_understood_says_how_to_write_it(
    key: str, value: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        make({"search": {key: value}})


def test_a_goal_about_time_needs_timing() -> None:
    with pytest.raises(ConfigError, match=r"search\.objectives"):
        make({"search": {"want": "fastest", "objectives": ["loss", "size"]}})


@pytest.mark.parametrize("name", ["lowest loss", "lowest-loss", "Loss", "lowest_loss"])
def test_every_name_that_is_shown_can_be_asked_for(name: str) -> None:
    assert pick_named(name, {"balanced": 1, "loss": 2, "drop_in": 3}) == "loss"
    assert pick_named("drop-in", {"drop_in": 3}) == "drop_in"


def test_an_unknown_name_says_what_there_is() -> None:
    with pytest.raises(ConfigError, match="its picks are balanced, lowest loss"):
        pick_named("best", {"balanced": 1, "loss": 2})

"""Rivals and the order of samples, from typed trials alone."""

from __future__ import annotations

import dataclasses

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Latency, Loss, Measurement, RivalPoint
from seqto.selection.racing import (
    beats,
    by_graph,
    complete,
    hardest_first,
    no_slower,
    rivals,
    saw_all_samples,
)


def trial(number: int, same: list[bool], *, size: int = 100) -> Trial:
    """Return a trial by whether each answer is float's."""
    bits = np.packbits(np.array(same)).tobytes().hex()
    loss = same.count(False) / len(same)
    measured = Measurement(EVALUATION, "x", Loss(loss, loss, loss, len(same), bits))
    return Trial(number, Plan(), size, measurements={EVALUATION: measured})


WHOLE = trial(0, [True, False, True, False])
seen = WHOLE.measurements[EVALUATION]
STOPPED = dataclasses.replace(
    WHOLE, measurements={EVALUATION: dataclasses.replace(seen, stopped_early=True)}
)
FAILED = dataclasses.replace(WHOLE, error=Failure("run", "no"))
NOT_RUN = Trial(3, Plan())


def test_only_a_trial_that_ran_on_all_samples_is_complete() -> None:
    assert saw_all_samples(WHOLE)
    assert not any(map(saw_all_samples, (STOPPED, FAILED, NOT_RUN)))
    assert complete([STOPPED, WHOLE, FAILED, NOT_RUN]) == [(WHOLE, seen.loss)]


def test_rivals_are_bytes_and_summed_distance_of_what_nothing_beats() -> None:
    smaller, equal = trial(1, [True, True, True, False], size=7), trial(2, [True] * 4, size=200)
    found = rivals([WHOLE, STOPPED, smaller])
    assert [r.point for r in found] == [RivalPoint(7, 1.0)], "it beats the larger one in both"
    assert [r.point for r in rivals([WHOLE, equal])] == [RivalPoint(100, 2.0), RivalPoint(200, 0.0)]


def timed(found: Trial, ratio: float, graph: str = "") -> Trial:
    return dataclasses.replace(found, latency=Latency(1, 1, ratio, ratio, ratio, 9), graph=graph)


def test_where_time_counts_only_what_is_no_slower_is_a_rival() -> None:
    quick = timed(trial(1, [False] * 4, size=50), 0.5, "q")
    slow = timed(trial(2, [True] * 4, size=50), 1.0, "s")
    untimed = trial(3, [True] * 4, size=10)
    found = rivals([quick, slow, untimed], timed=True)
    assert [r.point for r in found] == [RivalPoint(50, 4.0), RivalPoint(50, 0.0)]
    assert no_slower(found, 0.4) == ()
    assert no_slower(found, 0.7) == (RivalPoint(50, 4.0),)
    assert no_slower(found, 1.0) == (RivalPoint(50, 0.0),), (
        "it beats the quick one where both are as fast"
    )
    assert no_slower(found, None) == (), "nothing is foretold"
    assert by_graph(found, [quick, slow]) == {
        "q": (RivalPoint(50, 4.0),),
        "s": (RivalPoint(50, 0.0),),
    }
    assert beats(no_slower(found, 1.0), 60, 0.0)
    assert not beats(no_slower(found, 1.0), 50, 0.0), "the same is not beaten"
    assert not beats(no_slower(found, 1.0), 40, 3.0), "smaller"


def test_a_portable_trial_is_beaten_by_portable_ones_only() -> None:
    exact = dataclasses.replace(trial(1, [False] * 4, size=60), may_saturate=())
    bound = dataclasses.replace(trial(2, [True] * 4, size=50), may_saturate=("conv",))
    found = rivals([exact, bound])
    assert {r.point for r in found} == {RivalPoint(60, 4.0, True), RivalPoint(50, 0.0)}
    points = no_slower(found, None)
    assert set(points) == {r.point for r in found}
    assert beats(points, 55, 1.0)
    assert not beats(points, 55, 1.0, portable=True)
    assert beats(points, 61, 4.0, portable=True)
    better = dataclasses.replace(bound, may_saturate=())
    assert [r.point for r in rivals([exact, better])] == [RivalPoint(50, 0.0, True)]


def test_close_calls_come_first_among_samples_that_are_changed_as_often() -> None:
    difficulty = np.array([-3.0, -1.0, -2.0, -0.5])
    assert hardest_first([], 4, difficulty).tolist() == [3, 1, 2, 0]
    changed = trial(1, [False, True, True, True])
    assert hardest_first([changed], 4, difficulty).tolist() == [0, 3, 1, 2]


def test_the_samples_that_most_trials_change_come_first() -> None:
    others = [trial(1, [True, False, True, True]), trial(2, [True, False, False, False])]
    assert hardest_first([WHOLE, *others], 4).tolist() == [1, 3, 2, 0]


def test_trials_of_another_number_of_samples_do_not_count() -> None:
    assert hardest_first([trial(1, [False] * 9)], 4).tolist() == [0, 1, 2, 3]

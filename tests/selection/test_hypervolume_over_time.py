"""The hypervolume against seconds: it grows, and counts a trial when all of it is known."""

from __future__ import annotations

import pytest

from seqto.assembly.plan import Plan
from seqto.record import events
from seqto.record.replay import RunState, replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Latency, Loss, Measurement
from seqto.selection.progress import MOST_STEPS, hypervolume_curve, thinned


def header(*objectives: str) -> events.RunStarted:
    search = {"objectives": list(objectives), "tolerance": 0.025}
    model = {"sha256": "ab"}
    return events.RunStarted(2, model, {}, {"search": search}, {}, {}, ())


BASELINE = events.BaselineMeasured(1000, {}, Latency(1, 1, 1, 1, 1, 9), graph="float")


def finished(
    number: int, loss: float, size: int, *, at_s: float, graph: str = "", stopped: bool = False
) -> events.TrialFinished:
    measured = Measurement(EVALUATION, "x", Loss(loss, loss, loss, 10), stopped_early=stopped)
    plan = Plan.of({f"n{number}": "fp16"})
    trial = Trial(number, plan, size, "", {EVALUATION: measured}, graph=graph)
    return events.TrialFinished(trial, at_s)


def test_the_share_of_the_box_grows_with_every_trial_that_is_not_dominated() -> None:
    state = replay(
        [
            header("loss", "size"),
            BASELINE,
            finished(0, 0.05, 500, at_s=1.0),
            finished(1, 0.06, 600, at_s=2.0),
            finished(2, 0.0, 900, at_s=3.0),
            finished(3, 0.0, 100, at_s=4.0, stopped=True),
        ]
    )
    assert hypervolume_curve(state) == [(1.0, 0.25), (3.0, 0.3)]


def test_where_time_counts_a_trial_is_known_when_it_is_timed() -> None:
    state = replay([header("loss", "size", "latency"), BASELINE, finished(0, 0.0, 500, at_s=1.0)])
    assert hypervolume_curve(state) == []
    state.apply(events.TrialTimed(0, Latency(1, 1, 0.5, 0.5, 0.5, 9), 5.0))
    assert hypervolume_curve(state) == [(5.0, 0.25)]
    state.apply(finished(1, 0.0, 400, at_s=7.0, graph="float"))
    assert hypervolume_curve(state) == [(5.0, 0.25)], "as fast as float: at the edge of the box"


def test_journals_without_seconds_and_empty_runs_have_no_curve() -> None:
    old = finished(0, 0.0, 500, at_s=1.0)
    assert hypervolume_curve(RunState()) == []
    state = replay([header("loss", "size"), BASELINE, events.TrialFinished(old.trial)])
    assert hypervolume_curve(state) == []


def test_a_long_curve_keeps_its_end() -> None:
    curve = [(float(i), i / 5000) for i in range(5000)]
    assert len(thinned(curve)) == MOST_STEPS
    assert thinned(curve)[-1] == curve[-1]


def test_seconds_go_on_in_a_later_call() -> None:
    state = replay([header("loss"), finished(0, 0.1, 5, at_s=12.5)])
    assert state.elapsed_s == pytest.approx(12.5)

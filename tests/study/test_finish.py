"""What follows the search, with a study that measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqto.assembly.plan import Plan
from seqto.record.events import (
    TIMING,
    BaselineMeasured,
    PlanProfiled,
    RunStarted,
    StepFailed,
    TrialFinished,
    TrialTimed,
)
from seqto.record.replay import RunState, replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Latency, Loss, Measurement
from seqto.selection.recommend import recommend
from seqto.study.finish import MAX_RETIMINGS, finish
from seqto.study.timing import Clock, Timing


def run(*objectives: str, losses: Sequence[float] = (0.0, 0.01, 0.02, 0.5)) -> RunState:
    """Return trials whose bytes fall as their losses rise; the last is beaten by none in size."""
    settings = {"search": {"objectives": list(objectives), "strategy": "frontier"}}
    state = replay(
        [
            RunStarted(2, {"sha256": "0"}, {}, settings, {}, {}, ()),
            BaselineMeasured(1000, {}),
        ]
    )
    for number, value in enumerate(losses):
        measured = Measurement(EVALUATION, "x", Loss(value, value, value, 100), damage=value)
        plan = Plan.of({f"layer{number}": "fp16"})
        trial = Trial(number, plan, 500 - number, measurements={EVALUATION: measured})
        state.apply(TrialFinished(trial))
    return state


@dataclass
class FakeRunner:
    """Profiles without running anything."""

    state: RunState
    profiled: list[str] = field(default_factory=list)

    def profile(self, plan: Plan, *, scheme: str) -> None:
        self.profiled.append(scheme)
        self.state.apply(PlanProfiled(plan.key, scheme, {}))


@dataclass
class FakeStudy:
    """Times each trial by a script: number → its ratios, one after the other."""

    state: RunState
    ratios: dict[int, Iterator[float]] = field(default_factory=dict)
    broken: tuple[int, ...] = ()
    timed: list[list[int]] = field(default_factory=list)
    confirmed: list[str] = field(default_factory=list)
    labelled: list[str] = field(default_factory=list)
    footprints: list[str] = field(default_factory=list)
    runner: FakeRunner = field(init=False)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.runner = FakeRunner(self.state)
        self.clock = Clock(None, Timing(group=3))  # type: ignore[arg-type]

    def time(self, keys: Sequence[str], *, final: bool, settling: bool = False) -> None:
        assert final
        numbers = [self.state.by_key[key].number for key in keys]
        self.timed.append(numbers)
        for key, number in zip(keys, numbers, strict=True):
            if number in self.broken:
                self.state.apply(StepFailed(TIMING, number, key, Failure("time", "no")))
                continue
            ratio = next(self.ratios.get(number, iter(())), 0.9)
            latency = Latency(ratio, ratio, ratio, ratio, ratio, 10)
            self.state.apply(TrialTimed(number, latency, final=settling))

    def is_settled(self, key: str) -> bool:
        known = self.state.has_final_timing(self.state.by_key[key])
        return known or self.state.has_failed(TIMING, key)

    def confirm(self, keys: Sequence[str]) -> None:
        self.confirmed = list(keys)

    def measure_labelled(self, keys: Sequence[str]) -> None:
        self.labelled = list(keys)

    def measure_footprints(self, keys: Sequence[str]) -> None:
        self.footprints = list(keys)


def finished(study: FakeStudy) -> FakeStudy:
    finish(study)  # type: ignore[arg-type]
    return study


def test_the_front_is_timed_and_the_picks_are_confirmed() -> None:
    study = finished(FakeStudy(run("loss", "size")))
    assert study.timed == [[0, 1, 2, 3]], "once: time is no objective"
    numbers = [study.state.by_key[key].number for key in study.confirmed]
    assert numbers == sorted(set(numbers))
    assert {0, 3} <= set(numbers), "the lowest loss and the smallest file"
    assert study.footprints == study.confirmed


def test_what_is_timed_already_is_not_timed_again_without_need() -> None:
    state = run("loss", "size")
    for number in range(4):
        state.apply(TrialTimed(number, Latency(1.0, 1.0, 0.5, 0.5, 0.5, 10)))
    assert finished(FakeStudy(state)).timed == [[]]


def test_selected_trials_are_timed_until_each_has_two_timings() -> None:
    study = finished(FakeStudy(run("loss", "size", "latency")))
    chosen = {study.state.by_key[key].number for key in study.confirmed}
    assert all(len(study.state.timings[number]) >= 2 for number in chosen)
    assert len(study.timed) <= 1 + MAX_RETIMINGS


def test_the_lucky_minimum_of_a_first_timing_does_not_last() -> None:
    ratios = {2: iter([0.2, 1.8, 1.8, 1.8]), 1: iter([0.6] * 9)}
    state = run("loss", "latency", losses=(0.0, 0.01, 0.02))
    study = finished(FakeStudy(state, ratios))
    latency = study.state.trials[2].latency
    assert latency is not None
    assert latency.ratio > 0.6, "the second timing counts"
    confirmed = [study.state.by_key[key].number for key in study.confirmed]
    assert 1 in confirmed


def test_what_comes_near_a_pick_is_timed_in_the_same_session() -> None:
    """Trial 2 was timed when the machine was free, trial 1, the faster one, when it was not."""
    ratios = {1: iter([0.62, 0.6, 0.6]), 2: iter([0.5, 0.8, 0.8])}
    state = run("loss", "size", "latency", losses=(0.0, 0.01, 0.011))
    study = finished(FakeStudy(state, ratios))
    together = next(numbers for numbers in study.timed[1:] if 2 in numbers)
    assert 1 in together
    assert recommend(study.state).picks["latency"] == 1


def test_a_trial_that_cannot_be_timed_does_not_keep_the_loop_running() -> None:
    study = finished(FakeStudy(run("loss", "size", "latency"), broken=(0, 1, 2, 3)))
    assert study.timed == [[0, 1, 2, 3]]


def test_the_best_is_profiled_once() -> None:
    study = finished(FakeStudy(run("loss", "size")))
    assert len(study.runner.profiled) == 1
    assert finished(FakeStudy(study.state)).runner.profiled == []


def test_a_run_without_trials_ends_quietly() -> None:
    study = finished(FakeStudy(run("loss", losses=())))
    assert (study.confirmed, study.runner.profiled) == ([], [])


def test_a_failed_trial_is_never_timed() -> None:
    state = run("loss", "size")
    failed: Any = Trial(9, Plan.of({"x": "fp16"}), 1, error=Failure("run", "no"))
    state.apply(TrialFinished(failed))
    assert all(9 not in numbers for numbers in finished(FakeStudy(state)).timed)

"""The loop of a study without processes: plans become trials by a rule."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from example_events import HEADER

from seqto.assembly.plan import Plan
from seqto.errors import JournalError
from seqto.record.events import TIMING, Event, StepFailed, TrialTimed
from seqto.record.journal import Journal, read_events
from seqto.record.replay import replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Latency, Loss, Measurement
from seqto.search.strategy import Ask
from seqto.study.runner import Round
from seqto.study.study import Budget, Study
from seqto.study.timing import Timing

PLANS = tuple(Plan.of({f"layer{i}": "fp16"}) for i in range(6))


@dataclass
class ReversedRunner:
    """Runs a batch in reverse, so that the last plan asked for is done first."""

    ran: list[str] = field(default_factory=list)
    foretold: dict[str, float | None] = field(default_factory=dict)
    racing: bool = False
    float_model: Any = field(default_factory=lambda: SimpleNamespace(plan=None))

    def run(self, work: Round) -> None:
        self.ran += work.plans
        self.foretold |= dict(work.not_below)
        assert work.probe or set(work.numbers) == set(work.plans), "each new trial gets a number"
        for key, (plan, note) in reversed(work.plans.items()):
            measured = Measurement(work.split, "x", Loss(0.1, 0.0, 0.2, 10), damage=0.1)
            number = work.numbers.get(key, -1)
            trial = Trial(number, plan, 100 - number, "", {work.split: measured}, note=note)
            work.conclude(trial)


@dataclass
class FakeClock:
    """Gives times from a list; a Failure is a plan that cannot be timed."""

    times: Iterator[float | Failure]
    timing: Timing = field(default_factory=Timing)
    asked: list[str] = field(default_factory=list)

    def measure(self, plans: Sequence[Plan], *, float_plan: Any) -> list[Latency | Failure]:
        self.asked += [p.key for p in plans]
        found = [next(self.times) for _ in plans]
        return [x if isinstance(x, Failure) else Latency(x, x, x, x, x, 10) for x in found]


@dataclass
class Asking:
    """A strategy that asks for batches and keeps the answers."""

    asks: tuple[Ask, ...]
    answers: list[list[Trial]] = field(default_factory=list)

    def search(self, space: Any, *, seed: int) -> Generator[Ask, Sequence[Trial], None]:
        for ask in self.asks:
            trials = yield ask
            self.answers.append(list(trials))


def study_in(
    folder: Path,
    *,
    times: Sequence[float | Failure] = (),
    max_trials: int | None = None,
    listener: Any = lambda _event: None,
) -> Study:
    nothing: Any = SimpleNamespace(position=0, numeric=(0,), name="y", count=1)
    journal = Journal.open(folder / "journal.jsonl")
    study = Study(
        journal,
        nothing,
        nothing,
        task=nothing,
        device=nothing,
        budget=Budget(max_trials=max_trials),
        timing=Timing(),
        rounding=nothing,
        listener=listener,
        judged=nothing,
    )
    study.clock = FakeClock(iter(times))  # type: ignore[assignment]
    study.runner = ReversedRunner()  # type: ignore[assignment]
    if study.state.header is None:
        study.append(HEADER)
    return study


def searched(study: Study, *asks: Ask) -> tuple[str, Asking]:
    strategy = Asking(asks)
    space: Any = None
    reason = study.search(strategy, space, seed=0)
    study.journal.close()
    return reason, strategy


def test_answers_come_in_the_order_of_asking_and_so_do_numbers(tmp_path: Path) -> None:
    reason, strategy = searched(
        study_in(tmp_path), Ask(PLANS[:3], ("a", "b", "c")), Ask(PLANS[2:5])
    )
    assert reason == "done"
    assert [[t.number for t in trials] for trials in strategy.answers] == [[0, 1, 2], [2, 3, 4]]
    assert [t.note for t in strategy.answers[0]] == ["a", "b", "c"]


def test_a_resumed_search_runs_only_what_is_not_recorded(tmp_path: Path) -> None:
    searched(study_in(tmp_path), Ask(PLANS[:3]))
    again = study_in(tmp_path)
    _, strategy = searched(again, Ask(PLANS[:3]), Ask(PLANS[3:4]))
    assert again.runner.ran == [PLANS[3].key]  # type: ignore[attr-defined]
    assert [t.number for t in strategy.answers[0]] == [0, 1, 2]
    assert strategy.answers[1][0].number == 3


def test_a_number_that_is_taken_is_not_given_again(tmp_path: Path) -> None:
    searched(study_in(tmp_path), Ask(PLANS[:2]))
    _, strategy = searched(study_in(tmp_path), Ask((PLANS[4], PLANS[0], PLANS[5])))
    assert [t.number for t in strategy.answers[0]] == [2, 0, 3]


def test_the_budget_of_trials_ends_the_search(tmp_path: Path) -> None:
    study = study_in(tmp_path, max_trials=4)
    reason, strategy = searched(study, Ask(PLANS[:3]), Ask(PLANS[3:6]))
    assert reason == "budget"
    assert len(strategy.answers) == 1
    assert sorted(study.state.trials) == [0, 1, 2, 3]


def test_probes_are_kept_apart_from_trials(tmp_path: Path) -> None:
    study = study_in(tmp_path, max_trials=1)
    reason, strategy = searched(study, Ask(PLANS[:3], probe=True), Ask(PLANS[:1]))
    assert reason == "done"
    assert [len(a) for a in strategy.answers] == [3, 1]
    assert set(study.state.probes) == {p.key for p in PLANS[:3]}
    assert set(study.state.trials) == {0}
    # weights are rounded for the calibration samples: on those they would look too good
    assert {s for t in study.state.probes.values() for s in t.measurements} == {EVALUATION}


def test_a_resumed_search_sees_the_first_timing(tmp_path: Path) -> None:
    study = study_in(tmp_path, times=[0.5, 0.6, 0.9])
    study.answer(Ask(PLANS[:2], latency=True))
    study.time([PLANS[0].key], final=True, settling=True)
    study.journal.close()
    settled = study.state.trials[0].latency
    assert settled is not None
    assert (settled.ratio, settled.ratio_low) == (0.9, 0.5), "the interval tells of both"
    recorded = [
        e.latency.ratio for e in read_events(study.journal.path) if isinstance(e, TrialTimed)
    ]
    assert recorded == [0.5, 0.6, 0.9], "as measured, not pooled"
    again = study_in(tmp_path)
    _, strategy = searched(again, Ask(PLANS[:2], latency=True))
    assert [t.latency.ratio for t in strategy.answers[0] if t.latency] == [0.5, 0.6]
    assert again.clock.asked == []  # type: ignore[attr-defined]
    assert again.is_settled(PLANS[0].key)
    assert not again.is_settled(PLANS[1].key)


def test_a_timing_that_fails_is_recorded_and_not_tried_again(tmp_path: Path) -> None:
    failure = Failure("time", "the clock is broken")
    study = study_in(tmp_path, times=[failure, 0.5])
    study.answer(Ask(PLANS[:2], latency=True))
    study.journal.close()
    assert study.state.failures == [StepFailed(TIMING, 0, PLANS[0].key, failure)]
    again = study_in(tmp_path, times=[0.1])
    again.answer(Ask(PLANS[:2], latency=True))
    assert again.clock.asked == []  # type: ignore[attr-defined]
    assert again.is_settled(PLANS[0].key)
    again.journal.close()


def test_state_journal_and_listener_agree_after_each_event(tmp_path: Path) -> None:
    path, seen = tmp_path / "journal.jsonl", list[Event]()

    def listener(event: Event) -> None:
        seen.append(event)
        assert read_events(path)[-1] == event, "the line is on the disk before anybody hears of it"

    study = study_in(tmp_path, times=[0.5] * 3, listener=listener)
    searched(study, Ask(PLANS[:3], latency=True))
    assert seen == read_events(path)
    assert study.state == replay(seen)


def test_an_event_that_cannot_be_written_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_in(tmp_path)
    before = replay(study.journal.events)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(JournalError, match="No space left"):
        study.answer(Ask(PLANS[:1]))
    monkeypatch.undo()
    assert study.state == before
    study.journal.close()


def test_a_trial_is_evaluated_on_the_split_that_the_search_may_see(tmp_path: Path) -> None:
    _, strategy = searched(study_in(tmp_path), Ask(PLANS[:1]))
    assert list(strategy.answers[0][0].measurements) == [EVALUATION]

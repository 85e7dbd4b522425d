"""The state of a run from its events, without any process."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from example_events import FAILURE, HEADER, LATENCY, MEASURED, ONE_OF_EACH, TRIAL
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.assembly.plan import Plan
from seqto.errors import JournalError
from seqto.record import events
from seqto.record.journal import Journal
from seqto.record.replay import RunState, pooled, read_state, replay
from seqto.records import REPORT, Latency

SLOWER = Latency(2.5, 3.0, 0.9, 0.8, 1.0, 60)
TRIAL_EVENT = events.TrialFinished(TRIAL)
OLD = dataclasses.replace(HEADER, schema=1)


def test_every_kind_of_event_reaches_the_state() -> None:
    state = RunState()
    held_out = events.TrialMeasured(3, dataclasses.replace(MEASURED, split=REPORT))
    for event in (*ONE_OF_EACH, held_out):
        if event == events.TrialMeasured(3, MEASURED):
            continue  # it repeats what the trial says
        before = repr(state)
        state.apply(event)
        assert repr(state) != before, event.tag


@settings(deadline=None, max_examples=40)
@given(order=st.permutations(ONE_OF_EACH[1:]), cut=st.integers(0, len(ONE_OF_EACH)))
def test_the_replay_of_a_prefix_is_the_state_at_that_time(
    order: list[events.Event], cut: int
) -> None:
    run = [HEADER, TRIAL_EVENT, *order]
    state = RunState()
    for event in run[:cut]:
        state.apply(event)
    assert state == replay(run[:cut])


def test_a_journal_cut_at_any_byte_gives_the_state_of_its_complete_events(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path) as journal:
        for event in ONE_OF_EACH:
            journal.append(event)
    content = path.read_bytes()
    ends = [i for i, byte in enumerate(content) if byte == ord("\n")]
    cuts = {0, 5, len(content)} | {end + d for end in ends for d in (-7, 0, 1) if end + d >= 0}
    for cut in sorted(cuts):
        path.write_bytes(content[:cut])
        assert read_state(path) == replay(ONE_OF_EACH[: content[:cut].count(b"\n")])


def test_the_settings_are_those_of_the_last_call() -> None:
    menu = events.Finding(events.MENU, "static is not offered")
    state = replay([HEADER, menu, events.RunEnded("done", 1.0)])
    assert state.settings == HEADER.settings
    assert state.status == "done"
    assert state.has_finding(events.MENU)
    state.apply(events.SettingsChanged({"search": {"tolerance": 0.5}}))
    assert state.settings == {"search": {"tolerance": 0.5}}
    assert state.status == "running"
    assert not state.has_finding(events.MENU), "another call may be offered other schemes"


def test_timings_are_pooled_in_replay_from_format_2_on() -> None:
    run = [HEADER, TRIAL_EVENT, events.TrialTimed(3, LATENCY), events.TrialTimed(3, SLOWER)]
    state = replay(run)
    assert state.trials[3].latency == pooled(LATENCY, SLOWER)
    assert state.timings == {3: [LATENCY, SLOWER]}
    assert state.first_timing(3) == LATENCY
    assert state.by_key[TRIAL.plan.key] is state.trials[3]


def test_in_format_1_the_last_timing_is_pooled_already_and_stays_so() -> None:
    state = replay([OLD, TRIAL_EVENT, events.TrialTimed(3, LATENCY)])
    event = state.timing_event(3, SLOWER)
    assert event.latency == pooled(LATENCY, SLOWER), "written as 0.1.0 reads it"
    state.apply(event)
    assert state.trials[3].latency == pooled(LATENCY, SLOWER)
    assert state.first_timing(3) == LATENCY


def test_in_format_2_a_timing_is_recorded_as_it_was_measured() -> None:
    state = replay([HEADER, TRIAL_EVENT, events.TrialTimed(3, LATENCY)])
    assert state.timing_event(3, SLOWER) == events.TrialTimed(3, SLOWER)


def test_pooling_weights_by_runs_and_joins_the_intervals() -> None:
    found = pooled(LATENCY, SLOWER)
    assert found.ratio == pytest.approx((20 * 0.5 + 60 * 0.9) / 80)
    assert (found.ratio_low, found.ratio_high, found.runs) == (0.4, 1.0, 80)


def test_a_later_measurement_joins_its_trial() -> None:
    held_out = dataclasses.replace(MEASURED, split=REPORT)
    state = replay([HEADER, TRIAL_EVENT, events.TrialMeasured(3, held_out)])
    assert state.trials[3].measurements == {**TRIAL.measurements, REPORT: held_out}


def test_trials_are_sorted_by_number_whatever_finished_first() -> None:
    first = dataclasses.replace(TRIAL, number=1, plan=Plan())
    state = replay([HEADER, TRIAL_EVENT, events.TrialFinished(first)])
    assert [t.number for t in state.numbered] == [1, 3]


def test_a_failed_step_is_known_by_step_and_plan() -> None:
    state = replay([events.StepFailed(events.TIMING, 3, "k", FAILURE)])
    assert state.has_failed(events.TIMING, "k")
    assert not state.has_failed(events.TIMING, None)
    assert not state.has_failed(events.PROFILE, "k")


def test_a_figure_of_a_trial_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    lines = [HEADER.to_json(), events.TrialTimed(9, LATENCY).to_json()]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(JournalError, match=r"journal\.jsonl.*trial 9"):
        read_state(path)


def test_a_run_that_was_interrupted_before_its_header_can_begin() -> None:
    state = replay([events.RunEnded("interrupted", 0.1), HEADER])
    assert state.header == HEADER
    assert state.status == "running"


def test_memory_and_time_to_load_belong_to_the_timing_of_their_trial() -> None:
    run = [HEADER, TRIAL_EVENT, events.TrialTimed(3, LATENCY)]
    state = replay([*run, events.FootprintMeasured(3, 2_000_000, 12.5)])
    latency = state.trials[3].latency
    assert latency is not None
    assert (latency.peak_memory_bytes, latency.load_ms) == (2_000_000, 12.5)
    assert latency.ratio == LATENCY.ratio
    state.apply(events.TrialTimed(3, SLOWER))
    again = state.trials[3].latency
    assert again is not None
    assert again.load_ms == 12.5, "a second timing keeps it"


def _trial_with(graph: str, *, number: int) -> events.TrialFinished:
    plan = Plan.of({f"layer{number}": "fp16"})
    return events.TrialFinished(
        dataclasses.replace(TRIAL, number=number, plan=plan, graph=graph, latency=None)
    )


def test_trials_with_the_same_graph_share_their_timings() -> None:
    before = [_trial_with("g", number=1), _trial_with("h", number=2)]
    state = replay([HEADER, *before, events.TrialTimed(1, LATENCY)])
    state.apply(_trial_with("g", number=3))
    assert state.trials[3].latency == state.trials[1].latency == LATENCY
    assert state.trials[2].latency is None
    state.apply(events.TrialTimed(3, SLOWER))
    assert state.trials[1].latency == state.trials[3].latency == pooled(LATENCY, SLOWER)
    assert state.first_timing(1) == state.first_timing(3) == LATENCY


def test_memory_and_load_time_are_not_shared_with_the_same_graph() -> None:
    state = replay([HEADER, _trial_with("g", number=1), events.TrialTimed(1, LATENCY)])
    state.apply(events.FootprintMeasured(1, 5_000_000, 3.0))
    state.apply(_trial_with("g", number=2))
    state.apply(events.TrialTimed(2, SLOWER))
    first, second = state.trials[1].latency, state.trials[2].latency
    assert first is not None
    assert second is not None
    assert (first.peak_memory_bytes, first.load_ms) == (5_000_000, 3.0)
    assert (second.peak_memory_bytes, second.load_ms) == (None, None)
    assert first.ratio == second.ratio


def test_a_trial_that_runs_floats_graph_is_as_fast_as_float() -> None:
    float_latency = Latency(2.0, 2.5, 1.0, 1.0, 1.0, 40)
    baseline = events.BaselineMeasured(9, {}, float_latency, graph="f")
    state = replay([HEADER, baseline, _trial_with("f", number=1)])
    found = state.trials[1].latency
    assert found is not None
    assert found.ratio == 1.0
    assert state.is_float_graph(state.trials[1])
    assert not state.is_float_graph(replay([HEADER, TRIAL_EVENT]).trials[3])

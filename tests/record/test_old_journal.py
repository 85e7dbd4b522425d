"""A journal that version 0.1.0 wrote (format 1) is read as that version read it."""

from __future__ import annotations

import shutil
from pathlib import Path

from seqto.record.events import TrialTimed
from seqto.record.journal import Journal
from seqto.record.replay import pooled, read_state, replay
from seqto.records import Latency
from seqto.report.view import build_report

JOURNAL = Path(__file__).parent / "journal_0_1_0.jsonl"


def test_its_report_is_the_one_of_that_version() -> None:
    report = build_report(read_state(JOURNAL))
    assert report["front"] == [6, 7]
    assert report["recommended"] == {
        **dict.fromkeys(("balanced", "loss", "latency", "drop_in", "small", "fast"), 6),
        "size": 7,
    }
    assert report["fully_quantized"] == 0
    assert report["status"] == "budget"
    assert [t["latency_ms"]["ratio"] for t in report["trials"][5:8]] == [1.4463, 0.986, 0.9962]
    assert report["environment"]["seqto"] == "0.1.0"
    assert report["int8_products"] is None


def test_the_second_timing_is_the_pooled_one() -> None:
    state = read_state(JOURNAL)
    assert [t.runs for t in state.timings[6]] == [10, 55]
    assert state.trials[6].latency == state.timings[6][1]
    assert state.first_timing(6) == state.timings[6][0]


def test_a_run_of_that_version_goes_on_in_its_own_format(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    shutil.copy(JOURNAL, path)
    again = Latency(0.01, 0.01, 0.5, 0.5, 0.5, 55)
    with Journal.open(path) as journal:
        state = replay(journal.events)
        before = state.trials[6].latency
        assert before is not None
        event = state.timing_event(6, again)
        journal.append(event)
    assert event == TrialTimed(6, pooled(before, again))
    assert read_state(path).trials[6].latency == pooled(before, again)

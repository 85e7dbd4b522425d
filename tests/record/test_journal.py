from __future__ import annotations

import dataclasses
import errno
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from example_events import HEADER, TRIAL
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.errors import JournalError
from seqto.record.events import Event, Finding, RunEnded, TrialFinished
from seqto.record.journal import Journal, read_events

RECORDS: list[Event] = [
    dataclasses.replace(HEADER, model={"name": "größe/模型 🙂", "sha256": ""}),
    TrialFinished(dataclasses.replace(TRIAL, seconds=0.1 + 0.2)),
    RunEnded("done", 1e-300),
]
AFTER = Finding("after", "the cut")


def _write(path: Path, records: list[Event]) -> None:
    with Journal.open(path) as journal:
        for record in records:
            journal.append(record)


def test_what_is_appended_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    _write(path, RECORDS[:2])
    with Journal.open(path) as journal:
        assert journal.events == RECORDS[:2]
        journal.append(RECORDS[2])
        assert journal.events == RECORDS
    assert read_events(path) == RECORDS
    assert path.read_text().splitlines() == [
        json.dumps(record.to_json(), separators=(",", ":")) for record in RECORDS
    ]


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_journal_cut_at_any_byte_keeps_complete_records_and_still_appends(
    tmp_path: Path, step: int
) -> None:
    whole = tmp_path / "whole.jsonl"
    _write(whole, RECORDS)
    content = whole.read_bytes()
    ends = [i for i, byte in enumerate(content) if byte == ord("\n")]
    at_ends = {end + shift for end in ends for shift in (-1, 0, 1, 2) if end + shift < len(content)}
    for cut in sorted({*range(0, len(content), step), *at_ends, len(content)}):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(content[:cut])
        complete = RECORDS[: content[:cut].count(b"\n")]
        assert read_events(path) == complete
        assert path.read_bytes() == content[:cut], "a reader changes nothing"
        with Journal.open(path) as journal:
            assert journal.events == complete
            journal.append(AFTER)
        assert read_events(path) == [*complete, AFTER]


undecodable = st.sampled_from(["\udc80", "\udcff"])  # how Python reads odd file names
texts = st.text(st.characters(exclude_categories=["Cs"]) | undecodable, max_size=8)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=60)
@given(figures=st.lists(st.dictionaries(texts, values, max_size=4), max_size=5), data=st.data())
def test_any_records_cut_anywhere_survive_and_still_append(
    figures: list[dict[str, Any]], data: st.DataObject
) -> None:
    records = [
        RECORDS[0],
        *(Finding("any", "x", (), row) for row in figures),
    ]  # without its header a torn file cannot be told to be ours
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.jsonl"
        _write(path, records)
        content = path.read_bytes()
        assert records == read_events(path)
        path.write_bytes(content[: data.draw(st.integers(0, len(content)), label="cut")])
        kept = read_events(path)
        assert kept == records[: len(kept)]
        _write(path, records)
        assert read_events(path) == [*kept, *records]


@pytest.mark.parametrize("tail", [b'{"event": "tr\n', b"\0" * 40 + b"\n", b"12\n", b"\xff\n"])
def test_a_broken_last_line_is_cut_off_even_with_its_newline(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, RECORDS)
    path.write_bytes(path.read_bytes() + tail)
    assert read_events(path) == RECORDS
    _write(path, RECORDS[:1])
    assert read_events(path) == [*RECORDS, RECORDS[0]]


@pytest.mark.parametrize("text", [b"notes\n", b"notes", b"12\n", b'{"event":"login"', b"\0\0x"])
def test_a_file_without_a_record_of_ours_is_refused_and_not_emptied(
    tmp_path: Path, text: bytes
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(text)
    for reader in (read_events, Journal.open):
        with pytest.raises(JournalError):
            reader(path)
    assert path.read_bytes() == text
    assert os.listdir(tmp_path) == ["journal.jsonl"]


@pytest.mark.parametrize("text", [b"", b"\0" * 4096, b'{"event":"header","sch\n', b'{"ev\0\0'])
def test_a_torn_first_record_is_cut_off(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(text)
    _write(path, RECORDS)
    assert read_events(path) == RECORDS


def test_a_broken_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    _write(path, RECORDS)
    first, _, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + b'{"event": NaN}\n' + last)
    before = path.read_bytes()
    for reader in (read_events, Journal.open):
        with pytest.raises(JournalError, match=r"line 2 of .*journal\.jsonl"):
            reader(path)
    assert path.read_bytes() == before
    assert not path.with_suffix(".lock").exists(), "a refused open gives the lock back"


def test_numbers_that_json_has_no_word_for_become_null_at_once(tmp_path: Path) -> None:
    figures = {"a": math.nan, "b": [math.inf, (1.5, -math.inf)], "c": {"d": 5e-324}}
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(RECORDS[0])
        journal.append(Finding("x", "y", (), figures))
        nulls = Finding("x", "y", (), {"a": None, "b": [None, [1.5, None]], "c": {"d": 5e-324}})
        assert journal.events == [RECORDS[0], nulls] == read_events(journal.path)
    assert math.isnan(figures["a"]), "the caller's record is left alone"  # type: ignore[arg-type]


def test_events_cannot_be_changed_from_outside(tmp_path: Path) -> None:
    event = Finding("x", "y", (), {"layers": ["a"]})
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(event)
        event.figures["layers"].append("b")
        journal.events.clear()
        assert journal.events == [Finding("x", "y", (), {"layers": ["a"]})]


def test_a_record_that_is_not_json_is_a_bug_and_leaves_no_trace(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(RECORDS[0])
        with pytest.raises(TypeError):
            journal.append(Finding("x", "y", (), {"value": object()}))
        journal.append(RECORDS[1])
        assert read_events(journal.path) == journal.events == RECORDS[:2]


def test_a_second_writer_in_this_process_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal.open(path), pytest.raises(JournalError, match=f"pid {os.getpid()}.* is writing"):
        Journal.open(path)
    with Journal.open(path):
        pass
    assert os.listdir(tmp_path) == ["journal.jsonl"]


def test_another_process_is_refused_with_the_pid_and_a_kill_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    code = (
        "import sys, time; from seqto.record.journal import Journal\n"
        "from seqto.record.events import RunEnded\n"
        "j = Journal.open(sys.argv[1])\n"
        "j.append(RunEnded('done', 1.0)); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(JournalError, match=rf"another seqto process \(pid {other.pid}\)"):
            Journal.open(path)
        assert read_events(path) == [RunEnded("done", 1.0)], "readers need no lock"
        other.kill()
    with Journal.open(path) as journal:
        assert journal.events == [RunEnded("done", 1.0)]


def _full_disk(_descriptor: int, *_rest: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("broken", ["write", "fsync"])
def test_a_full_disk_is_one_clear_line_and_the_journal_goes_on_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(RECORDS[0])
        before = journal.path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, broken, _full_disk)
            with pytest.raises(JournalError, match="No space left on device; free some space"):
                journal.append(RECORDS[1])
        assert journal.path.read_bytes() == before
        assert journal.events == RECORDS[:1]
        journal.append(RECORDS[2])
        assert read_events(journal.path) == journal.events == [RECORDS[0], RECORDS[2]]


@pytest.mark.parametrize("end", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_half_a_record_that_could_not_be_taken_back_is_cut_by_the_next_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: BaseException
) -> None:
    write, calls = os.write, iter(range(9))

    def half(descriptor: int, line: memoryview) -> int:
        if next(calls):
            raise end
        return write(descriptor, line[: len(line) // 2])

    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(RECORDS[0])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            patch.setattr(os, "ftruncate", _full_disk)
            with pytest.raises((JournalError, KeyboardInterrupt)):
                journal.append(RECORDS[1])
        assert b'"trial"' in journal.path.read_bytes(), "the half is there"
        assert read_events(journal.path) == RECORDS[:1]
        journal.append(RECORDS[2])
        assert read_events(journal.path) == journal.events == [RECORDS[0], RECORDS[2]]


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        monkeypatch.setattr(os, "write", lambda fd, line: write(fd, line[:3]))
        journal.append(RECORDS[0])
        assert read_events(journal.path) == RECORDS[:1]


def test_places_that_cannot_hold_a_journal_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "journal.jsonl").mkdir()
    for place in (tmp_path / "file" / "journal.jsonl", tmp_path / "journal.jsonl"):
        with pytest.raises(JournalError, match="cannot write"):
            Journal.open(place)
    with pytest.raises(JournalError, match="cannot read"):
        read_events(tmp_path / "journal.jsonl")
    with pytest.raises(JournalError, match="no journal at"):
        read_events(tmp_path / "nowhere" / "journal.jsonl")

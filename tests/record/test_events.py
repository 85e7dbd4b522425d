"""Lines of a journal: what is an event, and what is refused."""

from __future__ import annotations

import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from example_events import HEADER, ONE_OF_EACH

from seqto.errors import JournalError
from seqto.record import events
from seqto.record.journal import Journal, read_events
from seqto.records import LayerError


def test_there_is_an_example_of_each_kind() -> None:
    assert {type(e) for e in ONE_OF_EACH} == set(events.KINDS.values())


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda e: e.tag)
def test_an_event_comes_back_from_its_json(event: events.Event) -> None:
    data = json.loads(json.dumps(event.to_json()))
    assert data["event"] == event.tag
    assert events.from_json(data) == event


WRONG: dict[str, tuple[str, Any]] = {
    "schema": ("header", True),
    "settings": ("header", []),
    "settings.search.objectives": ("header", "loss"),
    "settings.search.tolerance": ("header", "much"),
    "layers": ("header", [{"name": "conv"}]),
    "model": ("header", None),
    "batch": ("tuning", True),
    "accuracy": ("baseline", {"evaluation": "good"}),
    "size_bytes": ("baseline", 1e23),
    "ranking": ("analysis", [{"layer": 3}]),
    "refused": ("tried", [["conv"]]),
    "layers_ms": ("profile", {"conv": "fast"}),
    "trial": ("trial", None),
    "trial.number": ("trial", -1),
    "trial.plan": ("trial", []),
    "trial.size_bytes": ("trial", 1.5),
    "trial.measurements": ("trial", {"evaluation": 1e23}),
    "trial.measurements.evaluation.loss.value": ("trial", math.inf),
    "trial.error": ("trial", {"stage": "run"}),
    "number": ("latency", [0]),
    "latency": ("latency", "[/b]"),
    "latency.ratio": ("latency", None),
    "measurement": ("measurement", {"split": "report", "device": "x", "loss": None}),
    "measurement.loss.samples": ("measurement", False),
    "failure.ops": ("failure", 3),
    "kind": ("finding", 7),
    "message": ("finding", "half \ud800 a sign"),
    "figures": ("finding", {"deep": ["\udfff"]}),
    "reason": ("end", None),
}


@pytest.mark.parametrize("field", WRONG, ids=str)
def test_a_line_with_a_wrong_field_is_one_error_that_names_file_line_and_field(
    field: str, tmp_path: Path
) -> None:
    tag, value = WRONG[field]
    data = next(copy.deepcopy(e.to_json()) for e in ONE_OF_EACH if e.tag == tag)
    *parents, last = field.split(".")
    target = data
    for name in parents:
        target = target[name]
    target[last] = value
    _refused(tmp_path, data, mention=last)


@pytest.mark.parametrize("event", ONE_OF_EACH, ids=lambda e: e.tag)
def test_a_line_without_its_first_field_is_refused(event: events.Event, tmp_path: Path) -> None:
    data = event.to_json()
    required = {"tried": None}.get(event.tag, next(k for k in data if k != "event"))
    if required is None:
        pytest.skip("all its fields have defaults, for journals of 0.1.0")
    del data[required]
    _refused(tmp_path, data, mention=required)


@pytest.mark.parametrize("data", [{}, {"event": None}, {"event": ["trial"]}, {"event": "login"}])
def test_a_line_of_an_unknown_kind_is_refused(data: dict[str, Any], tmp_path: Path) -> None:
    _refused(tmp_path, data, mention="event")


def _refused(folder: Path, data: dict[str, Any], *, mention: str) -> None:
    path = folder / "journal.jsonl"
    line = json.dumps(data).replace("Infinity", "1e999")
    path.write_text(json.dumps(HEADER.to_json()) + "\n" + line + "\n")
    before = path.read_bytes()
    for reader in (read_events, Journal.open):
        with pytest.raises(JournalError) as error:
            reader(path)
        message = str(error.value)
        assert message.startswith(f"line 2 of {str(path)!r} is no journal record (")
        assert mention in message
        assert "\n" not in message
        message.encode()
    assert path.read_bytes() == before


def test_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    data = {**HEADER.to_json(), "schema": 3, "seqto": "9.1", "layers": "in another form"}
    path.write_text(json.dumps(data) + "\n")
    with pytest.raises(JournalError, match=r"format 3 of seqto 9\.1.* up to 2: update seqto"):
        read_events(path)


def test_an_event_that_is_written_is_returned_as_it_will_be_read(tmp_path: Path) -> None:
    event = events.LayersRanked(8, 0.5, (LayerError("c", 0.1, 0.2, 0.3, 20.0, math.inf, 0),))
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        journal.append(HEADER)
        recorded = journal.append(event)
        assert isinstance(recorded, events.LayersRanked)
        assert recorded.ranking[0].xmodel_sqnr_db is None
        assert read_events(journal.path) == [HEADER, recorded] == journal.events


def test_a_deeply_nested_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    depth = 10 * sys.getrecursionlimit()
    nested = '{"event":"finding","figures":' + '{"a":' * depth + "1" + "}" * depth + "}\n"
    end = json.dumps(events.RunEnded("done", 1.0).to_json()) + "\n"
    path.write_text(json.dumps(HEADER.to_json()) + "\n" + nested + end)
    with pytest.raises(JournalError, match="line 2"):
        read_events(path)

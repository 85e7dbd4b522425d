"""A journal in which one value was changed is refused in one line, or all reports are made."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import rich.console
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from seqto.errors import JournalError
from seqto.record.journal import finite
from seqto.record.replay import read_state
from seqto.records import EVALUATION
from seqto.report import csv_file, html_page, markdown, terminal
from seqto.report.view import build_report

sys.path.insert(0, str(Path(__file__).parents[1] / "reports"))
from synthetic import journal

EVENTS = finite(journal(layers=4, trials=4, failures=1))
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e23, 10**400, "", "../x", "[/b]", "\udc80", "\ud800"),
    *([], {}, [0], ["x"], {"x": None}, [[]]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all values inside a JSON value."""
    pairs: list[Any] = []
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list):
        pairs = list(enumerate(value[:2]))
    return [path, *(p for key, inner in pairs for p in places(inner, (*path, key)))]


PLACES = [p for p in places(EVENTS) if len(p) > 1] + [
    (i, *p) for i, event in enumerate(EVENTS) for p in places(event) if p
]

SCORE = next(
    p for p in PLACES if p[1:] == ("trial", "measurements", EVALUATION, "scores", "accuracy")
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(place=st.sampled_from(PLACES), odd=st.sampled_from(ODD), remove=st.booleans())
@example(place=SCORE, odd=None, remove=False)
def test_one_odd_value_is_refused_or_reported(
    tmp_path: Path, place: tuple[Any, ...], odd: Any, remove: bool
) -> None:
    events = copy.deepcopy(EVENTS)
    target = events
    for key in place[:-1]:
        target = target[key]
    if remove:
        del target[place[-1]]
    else:
        target[place[-1]] = odd
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    try:
        state = read_state(path)
    except JournalError as refused:
        message = str(refused)
    else:
        message = ""
        _make_all(build_report(state), tmp_path)
    assert "\n" not in message


def _make_all(report: dict[str, Any], folder: Path) -> None:
    json.dumps(report, allow_nan=False)
    html_page.render(report, folder="run").encode()
    csv_file.front_csv(report)
    markdown.summary(report)
    with open(folder / "out", "w", encoding="utf-8", errors="backslashreplace") as out:
        rich.console.Console(file=out, width=80).print(terminal.summary(report, folder="run"))


@pytest.mark.parametrize(
    ("name", "odd"),
    [
        ("max_latency", {"a": 1}),
        ("max_size", "4MB"),
        ("want", {}),
        ("tolerance", None),
        ("max_loss", 10**400),
    ],
)
def test_a_goal_that_is_none_is_refused(tmp_path: Path, name: str, odd: Any) -> None:
    header = copy.deepcopy(EVENTS[0])
    header["settings"].setdefault("search", {})[name] = odd
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(JournalError, match=f"settings.search.{name} is"):
        read_state(path)


@pytest.mark.parametrize(
    ("place", "odd"),
    [(("model", "origin"), "x"), (("data", "origin"), [1]), (("settings", "task", "kind"), {})],
)
def test_a_header_that_cards_cannot_read_is_refused(
    tmp_path: Path, place: tuple[str, ...], odd: Any
) -> None:
    header = copy.deepcopy(EVENTS[0])
    target = header
    for key in place[:-1]:
        target = target.setdefault(key, {})
    target[place[-1]] = odd
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(header) + "\n")
    with pytest.raises(JournalError, match=f"{'.'.join(place)} is"):
        read_state(path)


@pytest.mark.parametrize("event", [{"event": "trial"}, {"event": "trial", "trial": {}}])
def test_an_empty_trial_is_refused(tmp_path: Path, event: dict[str, Any]) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(json.dumps(EVENTS[0]) + "\n" + json.dumps(event) + "\n")
    with pytest.raises(JournalError, match="line 2"):
        read_state(path)

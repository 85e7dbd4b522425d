"""Lines of progress where the output is no terminal."""

from __future__ import annotations

import types

import pytest

from seqto.cli.progress import EVERY_S, QUIET_S, PhaseLines, ProgressBars, expected_trials
from seqto.search.strategies.frontier import Frontier


def test_a_new_phase_is_named_at_once_and_then_now_and_again() -> None:
    lines = PhaseLines()
    assert lines.line("calibrating", 1, 1, now=-QUIET_S) == ""
    assert lines.line("probing layers", 1, 228, now=0.0) == "probing layers 1/228"
    assert lines.line("probing layers", 2, 228, now=1.0) == ""
    said = lines.line("probing layers", 121, 228, now=200.0)
    assert said == "probing layers 121/228, about 3 min left"
    assert lines.line("trials", 1, None, now=201.0) == "trials, 1 done"
    assert lines.line("trials", 2, None, now=201.0 + EVERY_S) == "trials, 2 done"


def test_nothing_is_promised_before_something_is_known() -> None:
    lines = PhaseLines()
    assert lines.line("calibrating", 0, 10, now=0.0) == ""
    assert lines.line("calibrating", 0, 10, now=EVERY_S) == "calibrating 0/10"


@pytest.mark.parametrize(
    ("strategy", "budget", "expected"),
    [(Frontier(), None, 56), (Frontier(), 10, 10), (object(), 10, 10), (object(), None, None)],
)
def test_trials_have_a_total_where_budget_or_strategy_tell_one(
    strategy: object, budget: int | None, expected: int | None
) -> None:
    search = types.SimpleNamespace(max_trials=budget)
    settings = types.SimpleNamespace(search=search)
    setup = types.SimpleNamespace(strategy=strategy, settings=settings)
    assert expected_trials(setup) == expected


def test_a_step_says_how_much_is_done_and_never_more_than_there_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bars = ProgressBars(None, plain=True)
    bars.lines.start = -QUIET_S  # a while ago
    for done in (0, 25):
        bars.step("rounding", done, 25)
        bars.lines.said = -EVERY_S
    said = capsys.readouterr().err.splitlines()
    assert said == ["seqto: rounding weights 0/25", "seqto: rounding weights 25/25"]

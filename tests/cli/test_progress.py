"""Lines of progress where the output is no terminal."""

from __future__ import annotations

from seqto.cli.progress import EVERY_S, QUIET_S, PhaseLines


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

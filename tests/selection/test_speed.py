"""What a latency may be called, by its whole interval."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.report import wording
from seqto.selection.speed import Speed, ends, speed_of


def latency(ratio: float, low: float, high: float) -> dict[str, float]:
    return {"ratio": ratio, "ratio_low": low, "ratio_high": high, "median": ratio}


@pytest.mark.parametrize(
    ("ratio", "low", "high", "verdict", "text"),
    [
        (0.625, 0.60, 0.65, Speed.FASTER, "1.6 × faster"),
        (1.67, 1.59, 1.75, Speed.SLOWER, "1.7 × slower"),
        (0.98, 0.95, 1.01, Speed.SAME, "about as fast as float"),
        (0.985, 0.98, 0.99, Speed.SAME, "about as fast as float"),  # two sessions of one model
        (0.60, 0.40, 1.56, Speed.UNCERTAIN, "speed uncertain, the machine was busy"),
        (0.50, 0.40, 0.70, Speed.FASTER, "1.4 to 2.5 × faster"),
        (2.0, 1.25, 2.6, Speed.SLOWER, "1.2 to 2.6 × slower"),
    ],
)
def test_what_is_said_holds_for_the_whole_interval(
    ratio: float, low: float, high: float, verdict: Speed, text: str
) -> None:
    found = latency(ratio, low, high)
    assert speed_of(found) is verdict
    assert wording.speed(found).startswith(text)


@given(st.floats(0.01, 50), st.floats(0, 3), st.floats(0, 3))
def test_a_gain_is_claimed_only_when_the_interval_excludes_one(
    ratio: float, below: float, above: float
) -> None:
    found = latency(ratio, ratio / (1 + below), ratio * (1 + above))
    low, high = ends(found)
    assert (speed_of(found) is Speed.FASTER) <= (high < 1)
    assert (speed_of(found) is Speed.SLOWER) <= (low > 1)
    assert len(wording.short_speed(found)) <= 11


def test_old_journals_without_an_interval_are_judged_by_the_ratio() -> None:
    assert speed_of({"ratio": 0.5, "ratio_low": None, "ratio_high": 0.0}) is Speed.FASTER


def test_milliseconds_of_float_are_those_of_the_same_rounds() -> None:
    found = {**latency(0.5, 0.5, 0.5), "median": 2.0, "float_median": 4.1}
    assert wording.both_ms(found) == "2 ms, float 4.1 ms in the same rounds"
    found.pop("float_median")  # a journal of an earlier version: by the ratio
    assert wording.both_ms(found) == "2 ms, float 4 ms in the same rounds"


def test_rounds_that_contradict_the_medians_say_nothing() -> None:
    found = {**latency(1.3, 1.06, 1.5), "median": 6.24, "float_median": 0.346}
    assert speed_of(found) is Speed.UNCERTAIN

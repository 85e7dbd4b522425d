"""The trials that charts show of a long run."""

from __future__ import annotations

from typing import Any

import pytest
from synthetic import build_report, journal

from seqto.report.shown_trials import shown_numbers


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return build_report(journal(trials=120, strategy="frontier"))


def test_all_trials_are_shown_where_there_is_room(report: dict[str, Any]) -> None:
    numbers = {t["number"] for t in report["trials"]}
    assert shown_numbers(report, most=len(numbers)) == numbers


@pytest.mark.parametrize("most", [1, 40, 100])
def test_what_matters_is_always_shown(report: dict[str, Any], most: int) -> None:
    shown = shown_numbers(report, most=most)
    needed = {*report["front"], *report["recommended"].values()}
    needed |= {report["fully_quantized"]} - {None}
    assert needed <= shown
    assert len(shown) == max(most, len(needed))


def test_the_sample_is_even(report: dict[str, Any]) -> None:
    early = sum(number < 60 for number in shown_numbers(report, most=60))
    assert 20 <= early <= 40

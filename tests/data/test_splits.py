"""Splits are disjoint, drawn by the seed, and refused where samples are too few."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.data.splits import split_rows
from seqto.errors import DataError


def splits_of(*counts: int) -> dict[str, list[int]]:
    ends = np.cumsum((0, *counts))
    names = ("calibration", "evaluation", "report")
    return {n: list(range(ends[i], ends[i + 1])) for i, n in enumerate(names[: len(counts)])}


# --------------------------------------------------------------------------------------- splits


@given(
    sizes=st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(0, 30)),
    spare=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
def test_splits_are_disjoint_and_have_the_asked_sizes(
    sizes: tuple[int, int, int], spare: int, seed: int
) -> None:
    calibration, evaluation, report = sizes
    count = sum(sizes) + spare
    settings = {"calibration": calibration, "evaluation": evaluation, "report": report}
    found = split_rows(count, **settings, seed=seed)
    everything = [row for rows in found.values() for row in rows]
    assert len(set(everything)) == len(everything)
    assert set(everything) <= set(range(count))
    assert len(found["calibration"]) == calibration
    assert len(found["evaluation"]) == evaluation
    assert len(found["report"]) == report
    rest = split_rows(count, **{**settings, "report": None}, seed=seed)
    assert len(rest["report"]) == report + spare
    assert found == split_rows(count, **settings, seed=seed)


@given(reserved=st.sets(st.integers(0, 49), min_size=5), seed=st.integers(0, 99), wanted=st.just(5))
def test_reserved_rows_serve_calibration_alone(reserved: set[int], seed: int, wanted: int) -> None:
    found = split_rows(
        50,
        calibration=wanted,
        evaluation=0,
        report=None,
        seed=seed,
        calibration_rows=sorted(reserved),
    )
    assert len(found["calibration"]) == wanted
    assert set(found["calibration"]) <= reserved
    assert set(found["report"]) == set(range(50)) - reserved


def test_few_rows_of_very_many_are_drawn_without_shuffling_all_of_them() -> None:
    counts = {"calibration": 5, "evaluation": 7, "report": 3}
    rows = split_rows(10**15, **counts, seed=1)  # type: ignore[arg-type]
    assert {name: len(chosen) for name, chosen in rows.items()} == counts
    every = [row for chosen in rows.values() for row in chosen]
    assert len(set(every)) == 15
    assert all(0 <= row < 10**15 for row in every)
    assert rows == split_rows(10**15, **counts, seed=1)  # type: ignore[arg-type]


def test_the_rest_of_very_many_rows_is_refused() -> None:
    with pytest.raises(DataError, match=r"data\.report"):
        split_rows(10**15, calibration=5, evaluation=7, report=None, seed=1)


def test_reserved_rows_of_very_many_serve_calibration() -> None:
    rows = split_rows(
        10**12, calibration=2, evaluation=7, report=3, seed=1, calibration_rows=[4, 5, 6]
    )
    assert set(rows["calibration"]) <= {4, 5, 6}


def test_another_seed_draws_other_rows() -> None:
    drawn = [split_rows(100, calibration=10, evaluation=20, report=30, seed=s) for s in (0, 1)]
    assert drawn[0]["evaluation"] != drawn[1]["evaluation"]


@pytest.mark.parametrize("rows", [None, [0, 1, 2]])
def test_too_few_samples_are_refused_with_both_numbers(rows: list[int] | None) -> None:
    with pytest.raises(DataError, match=r"35 are needed .*the data have 30"):
        split_rows(30, calibration=5, evaluation=10, report=20, seed=0, calibration_rows=rows)

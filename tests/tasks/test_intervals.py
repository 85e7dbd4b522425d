"""Intervals hold what they are of, and are the same every time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.tasks.intervals import bootstrap_differences, bootstrap_mean, mean_interval, wilson


@settings(max_examples=30, deadline=None, derandomize=True)
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_an_interval_holds_the_mean_and_repeats_itself(values: list[float]) -> None:
    found = np.array(values)
    low, high = mean_interval(found)
    assert low <= found.mean() + 1e-12
    assert high >= found.mean() - 1e-12
    assert (low, high) == mean_interval(found)


def test_distances_of_0_and_1_have_wilsons_interval() -> None:
    assert mean_interval(np.array([0.0, 1.0, 0.0, 0.0])) == wilson(1, 4)
    graded = np.array([0.0, 1.0, 0.0, 0.5])
    assert mean_interval(graded) == bootstrap_mean(graded)


def test_the_bootstrap_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(40):
        low, high = bootstrap_mean(rng.beta(2, 5, size=60))
        covered += low <= 2 / 7 <= high
    assert covered >= 34


def test_pairing_takes_out_what_is_common_to_both() -> None:
    common = np.random.default_rng(0).normal(size=200)

    def both(rows: np.ndarray) -> tuple[dict[str, float], dict[str, float]]:  # type: ignore[type-arg]
        mean = float(common[rows].mean())
        return {"score": mean + 0.25}, {"score": mean}

    low, high = bootstrap_differences(both, 200, names=["score"])["score"]
    assert abs(low - 0.25) < 1e-9
    assert abs(high - 0.25) < 1e-9

"""Intervals hold what they are of, and are the same every time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.tasks.intervals import (
    bootstrap_differences,
    bootstrap_mean,
    mean_interval,
    weighted_interval,
    wilson,
)


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


def test_the_interval_of_pooled_boxes_covers_the_truth() -> None:
    # pictures with many boxes change more often: a mean over pictures would miss the truth
    rng = np.random.default_rng(2)
    covered, rounds = 0, 60
    shares = {1: 0.02, 4: 0.05, 20: 0.15}
    truth = sum(n * p for n, p in shares.items()) / sum(shares)
    for _ in range(rounds):
        weights = rng.choice(list(shares), 150).astype(float)
        values = np.array([rng.binomial(int(w), shares[int(w)]) / w for w in weights])
        low, high = weighted_interval(values, weights)
        covered += low <= truth <= high
    assert covered >= 0.87 * rounds


def test_pictures_without_boxes_say_nothing() -> None:
    none = np.zeros(10)
    assert weighted_interval(none, none) == (0.0, 1.0)
    assert weighted_interval(none, np.array([2.0] * 5 + [0.0] * 5)) == wilson(0, 5)

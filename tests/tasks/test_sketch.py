"""Reductions of large outputs: small, and distances stay."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.tasks.sketch import count_sketch, strided


def test_squared_distances_survive_the_sketch() -> None:
    rng = np.random.default_rng(1)
    a = rng.normal(size=(20, 30_000))
    b = a + rng.normal(size=a.shape) * rng.uniform(0, 1, (20, 1))
    wanted = ((a - b) ** 2).sum(axis=1)
    found = ((count_sketch(a, width=1024) - count_sketch(b, width=1024)) ** 2).sum(axis=1)
    assert count_sketch(a, width=1024).shape == (20, 1024)
    # sqrt(2 / 1024) is 4.4 %: four times that for the worst of 20, and no bias
    assert np.abs(found / wanted - 1).max() < 0.18
    assert abs((found / wanted).mean() - 1) < 0.04


def test_a_change_of_all_numbers_is_not_counted_many_times_over() -> None:
    """Without signs the sums would add up: 30 numbers a sum, so 30 times too much."""
    found = count_sketch(np.full((1, 30_000), 0.1), width=1024)
    assert (found**2).sum() == pytest.approx(300, rel=0.18)


def test_few_numbers_stay_as_they_are() -> None:
    values = np.arange(12.0).reshape(2, 6)
    assert np.array_equal(count_sketch(values, width=6), values)


def test_numbers_that_are_not_finite_do_not_spread() -> None:
    assert np.isfinite(count_sketch(np.full((1, 50), np.nan), width=8)).all()


@given(shape=st.tuples(*[st.integers(1, 40)] * 3), most=st.integers(1, 3000))
def test_a_strided_map_has_no_more_numbers_than_asked(shape: tuple, most: int) -> None:
    values = np.arange(2 * np.prod(shape)).reshape(2, *shape)
    thin = strided(values, most=most)
    assert thin.shape[:2] == (2, shape[0])
    assert thin[0].size <= max(most, shape[0])
    assert np.isin(thin, values).all()


@pytest.mark.parametrize(("most", "sides"), [(10_000, 100), (2500, 50), (2499, 33)])
def test_the_stride_is_no_larger_than_needed(most: int, sides: int) -> None:
    assert strided(np.zeros((1, 1, 100, 100)), most=most).shape == (1, 1, sides, sides)

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.selection.pareto import front, gained_volume, hypervolume, top
from seqto.tasks.intervals import wilson

Points = list[tuple[float, ...]]


def clouds(figures: st.SearchStrategy[float], *, most: int = 20) -> st.SearchStrategy[Points]:
    """Return points of one width; few distinct figures, so that ties and duplicates are common."""
    return st.integers(1, 4).flatmap(
        lambda width: st.lists(st.tuples(*[figures] * width), max_size=most)
    )


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Return whether `a` is nowhere worse than `b`, and better in at least one objective."""
    pairs = list(zip(a, b, strict=True))
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


grids = clouds(st.integers(0, 6).map(float))
floats = clouds(st.floats(-1e6, 1e6))


@settings(deadline=None)
@given(grids | floats)
def test_the_front_is_the_non_dominated_set_without_duplicates(points: Points) -> None:
    expected = [
        i
        for i, p in enumerate(points)
        if not any(dominates(q, p) for q in points) and p not in points[:i]
    ]
    assert front(points) == expected


@settings(deadline=None)
@given((grids | floats).filter(len))
def test_recommended_points_lie_on_the_front_and_are_the_best_of_all(points: Points) -> None:
    names = [f"objective {i}" for i in range(len(points[0]))]
    chosen = top(points, names=names)
    assert list(chosen) == ["balanced", *names]
    assert set(chosen.values()) <= set(front(points))
    for axis, name in enumerate(names):
        assert points[chosen[name]][axis] == min(p[axis] for p in points)


def test_balanced_is_nearest_the_ideal_point_after_scaling() -> None:
    # loss and bytes: without scaling, bytes alone would decide
    points = [(0.0, 18e6), (0.02, 6e6), (0.3, 5e6), (0.9, 30e6)]
    assert top(points, names=["loss", "size"]) == {"balanced": 1, "loss": 0, "size": 2}


def test_an_objective_in_which_all_are_equal_counts_nothing() -> None:
    assert top([(5, 0, 4), (5, 3, 3), (5, 4, 0)], names=["a", "b", "c"])["a"] == 0
    assert top([(5, 0, 4), (5, 1, 1), (5, 4, 0)], names=["a", "b", "c"])["balanced"] == 1
    assert top([(5.0, 5.0)], names=["a", "b"]) == {"balanced": 0, "a": 0, "b": 0}


def test_ties_for_an_objective_are_broken_by_the_others() -> None:
    points = [(0, 9, 1), (0, 3, 2), (7, 1, 1)]
    assert top(points, names=["loss", "size", "latency"])["loss"] == 1


def test_no_points_give_no_front_and_no_recommendation() -> None:
    assert front([]) == []
    assert top([], names=["loss"]) == {}
    assert hypervolume([], reference=(1, 1)) == 0.0


@pytest.mark.parametrize("points", [[(1.0, math.nan)], [(math.inf, 1.0)], [(1.0, 2.0), (1.0,)]])
def test_points_that_cannot_be_compared_are_refused(points: Points) -> None:
    for call in (
        lambda: front(points),
        lambda: top(points, names=["a", "b"]),
        lambda: hypervolume(points, reference=(9.0, 9.0)),
        lambda: gained_volume((1.0, 1.0), points, reference=(9.0, 9.0)),
    ):
        with pytest.raises(ValueError, match=r"not finite|objectives"):
            call()


def test_hypervolume_of_hand_drawn_cases() -> None:
    assert hypervolume([(1, 2), (2, 1)], reference=(4, 4)) == 8  # 3·2 + 2·3 − 2·2
    assert hypervolume([(1, 2), (2, 1), (5, 0), (4, 0)], reference=(4, 4)) == 8
    assert hypervolume([(0, 0, 0)], reference=(2, 3, 4)) == 24
    assert hypervolume([(0, 1, 1), (1, 0, 1), (1, 1, 0)], reference=(2, 2, 2)) == 4


@given(grids, st.data())
def test_hypervolume_never_shrinks_when_a_point_is_added(
    points: Points, data: st.DataObject
) -> None:
    width = len(points[0]) if points else 2
    reference = (5.0,) * width
    extra = data.draw(st.tuples(*[st.integers(0, 6).map(float)] * width))
    before = hypervolume(points, reference=reference)
    assert hypervolume([*points, extra], reference=reference) >= before
    if not any(p == extra or dominates(p, extra) for p in points) and max(extra) < 5:
        assert hypervolume([*points, extra], reference=reference) > before


@settings(deadline=None)
@given(grids.filter(len) | clouds(st.floats(0, 5)).filter(len))
def test_the_gained_volume_is_what_a_point_adds(points: Points) -> None:
    reference = (4.0,) * len(points[0])
    total = 0.0
    for count, point in enumerate(points):
        total += gained_volume(point, points[:count], reference=reference)
    assert total == pytest.approx(hypervolume(points, reference=reference), abs=1e-9)


@settings(deadline=None)
@given(clouds(st.floats(0, 1), most=8).filter(lambda points: points and len(points[0]) > 1))
def test_hypervolume_agrees_with_pymoo(points: Points) -> None:
    from pymoo.indicators.hv import HV

    reference = (0.9,) * len(points[0])
    expected = HV(ref_point=np.array(reference))(np.array(points))
    assert hypervolume(points, reference=reference) == pytest.approx(expected, abs=1e-9)


def test_wilson_gives_the_figures_of_the_literature() -> None:
    assert wilson(0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson(5, 10) == pytest.approx((0.23659, 0.76341), abs=1e-5)
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998
    assert wilson(0, 0) == (0.0, 1.0)


@given(st.integers(0, 5000), st.integers(1, 5000), st.floats(0.5, 0.999))
def test_wilson_holds_the_share_and_mirrors(part: int, samples: int, confidence: float) -> None:
    successes = part % (samples + 1)
    low, high = wilson(successes, samples, confidence=confidence)
    assert 0 <= low <= successes / samples <= high <= 1
    mirrored = wilson(samples - successes, samples, confidence=confidence)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize(("successes", "samples"), [(-1, 3), (4, 3)])
def test_wilson_refuses_impossible_counts(successes: int, samples: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} successes of {samples}"):
        wilson(successes, samples)

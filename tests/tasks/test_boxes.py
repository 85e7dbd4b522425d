"""Boxes: overlap, suppression, matching, the share of changed boxes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.tasks.boxes import Boxes, areas, changed, iou, match_boxes, nms, pooled

COORDINATES = st.integers(0, 24)


@st.composite
def some_boxes(draw: st.DrawFn, most: int = 14) -> Boxes:
    n = draw(st.integers(0, most))
    corner = draw(st.lists(st.tuples(COORDINATES, COORDINATES), min_size=n, max_size=n))
    side = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 12)), min_size=n, max_size=n))
    boxes = np.array([[x, y, x + w, y + h] for (x, y), (w, h) in zip(corner, side, strict=True)])
    scores = np.array(draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))) / 5
    classes = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)), dtype=int)
    return Boxes(boxes.reshape(n, 4).astype(float), scores, classes)


def greedy(found: Boxes, overlap: float, most: int) -> list[tuple[float, ...]]:
    """Return suppression as the textbook has it, one box after the other."""
    kept: list[int] = []
    for k in np.argsort(-found.scores, kind="stable"):
        same = [j for j in kept if found.classes[j] == found.classes[k]]
        if len(kept) < most and all(
            iou(found.boxes[[j]], found.boxes[[k]])[0, 0] <= overlap for j in same
        ):
            kept.append(int(k))
    return [(*found.boxes[k], found.scores[k], found.classes[k]) for k in kept]


def rows(found: Boxes) -> list[tuple[float, ...]]:
    pairs = zip(found.boxes, found.scores, found.classes, strict=True)
    return [(*box, score, kind) for box, score, kind in pairs]


def boxes_of(*entries: tuple[float, ...]) -> Boxes:
    table = np.array(entries, dtype=float).reshape(-1, 6)
    return Boxes(table[:, :4], table[:, 4], table[:, 5].astype(int))


def test_iou_of_known_boxes() -> None:
    a = np.array([[0, 0, 2, 2]])
    b = np.array(
        [[0, 0, 2, 2], [1, 0, 3, 2], [2, 2, 4, 4], [5, 5, 6, 6], [0, 0, 1, 1], [1, 1, 0, 0]]
    )
    np.testing.assert_allclose(iou(a, b)[0], [1, 1 / 3, 0, 0, 1 / 4, 0])


def test_iou_of_numbers_that_are_not_finite_is_nothing() -> None:
    bad = np.array([[np.nan, 0, 1, 1], [-np.inf, -np.inf, np.inf, np.inf]])
    found = iou(bad, np.array([[0, 0, 1, 1]]))
    assert np.isfinite(found).all()
    assert (found <= 1).all()


def test_suppression_keeps_the_stronger_of_a_class_and_both_of_two_classes() -> None:
    found = boxes_of(
        (0, 0, 10, 10, 0.5, 0),
        (1, 0, 11, 10, 0.9, 0),
        (0, 0, 10, 10, 0.4, 1),
        (50, 0, 60, 9, 0.3, 0),
    )
    assert nms(found, overlap=0.45).scores.tolist() == [0.9, 0.4, 0.3]


def test_a_suppressed_box_suppresses_nothing() -> None:
    # a chain: 1 overlaps 2, 2 overlaps 3, but 1 not 3
    chain = boxes_of((0, 0, 10, 10, 0.9, 0), (4, 0, 14, 10, 0.8, 0), (8, 0, 18, 10, 0.7, 0))
    assert nms(chain, overlap=0.4).scores.tolist() == [0.9, 0.7]


def test_an_overlap_of_exactly_the_threshold_stays() -> None:
    half = boxes_of((0, 0, 2, 1, 0.9, 0), (0, 0, 1, 1, 0.8, 0))
    assert len(nms(half, overlap=0.5)) == 2
    assert len(nms(half, overlap=0.49)) == 1


@given(found=some_boxes(), overlap=st.sampled_from([0.0, 0.3, 0.45, 0.9]), most=st.integers(1, 9))
def test_suppression_is_the_textbooks(found: Boxes, overlap: float, most: int) -> None:
    assert rows(nms(found, overlap=overlap, most=most)) == greedy(found, overlap, most)


@given(found=some_boxes(), overlap=st.sampled_from([0.0, 0.45, 0.9]))
def test_suppression_twice_is_suppression_once(found: Boxes, overlap: float) -> None:
    once = nms(found, overlap=overlap)
    assert rows(nms(once, overlap=overlap)) == rows(once)


def test_suppression_over_several_blocks_is_the_textbooks() -> None:
    rng = np.random.default_rng(0)
    corner = rng.uniform(0, 200, (1500, 2)).round()
    found = Boxes(
        np.concatenate([corner, corner + rng.uniform(40, 90, (1500, 2))], axis=1),
        rng.random(1500),
        rng.integers(0, 3, 1500),
    )
    kept = rows(nms(found, overlap=0.45, most=200))
    assert kept == greedy(found, 0.45, 200)
    assert min(row[4] for row in kept) < 0.8, "boxes of later blocks are among them"


def test_the_strongest_box_takes_the_partner_that_it_overlaps_most() -> None:
    a = boxes_of((0, 0, 10, 10, 0.9, 0))
    b = boxes_of((0, 0, 10, 6, 0.8, 0), (0, 0, 10, 9, 0.5, 0))
    assert match_boxes(a, b, match=0.5) == [(0, 1)]


def test_the_stronger_of_two_boxes_is_matched_and_each_box_once() -> None:
    a = boxes_of((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 9, 0.3, 0))
    b = boxes_of((0, 0, 10, 8, 0.8, 0))
    assert match_boxes(a, b, match=0.5) == [(0, 0)]


@pytest.mark.parametrize(
    ("width", "kind", "pairs"), [(10, 0, 1), (10, 1, 0), (4.9, 0, 0), (5, 0, 1), (6, 0, 1)]
)
def test_a_match_needs_the_class_and_the_overlap(width: float, kind: int, pairs: int) -> None:
    a = boxes_of((0, 0, 10, 10, 0.9, 0))
    b = boxes_of((0, 0, width, 10, 0.9, kind))
    assert len(match_boxes(a, b, match=0.5)) == pairs


def test_ties_do_not_depend_on_which_set_comes_first() -> None:
    two, three = (boxes_of(*[(0, 0, 9, 9, 0.5, 0)] * n) for n in (2, 3))
    pairs = match_boxes(two, three, match=0.5)
    assert sorted(pairs) == sorted((i, j) for j, i in match_boxes(three, two, match=0.5))


@given(a=some_boxes(), b=some_boxes(), match=st.sampled_from([0.1, 0.5, 0.9]))
def test_matching_is_symmetric_and_one_to_one(a: Boxes, b: Boxes, match: float) -> None:
    pairs = match_boxes(a, b, match=match)
    assert sorted(pairs) == sorted((i, j) for j, i in match_boxes(b, a, match=match))
    assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)
    value = changed(np.array([len(pairs)]), np.array([len(a) + len(b)]))[0]
    assert 0 <= value <= 1


@given(found=some_boxes())
def test_a_set_of_boxes_with_areas_matches_itself(found: Boxes) -> None:
    there = found.take(np.nonzero(areas(found.boxes) > 0)[0])
    assert len(match_boxes(there, there, match=0.5)) == len(there)


def test_changed_boxes_of_pictures_and_pooled() -> None:
    matched, total = np.array([3, 0, 0, 1]), np.array([8, 0, 2, 2])
    np.testing.assert_allclose(changed(matched, total), [0.25, 0, 1, 0])
    assert pooled(matched, total) == pytest.approx(1 - 8 / 12)
    assert pooled(matched, total) == pytest.approx(
        np.average(changed(matched, total), weights=total)
    )
    assert pooled(np.zeros(3), np.zeros(3)) == 0

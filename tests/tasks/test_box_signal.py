"""Boxes as numbers: a difference counts by its share of the box, at every size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto.tasks.box_signal import NUMBERS, box_numbers
from seqto.tasks.detection import Detection

SIZES = (1 / 40, 1 / 20, 1 / 9, 1 / 5, 1 / 2)  # of the picture


def box(x: float, y: float, width: float, height: float | None = None) -> list[float]:
    half_width, half_height = width / 2, (height or width) / 2
    return [x - half_width, y - half_height, x + half_width, y + half_height]


def gap(one: list[float], other: list[float]) -> float:
    numbers = box_numbers(np.array([one, other]))
    assert numbers.shape == (2, NUMBERS)
    return float(np.linalg.norm(numbers[0] - numbers[1]))


@pytest.mark.parametrize("size", SIZES)
def test_a_shift_counts_by_its_share_of_the_box(size: float) -> None:
    tenth = gap(box(0.4, 0.6, size), box(0.4 + 0.1 * size, 0.6, size))
    assert 0.07 < tenth < 0.25
    assert tenth < gap(box(0.4, 0.6, size), box(0.4 + 0.5 * size, 0.6, size))


@pytest.mark.parametrize("size", SIZES)
def test_another_size_counts_by_its_share(size: float) -> None:
    assert 0.05 < gap(box(0.4, 0.6, size), box(0.4, 0.6, 1.1 * size, size)) < 0.3


@given(st.floats(0.2, 0.8), st.floats(0.2, 0.8), st.floats(0.02, 0.9), st.floats(-1e-3, 1e-3))
def test_numbers_change_continuously(x: float, y: float, size: float, change: float) -> None:
    # also where a size passes from one octave to the next
    assert gap(box(x, y, size), box(x, y, size * (1 + change))) <= 60 * abs(change) + 1e-9


def test_boxes_without_area_are_finite() -> None:
    assert np.isfinite(box_numbers(np.array([[0.5, 0.5, 0.5, 0.5], [2.0, 2.0, -1.0, -1.0]]))).all()


def test_small_boxes_that_move_count_more_than_scores_that_flicker() -> None:
    # 100 cells with boxes of 16 pixels of 640, YOLOv8-shaped: centre, sides, one class
    rng = np.random.default_rng(0)
    cells = np.zeros((1, 5, 100))
    cells[0, :2] = rng.uniform(50, 590, (2, 100))
    cells[0, 2:4] = 16.0
    cells[0, 4] = rng.uniform(0.3, 0.9, 100)
    moved, flickered = cells.copy(), cells.copy()
    moved[0, 0] += 5.0  # a third of the box: the IoU falls to 0.52
    flickered[0, 4] += rng.uniform(-0.02, 0.02, 100)
    task = Detection("yolov8", classes=1, size=(640, 640))
    before = task.signal({"o": cells})
    lost = [float(((task.signal({"o": x}) - before) ** 2).sum()) for x in (moved, flickered)]
    assert lost[0] > 10 * lost[1]

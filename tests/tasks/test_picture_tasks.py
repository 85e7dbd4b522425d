"""The picture tasks keep the contract of tasks, and can be made again in a worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from seqto.study.float_model import FloatModel
from seqto.tasks.classification import Classification
from seqto.tasks.dense import Dense
from seqto.tasks.detection import Detection
from seqto.tasks.multilabel import MultiLabel
from seqto.tasks.segmentation import Segmentation
from seqto.tasks.task import portable_form, task_from_json
from seqto.testing import check_task

ROWS = 6
RNG = np.random.default_rng(5)


def yolov8_output() -> np.ndarray:
    """4 + 3 rows of 40 cells: boxes around 32, scores of which a few are strong."""
    boxes = RNG.uniform(8, 56, (ROWS, 4, 40))
    return np.concatenate([boxes, RNG.random((ROWS, 3, 40)) ** 4], axis=1).astype(np.float32)


def box_tables() -> list[np.ndarray]:
    """Of unlike lengths, as labels of pictures are."""
    boxes = [[10.0, 10.0, 30.0, 30.0, 1.0, 0.0], [5.0, 5.0, 20.0, 40.0, 2.0, 0.0]]
    return [np.array(boxes[: 1 + row % 2]) for row in range(ROWS)]


def soft_map() -> np.ndarray:
    return RNG.random((ROWS, 1, 12, 10)).astype(np.float32)


CASES: list[tuple[Any, np.ndarray, Any]] = [
    (Detection("yolov8", size=(64, 64)), yolov8_output(), box_tables()),
    (Segmentation("mask"), soft_map(), RNG.integers(0, 2, (ROWS, 12, 10))),
    (
        Segmentation(),
        RNG.random((ROWS, 4, 12, 10)).astype(np.float32),
        RNG.integers(0, 4, (ROWS, 12, 10)),
    ),
    (Dense(), soft_map(), RNG.random((ROWS, 1, 12, 10))),
    (MultiLabel(), RNG.random((ROWS, 9)).astype(np.float32), RNG.integers(0, 2, (ROWS, 9))),
]


@pytest.mark.parametrize(("task", "output", "labels"), CASES)
def test_the_contract_of_tasks(task: Any, output: np.ndarray, labels: Any) -> None:
    pytest.importorskip("pycocotools")
    check_task(task, outputs=[output], labels=labels)
    assert len(task.scores(task.decode([output]), labels)) > 0


@pytest.mark.parametrize("task", [task for task, _, _ in CASES])
def test_a_worker_can_make_the_task_again(task: Any) -> None:
    form = portable_form(task)
    assert form is not None
    assert task_from_json(form) == task


def test_a_worker_holds_the_raw_outputs_of_few_pictures() -> None:
    detector, classifier = (
        FloatModel(*[None] * 3, task=task, device=None, judged=None)  # type: ignore[arg-type]
        for task in (Detection(), Classification())
    )
    assert detector.chunk_rows(100) == 10
    assert detector.chunk_rows(1000) == 16
    assert classifier.chunk_rows(1000) == 100


def test_a_detector_learns_the_names_of_the_outputs_and_the_input_size() -> None:
    task = Detection().for_model(outputs=("boxes", "scores"), size=(48, 64))
    assert (task.names, task.size) == (("boxes", "scores"), (48, 64))
    boxes = np.tile(np.array([[[1.0, 2.0, 20.0, 30.0], [30.0, 5.0, 40.0, 60.0]]]), (2, 1, 1))
    scores = np.tile(np.array([[[0.9, 0.1], [0.0, 0.3]]]), (2, 1, 1))
    assert task.decode([boxes, scores]).lengths.tolist() == [2, 2]
    assert Detection(size=(32, 32)).for_model(outputs=(), size=(48, 64)).size == (32, 32)

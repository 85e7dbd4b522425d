"""The kind of task is told by inputs and outputs, and said in one line."""

from __future__ import annotations

import pytest

from seqto import plugins
from seqto.tasks.guess import Tensor, guess_task, guess_text_task

PICTURE = {"images": Tensor((1, 3, 640, 640))}


def one(*shape: int | None, **more: str) -> dict[str, Tensor]:
    return {"y": Tensor(shape, **more)}


@pytest.mark.parametrize(
    ("outputs", "kind", "words"),
    [
        (one(1, 84, 8400), "detection", "taken for a detector, YOLOv8-shaped: 84 × 8400"),
        (one(1, 25200, 85), "detection", "YOLOv5-shaped"),
        (one(1, 21, 640, 640), "segmentation", "21 classes in 'y' (21 × 640 × 640)"),
        (one(1, 21, 80, 80), "segmentation", "21 classes"),
        (one(1, 640, 640, 21), "segmentation", "21 classes"),
        (one(1, 1, 640, 640, made_by="Sigmoid"), "segmentation", "a soft mask"),
        (one(1, 640, 640, dtype="int64"), "segmentation", "class numbers"),
        (one(1, 1, 640, 640), "dense", "dense"),
        (one(1, 3, 640, 640), "dense", "dense"),
        (one(1, 3, 1280, 1280), "dense", "dense"),
        (one(1, dtype="int64"), "classification", "integers in 'y'"),
        (one(1, 1000), "classification", "1000 scores in 'y'"),
        (one(1, 1000, 1, 1), "classification", "1000 scores"),
        (one(1, 14, made_by="Sigmoid"), "multi-label", "14 scores by Sigmoid"),
        (one(1, 1), "dense", "no known kind of task fits output 'y' (1)"),
        (one(1, 512, 20, 20), "dense", "relative error"),
    ],
)
def test_a_picture_models_task_is_told_by_its_outputs(outputs: dict, kind: str, words: str) -> None:
    found = guess_task(PICTURE, outputs)
    assert found.kind == kind
    assert words in found.sentence
    assert "\n" not in found.sentence


def test_without_a_picture_there_is_no_detector() -> None:
    assert guess_task({"x": Tensor((1, 64))}, one(1, 84, 8400)).kind == "dense"
    two = {"a": Tensor((1, 3, 64, 64)), "b": Tensor((1, 3, 64, 64))}
    assert guess_task(two, one(1, 2, 64, 64)).kind == "dense"


def test_open_sizes_are_no_hindrance() -> None:
    open_picture = {"x": Tensor((None, 3, None, None))}
    assert guess_task(open_picture, one(None, 84, 8400)).kind == "detection"
    assert guess_task(open_picture, one(None, 21, None, None)).kind == "segmentation"


def test_what_was_guessed_are_settings_of_the_task() -> None:
    detector = guess_task(PICTURE, one(1, 84, 8400))
    task = plugins.build(plugins.TASKS, {"kind": "detection", **detector.settings})
    assert (task.decoder, task.classes, task.size) == ("yolov8", 80, (640, 640))
    segmenter = guess_task(PICTURE, one(1, 640, 640, 21))
    assert (
        plugins.build(plugins.TASKS, {"kind": "segmentation", **segmenter.settings}).layout
        == "NHWC"
    )


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("logits", (None, None, 32000), "language-model"),
        ("last_hidden_state", (None, None, 384), "embedding"),
        ("sentence_embedding", (None, 384), "embedding"),
        ("logits", (None, 3), "text-classification"),
        ("logits", (None, None, 9), None),  # classes of tokens
        ("score", (None, 1), None),
    ],
)
def test_models_of_texts(name: str, shape: tuple[int | None, ...], kind: str | None) -> None:
    inputs = {"input_ids": Tensor((None, None), "int64")}
    found = guess_text_task(inputs, {name: Tensor(shape)})
    assert (found.kind if found else None) == kind

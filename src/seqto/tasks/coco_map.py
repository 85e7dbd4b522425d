"""COCO's mAP by pycocotools itself, so that figures are those that papers have."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqto.errors import ConfigError
from seqto.tasks.answers import Answers, Values, spans

EXTRA = "pip install 'seqto[detection]'"


def coco_results(
    answers: Answers,
    *,
    image_ids: Sequence[int] | None = None,
    category_ids: Sequence[int] | None = None,
) -> list[dict[str, Any]]:
    """Return boxes in COCO's format of results; ids are positions where none are given."""
    assert answers.lengths is not None
    images = range(1, len(answers.lengths) + 1) if image_ids is None else image_ids
    owners = np.repeat(np.asarray(list(images), dtype=np.int64), answers.lengths)
    classes = np.asarray(answers.values["classes"], dtype=np.int64)
    names = classes + 1 if category_ids is None else np.asarray(category_ids)[classes]
    return [
        {"image_id": int(i), "category_id": int(c), "bbox": b, "score": float(s)}
        for i, c, b, s in zip(
            owners, names, _xywh(answers.values["boxes"]), answers.values["scores"], strict=True
        )
    ]


def coco_truth(labels: Answers) -> dict[str, Any]:
    """Return labels in COCO's format of annotations; ids are positions, beginning with 1."""
    assert labels.lengths is not None
    classes = np.asarray(labels.values["classes"], dtype=np.int64)
    crowd = labels.values.get("crowd", np.zeros(len(classes), dtype=bool))
    boxes = _xywh(labels.values["boxes"])
    notes = []
    for image, items in enumerate(spans(labels.lengths), start=1):
        for k in range(items.start, items.stop):
            notes.append(
                {
                    "id": k + 1,
                    "image_id": image,
                    "category_id": int(classes[k]) + 1,
                    "bbox": boxes[k],
                    "area": boxes[k][2] * boxes[k][3],  # only sizes of objects would read it
                    "iscrowd": int(crowd[k]),
                }
            )
    return {
        "images": [{"id": i + 1} for i in range(len(labels.lengths))],
        "annotations": notes,
        "categories": [{"id": int(c) + 1} for c in np.unique(classes)],
    }


def coco_scores(answers: Answers, labels: Answers) -> Mapping[str, float]:
    """Return mAP (IoU 0.50 to 0.95) and AP50; nothing where no object is labelled."""
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise ConfigError(f"mAP needs pycocotools: {EXTRA}") from error
    truth = coco_truth(labels)
    if all(note["iscrowd"] for note in truth["annotations"]):
        return {}
    results = coco_results(answers)
    if not results:
        return {"mAP": 0.0, "AP50": 0.0}
    with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
        given = COCO()
        given.dataset = truth
        given.createIndex()
        evaluation = COCOeval(given, given.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {"mAP": float(evaluation.stats[0]), "AP50": float(evaluation.stats[1])}


def _xywh(boxes: Values) -> list[list[float]]:
    found = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    sides: list[list[float]] = np.concatenate(
        [found[:, :2], found[:, 2:] - found[:, :2]], axis=1
    ).tolist()
    return sides

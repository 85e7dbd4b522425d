"""COCO's mAP by pycocotools itself, so that figures are those that papers have."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqto.errors import ConfigError
from seqto.tasks.answers import Values, spans
from seqto.tasks.task import Answers

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
    return CocoScorer(answers, labels).scores()


class CocoScorer:
    """pycocotools' evaluation of answers: boxes are matched once, then any pictures are scored.

    A bootstrap over pictures asks for hundreds of scores; matching is nine tenths of the work.
    """

    def __init__(self, answers: Answers, labels: Answers) -> None:
        assert labels.lengths is not None
        self.pictures = len(labels.lengths)
        self._truth = coco_truth(labels)
        results = coco_results(answers)
        self._evaluation = self._matched(results) if results and self._truth["categories"] else None
        # classes of objects that count in each picture: without any there is no score
        crowd = labels.values.get("crowd", np.zeros(int(labels.lengths.sum()), dtype=bool))
        self._objects = np.array([int((~crowd[s]).sum()) for s in spans(labels.lengths)])

    def scores(self, rows: Values | None = None) -> Mapping[str, float]:
        """Return the scores of all pictures, or of these, which may be named more than once."""
        chosen = np.arange(self.pictures) if rows is None else np.asarray(rows, dtype=np.int64)
        if not self._objects[chosen].sum():
            return {}
        if self._evaluation is None:
            return {"mAP": 0.0, "AP50": 0.0}
        evaluation = copy.copy(self._evaluation)
        settings = copy.copy(self._evaluation.params)
        settings.imgIds = list(range(len(chosen)))
        evaluation.params = evaluation._paramsEval = settings
        by_class = np.array(self._evaluation.evalImgs, dtype=object).reshape(-1, self.pictures)
        evaluation.evalImgs = by_class[:, chosen].ravel().tolist()
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
            evaluation.accumulate()
        precision = evaluation.eval["precision"]  # IoU, recall, class, area, boxes a picture
        both = {"mAP": precision, "AP50": precision[:1]}
        return {name: float(table[table > -1].mean()) for name, table in both.items()}

    def _matched(self, results: list[dict[str, Any]]) -> Any:
        try:
            from pycocotools.coco import COCO
            from pycocotools.cocoeval import COCOeval
        except ImportError as error:
            raise ConfigError(f"mAP needs pycocotools: {EXTRA}") from error
        with contextlib.redirect_stdout(io.StringIO()):
            truth = COCO()
            truth.dataset = self._truth
            truth.createIndex()
            evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
            # of the twelve figures of `summarize` two are wanted: objects of all sizes, 100 boxes
            evaluation.params.areaRng = evaluation.params.areaRng[:1]
            evaluation.params.areaRngLbl = evaluation.params.areaRngLbl[:1]
            evaluation.params.maxDets = evaluation.params.maxDets[-1:]
            evaluation.evaluate()
        return evaluation


def _xywh(boxes: Values) -> list[list[float]]:
    corners = np.asarray(boxes, dtype=np.float64).reshape(-1, 4)
    sides: list[list[float]] = np.concatenate(
        [corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1
    ).tolist()
    return sides

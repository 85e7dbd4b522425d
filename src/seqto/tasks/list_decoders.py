"""Decoders of outputs that list boxes: boxes and scores apart, after NMS, or one row a query."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from seqto.errors import ModelError
from seqto.tasks.answers import Named
from seqto.tasks.candidates import (
    Candidates,
    DecoderSettings,
    apply_activation,
    class_columns,
    first_output,
    from_centre,
    in_corners,
    misfit,
    three_axes,
    without_background,
)


def boxes_scores(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode boxes n × cells × 4 (or n × cells × 1 × 4) and scores n × cells × classes."""
    boxes_name, scores_name = _box_and_score(outputs)
    boxes = outputs[boxes_name]
    boxes = boxes.reshape(len(boxes), -1, 4)
    scores = np.asarray(outputs[scores_name])
    if scores.ndim == 2:
        scores = scores[:, :, None]
    if scores.shape[1] != boxes.shape[1] and scores.shape[2] == boxes.shape[1]:
        scores = scores.transpose(0, 2, 1)
    if scores.shape[:2] != boxes.shape[:2]:
        raise misfit("boxes-scores", "boxes and scores of the same cells", scores.shape)
    activated = apply_activation(scores, settings.activation)
    if settings.classes is not None:
        activated = activated[..., : settings.classes]
    return Candidates(in_corners(boxes, settings), without_background(activated, settings))


def ssd(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode boxes n × m × 4, scores n × m, classes n × m, and a count where there is one."""
    names = ssd_names({name: value.shape for name, value in outputs.items()})
    if names is None:
        shapes = [list(value.shape) for value in outputs.values()]
        raise ModelError(
            f"decode = 'ssd' needs boxes n × m × 4, scores n × m and classes n × m, with 'box', "
            f"'score', 'class' or 'label' in their names; the outputs have shapes {shapes}"
        )
    boxes = np.asarray(outputs[names["boxes"]])
    boxes = boxes.reshape(boxes.shape[0] if boxes.ndim == 3 else 1, -1, 4)
    n, cells = boxes.shape[:2]
    scores = np.array(outputs[names["scores"]], dtype=np.float64).reshape(n, cells)
    classes = np.asarray(outputs[names["classes"]]).reshape(n, cells).astype(np.int64)
    if "count" in names:
        count = np.asarray(outputs[names["count"]]).reshape(n, 1)
        scores[np.arange(cells)[None] >= count] = 0.0
    return Candidates(in_corners(boxes, settings), scores, classes)


def after_nms(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode boxes after suppression, in rows of 6 or 7 numbers.

    m × 6 a sample: x1, y1, x2, y2, score, class. m × 7: sample, x1, y1, x2, y2, class, score.
    """
    values = np.asarray(first_output(outputs))
    columns = values.shape[-1]
    if columns not in (6, 7):
        raise misfit("nms", "m × 6 or m × 7 a sample", values.shape)
    rows = values.reshape(values.shape[0] if values.ndim == 3 else 1, -1, columns)
    box, score, kind = (0, 4, 5) if columns == 6 else (1, 6, 5)
    boxes = in_corners(rows[..., box : box + 4], settings)
    # padding rows have a score of 0 or a class of -1; they must not become boxes
    scores = np.where(rows[..., kind] >= 0, rows[..., score], 0.0)
    with np.errstate(invalid="ignore"):
        return Candidates(boxes, scores, np.nan_to_num(rows[..., kind]).astype(np.int64))


def queries(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode n × queries × (4 + classes): centre and size in shares of the input, scores."""
    values = three_axes(first_output(outputs), "queries", "n × queries × (4 + classes)")
    boxes = from_centre(values[..., :4])
    if settings.size is not None:
        height, width = settings.size
        boxes = boxes * np.array([width, height, width, height], dtype=np.float64)
    scores = apply_activation(class_columns(values, 4, settings, "queries"), settings.activation)
    return Candidates(boxes, without_background(scores, settings))


def ssd_names(shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, str] | None:
    """Return which output holds boxes, scores, classes and (perhaps) the count; None: no fit."""
    name_of: dict[str, str] = {}
    for name, shape in shapes.items():
        low = name.lower()
        # names first: the scores of four boxes have the shape of one box
        if "score" in low or "conf" in low:
            name_of.setdefault("scores", name)
        elif "num" in low or "count" in low:
            name_of.setdefault("count", name)
        elif "class" in low or "label" in low:
            name_of.setdefault("classes", name)
        elif shape and shape[-1] == 4 and len(shape) in (2, 3):
            name_of.setdefault("boxes", name)
    ranks = [len(shapes[name_of[key]]) for key in ("scores", "classes") if key in name_of]
    complete = {"boxes", "scores", "classes"} <= set(name_of)
    return name_of if complete and max(ranks) < 3 else None


def _box_and_score(outputs: Named) -> tuple[str, str]:
    boxes = [name for name, value in outputs.items() if value.ndim > 2 and value.shape[-1] == 4]
    # four classes look like boxes too: the name decides
    boxes.sort(key=lambda name: "box" not in name.lower())
    others = (
        [name for name, v in outputs.items() if name != boxes[0] and v.ndim in (2, 3)]
        if (boxes)
        else []
    )
    if not others:
        shapes = [list(value.shape) for value in outputs.values()]
        raise ModelError(
            "decode = 'boxes-scores' needs boxes n × cells × 4 and scores n × cells × classes, "
            f"the outputs have shapes {shapes}"
        )
    return boxes[0], others[0]

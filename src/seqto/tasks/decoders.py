"""Raw outputs of detectors → candidate boxes with scores, before thresholds and suppression.

A decoder takes the outputs of n samples by name and returns `Candidates`. Boxes are x1, y1, x2, y2
in input pixels (shares of the input where the model gives shares and the size is not known).
A user's own decoder is a function that returns (boxes n × cells × 4, scores n × cells × classes).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError, ModelError, nearest
from seqto.tasks.answers import Named
from seqto.tasks.levels import decode_levels, find_levels

Numbers = NDArray[Any]
Size = tuple[int, int]  # height, width of the input

STRIDES = (8, 16, 32)  # of the three grids of YOLO heads
FASTESTDET_STRIDE = 16
BOX_FORMATS = ("xyxy", "cxcywh", "yxyx")
ACTIVATIONS = ("none", "sigmoid", "softmax")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Boxes of n samples with scores for all classes, or with one score and class a box."""

    boxes: Numbers  # (n, cells, 4)
    scores: Numbers  # (n, cells, classes), or (n, cells) where `classes` is given
    classes: Numbers | None = None  # (n, cells); given: the model has suppressed already


@dataclass(frozen=True, slots=True)
class Shape:
    """Settings that decoders read: what the outputs' shapes do not say."""

    classes: int | None = None
    size: Size | None = None
    box_format: str = "xyxy"
    activation: str = "none"
    normalised: bool = False
    background: int | None = None  # the class that is no object


Decoder = Callable[[Named, Shape], Candidates]


# ------------------------------------------------------------------------------------ YOLO's heads


def yolov8(outputs: Named, shape: Shape) -> Candidates:
    """n × (4 + classes) × cells: centre, size in input pixels, class scores of 0–1."""
    values = _three_axes(_first(outputs), "yolov8", "n × (4 + classes) × cells")
    cells = values.transpose(0, 2, 1)
    return Candidates(_from_centre(cells[..., :4]), _classes(cells, 4, shape, "yolov8"))


def yolov5(outputs: Named, shape: Shape) -> Candidates:
    """n × cells × (5 + classes): centre, size in input pixels, objectness, class scores."""
    values = _three_axes(_first(outputs), "yolov5", "n × cells × (5 + classes)")
    scores = _classes(values, 5, shape, "yolov5") * values[..., 4:5]
    return Candidates(_from_centre(values[..., :4]), scores)


def yolox(outputs: Named, shape: Shape) -> Candidates:
    """n × cells × (5 + classes): offsets in the cell and log sizes in strides of 8, 16, 32."""
    values = _three_axes(_first(outputs), "yolox", "n × cells × (5 + classes)")
    size = shape.size or square_of(values.shape[1])
    if size is None or cells_of(size) != values.shape[1]:
        raise ModelError(
            f"decode = 'yolox': {values.shape[1]} cells are not those of grids with strides "
            f"8, 16, 32{'' if size is None else f' on {size[0]}×{size[1]}'}: set task.size to "
            "[height, width] of the input, or task.decode to another decoder"
        )
    corner, stride = _grids(size)
    centre = (values[..., :2] + corner) * stride
    with np.errstate(over="ignore"):
        sides = np.exp(values[..., 2:4]) * stride
    boxes = _from_centre(np.concatenate([centre, sides], axis=-1))
    return Candidates(boxes, _classes(values, 5, shape, "yolox") * values[..., 4:5])


def fastestdet(outputs: Named, shape: Shape) -> Candidates:
    """n × (5 + classes) × H × W: objectness (0–1), x, y, w, h (raw), softmax over classes.

    One class a cell: the best. The score is objectness^0.6 · class^0.4, as its authors have it.
    """
    values = _first(outputs)
    if values.ndim != 4 or values.shape[1] < 6:
        raise _misfit("fastestdet", "n × (5 + classes) × H × W", values.shape)
    n, _, height, width = values.shape
    high, wide = shape.size or (FASTESTDET_STRIDE * height, FASTESTDET_STRIDE * width)
    y, x = np.mgrid[:height, :width]
    centre_x = (np.tanh(values[:, 1]) + x) * (wide / width)
    centre_y = (np.tanh(values[:, 2]) + y) * (high / height)
    sides = _sigmoid(values[:, 3]) * wide, _sigmoid(values[:, 4]) * high
    boxes = np.stack([centre_x, centre_y, *sides], axis=-1).reshape(n, -1, 4)
    kinds = values[:, 5:].reshape(n, values.shape[1] - 5, -1).transpose(0, 2, 1)
    objects = np.clip(values[:, 0].reshape(n, -1, 1), 0.0, None)
    scores = objects**0.6 * np.clip(kinds, 0.0, None) ** 0.4
    best = scores >= scores.max(axis=2, keepdims=True)
    return Candidates(_from_centre(boxes), np.where(best, scores, 0.0))


# ------------------------------------------------------------------------- boxes and scores apart


def boxes_scores(outputs: Named, shape: Shape) -> Candidates:
    """Two outputs: boxes n × cells × 4 (or n × cells × 1 × 4) and scores n × cells × classes."""
    boxes_name, scores_name = _box_and_score(outputs)
    boxes = outputs[boxes_name]
    boxes = boxes.reshape(len(boxes), -1, 4)
    scores = np.asarray(outputs[scores_name])
    if scores.ndim == 2:
        scores = scores[:, :, None]
    if scores.shape[1] != boxes.shape[1] and scores.shape[2] == boxes.shape[1]:
        scores = scores.transpose(0, 2, 1)
    if scores.shape[:2] != boxes.shape[:2]:
        raise _misfit("boxes-scores", "boxes and scores of the same cells", scores.shape)
    activated = _activated(scores, shape.activation)
    if shape.classes is not None:
        activated = activated[..., : shape.classes]
    return Candidates(_corners(boxes, shape), _objects(activated, shape))


def ssd(outputs: Named, shape: Shape) -> Candidates:
    """Boxes n × m × 4, scores n × m, classes n × m, and a count where the model gives one."""
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
    return Candidates(_corners(boxes, shape), scores, classes)


def after_nms(outputs: Named, shape: Shape) -> Candidates:
    """m × 6 a sample: x1, y1, x2, y2, score, class. m × 7: sample, x1, y1, x2, y2, class, score."""
    values = np.asarray(_first(outputs))
    columns = values.shape[-1]
    if columns not in (6, 7):
        raise _misfit("nms", "m × 6 or m × 7 a sample", values.shape)
    rows = values.reshape(values.shape[0] if values.ndim == 3 else 1, -1, columns)
    box, score, kind = (0, 4, 5) if columns == 6 else (1, 6, 5)
    boxes = _corners(rows[..., box : box + 4], shape)
    # padding rows have a score of 0 or a class of -1; they must not become boxes
    scores = np.where(rows[..., kind] >= 0, rows[..., score], 0.0)
    with np.errstate(invalid="ignore"):
        return Candidates(boxes, scores, np.nan_to_num(rows[..., kind]).astype(np.int64))


def queries(outputs: Named, shape: Shape) -> Candidates:
    """n × queries × (4 + classes): centre and size in shares of the input, class scores."""
    values = _three_axes(_first(outputs), "queries", "n × queries × (4 + classes)")
    boxes = _from_centre(values[..., :4])
    if shape.size is not None:
        height, width = shape.size
        boxes = boxes * np.array([width, height, width, height], dtype=np.float64)
    scores = _activated(_classes(values, 4, shape, "queries"), shape.activation)
    return Candidates(boxes, _objects(scores, shape))


def levels(outputs: Named, shape: Shape) -> Candidates:
    """Scores and boxes of each stride in outputs of their own (levels.py)."""
    found = find_levels({name: value.shape for name, value in outputs.items()}, shape.size)
    if found is None:
        shapes = [list(value.shape) for value in outputs.values()]
        on = "" if shape.size is None else f" on {shape.size[0]}×{shape.size[1]}"
        raise ModelError(
            "decode = 'levels' needs scores and boxes of each stride's cells, the outputs have "
            f"shapes {shapes}{on}: set task.size to [height, width] of the input, or set "
            "task.output or task.decode"
        )
    boxes, scores = decode_levels(outputs, found)
    return Candidates(boxes, _objects(_activated(scores, shape.activation), shape))


DECODERS: Mapping[str, Decoder] = {
    "yolov5": yolov5,
    "yolov8": yolov8,
    "yolov11": yolov8,
    "yolox": yolox,
    "boxes-scores": boxes_scores,
    "ssd": ssd,
    "nms": after_nms,
    "queries": queries,
    "levels": levels,
    "fastestdet": fastestdet,
}


def find_decoder(decode: str) -> Decoder:
    """Return a built-in decoder by name, or a user's function by `package.module:function`."""
    if ":" not in decode:
        if decode not in DECODERS:
            known = ", ".join(DECODERS)
            raise ConfigError(
                f"task.decode = {decode!r} is no decoder{nearest(decode, list(DECODERS))} "
                f"(known: {known}; your own: package.module:function)"
            )
        return DECODERS[decode]
    module, _, name = decode.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:  # a user's module may raise anything while it loads
        raise ConfigError(
            f"task.decode = {decode!r} cannot be imported: {error}; is the module's folder in "
            "PYTHONPATH?"
        ) from error
    if not callable(function):
        raise ConfigError(f"task.decode = {decode!r} names no function")

    def decode_own(outputs: Named, _shape: Shape) -> Candidates:
        try:
            boxes, scores = (np.asarray(value) for value in function(outputs))
        except Exception as error:  # a user's function
            raise ModelError(f"task.decode = {decode!r} failed: {error!r}") from error
        if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.shape[:2] != boxes.shape[:2]:
            raise ModelError(
                f"task.decode = {decode!r} returned shapes {list(boxes.shape)} and "
                f"{list(scores.shape)}: boxes n × cells × 4 and scores n × cells × classes are "
                "needed"
            )
        return Candidates(boxes, scores if scores.ndim == 3 else scores[:, :, None])

    return decode_own


# ------------------------------------------------------------------------------------ small pieces


def cells_of(size: Size, *, strides: Sequence[int] = STRIDES) -> int:
    """Return the number of cells of grids on an input of this size."""
    return sum(math.ceil(size[0] / s) * math.ceil(size[1] / s) for s in strides)


def square_of(cells: int) -> Size | None:
    """Return the square input that has so many cells, None where none has."""
    side = 32 * math.isqrt(cells // 21)  # 1 + 4 + 16 cells for every 32 × 32 pixels
    return (side, side) if side and cells_of((side, side)) == cells else None


def ssd_names(shapes: Mapping[str, tuple[int | None, ...]]) -> dict[str, str] | None:
    """Return which output holds boxes, scores, classes and (perhaps) the count; None: no fit."""
    found: dict[str, str] = {}
    for name, shape in shapes.items():
        low = name.lower()
        # names first: the scores of four boxes have the shape of one box
        if "score" in low or "conf" in low:
            found.setdefault("scores", name)
        elif "num" in low or "count" in low:
            found.setdefault("count", name)
        elif "class" in low or "label" in low:
            found.setdefault("classes", name)
        elif shape and shape[-1] == 4 and len(shape) in (2, 3):
            found.setdefault("boxes", name)
    ranks = [len(shapes[found[key]]) for key in ("scores", "classes") if key in found]
    complete = {"boxes", "scores", "classes"} <= set(found)
    return found if complete and max(ranks) < 3 else None


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


def _first(outputs: Named) -> Numbers:
    return np.asarray(next(iter(outputs.values())))


def _three_axes(values: Numbers, decode: str, wanted: str) -> Numbers:
    if values.ndim == 4 and 1 in values.shape[1:]:
        axis = 1 + values.shape[1:].index(1)
        values = values.squeeze(axis)
    if values.ndim != 3:
        raise _misfit(decode, wanted, values.shape)
    return values


def _classes(cells: Numbers, start: int, shape: Shape, decode: str) -> Numbers:
    """Return the columns with class scores: `classes` of them, or all that are left."""
    stop = cells.shape[-1] if shape.classes is None else start + shape.classes
    if not start < stop <= cells.shape[-1]:
        raise ModelError(
            f"decode = {decode!r}: a cell has {cells.shape[-1]} numbers, {start} of them are no "
            f"class: task.classes = {shape.classes} does not fit"
        )
    return cells[..., start:stop]


def _from_centre(values: Numbers) -> Numbers:
    """Centre and size → corners."""
    centre, half = values[..., :2], values[..., 2:4] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def _objects(scores: Numbers, shape: Shape) -> Numbers:
    """Scores with that of the background at 0: it is no box, but classes keep their numbers."""
    if shape.background is None:
        return scores
    if not -scores.shape[-1] <= shape.background < scores.shape[-1]:
        raise ModelError(
            f"task.background = {shape.background} is no class: there are {scores.shape[-1]}"
        )
    kept = np.array(scores)
    kept[..., shape.background] = 0.0
    return kept


def _corners(boxes: Numbers, shape: Shape) -> Numbers:
    if shape.box_format == "cxcywh":
        boxes = _from_centre(boxes)
    elif shape.box_format == "yxyx":
        boxes = boxes[..., [1, 0, 3, 2]]
    if shape.normalised and shape.size is not None:
        height, width = shape.size
        boxes = boxes * np.array([width, height, width, height], dtype=np.float64)
    return boxes


def _grids(size: Size) -> tuple[Numbers, Numbers]:
    corners, strides = [], []
    for stride in STRIDES:
        high, wide = math.ceil(size[0] / stride), math.ceil(size[1] / stride)
        y, x = np.mgrid[:high, :wide]
        corners.append(np.stack([x, y], axis=-1).reshape(-1, 2))
        strides.append(np.full((high * wide, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(strides).astype(np.float32)


def _activated(scores: Numbers, activation: str) -> Numbers:
    if activation == "sigmoid":
        return _sigmoid(scores)
    if activation == "softmax":
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
    return scores


def _sigmoid(values: Numbers) -> Numbers:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-values)))


def _misfit(decode: str, wanted: str, shape: tuple[int, ...]) -> ModelError:
    return ModelError(
        f"decode = {decode!r} needs an output of {wanted}, the model's is {list(shape)}: set "
        "task.output or task.decode"
    )

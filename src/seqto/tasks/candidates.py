"""Candidate boxes of a detector, and the arithmetic that decoders have in common.

Boxes are x1, y1, x2, y2 in input pixels (shares of the input where the model gives shares and the
size is not known).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ModelError
from seqto.tasks.answers import Named

Numbers = NDArray[Any]
Size = tuple[int, int]  # height, width of the input

BOX_FORMATS = ("xyxy", "cxcywh", "yxyx")
ACTIVATIONS = ("none", "sigmoid", "softmax")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Boxes of n samples with scores for all classes, or with one score and class a box."""

    boxes: Numbers  # (n, cells, 4)
    scores: Numbers  # (n, cells, classes), or (n, cells) where `classes` is given
    classes: Numbers | None = None  # (n, cells); given: the model has suppressed already


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """Settings of task.* that say what the outputs' shapes do not."""

    classes: int | None = None
    size: Size | None = None
    box_format: str = "xyxy"
    activation: str = "none"
    normalised: bool = False
    background: int | None = None  # the class that is no object


Decoder = Callable[[Named, DecoderSettings], Candidates]


def first_output(outputs: Named) -> Numbers:
    return np.asarray(next(iter(outputs.values())))


def three_axes(values: Numbers, decode: str, expected: str) -> Numbers:
    if values.ndim == 4 and 1 in values.shape[1:]:
        axis = 1 + values.shape[1:].index(1)
        values = values.squeeze(axis)
    if values.ndim != 3:
        raise misfit(decode, expected, values.shape)
    return values


def class_columns(cells: Numbers, start: int, settings: DecoderSettings, decode: str) -> Numbers:
    """Return the columns with class scores: `classes` of them, or all that are left."""
    stop = cells.shape[-1] if settings.classes is None else start + settings.classes
    if not start < stop <= cells.shape[-1]:
        raise ModelError(
            f"decode = {decode!r}: a cell has {cells.shape[-1]} numbers, {start} of them are no "
            f"class: task.classes = {settings.classes} does not fit"
        )
    return cells[..., start:stop]


def from_centre(values: Numbers) -> Numbers:
    """Return the corners of boxes that are given by centre and size."""
    centre, half = values[..., :2], values[..., 2:4] / 2
    return np.concatenate([centre - half, centre + half], axis=-1)


def in_corners(boxes: Numbers, settings: DecoderSettings) -> Numbers:
    if settings.box_format == "cxcywh":
        boxes = from_centre(boxes)
    elif settings.box_format == "yxyx":
        boxes = boxes[..., [1, 0, 3, 2]]
    if settings.normalised and settings.size is not None:
        height, width = settings.size
        boxes = boxes * np.array([width, height, width, height], dtype=np.float64)
    return boxes


def without_background(scores: Numbers, settings: DecoderSettings) -> Numbers:
    """Return scores with the background's at 0: it is no box, but classes keep their numbers."""
    if settings.background is None:
        return scores
    if not -scores.shape[-1] <= settings.background < scores.shape[-1]:
        raise ModelError(
            f"task.background = {settings.background} is no class: there are {scores.shape[-1]}"
        )
    cleared = np.array(scores)
    cleared[..., settings.background] = 0.0
    return cleared


def apply_activation(scores: Numbers, activation: str) -> Numbers:
    if activation == "sigmoid":
        return sigmoid(scores)
    if activation == "softmax":
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
    return scores


def sigmoid(values: Numbers) -> Numbers:
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-values)))


def misfit(decode: str, expected: str, shape: tuple[int, ...]) -> ModelError:
    return ModelError(
        f"decode = {decode!r} needs an output of {expected}, the model's is {list(shape)}: set "
        "task.output or task.decode"
    )

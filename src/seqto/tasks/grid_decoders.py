"""Decoders of heads that have a box for every cell of a grid: YOLO's and raw heads by stride."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from seqto.errors import ModelError
from seqto.tasks.answers import Named
from seqto.tasks.candidates import (
    Candidates,
    DecoderSettings,
    Numbers,
    Size,
    apply_activation,
    class_columns,
    first_output,
    from_centre,
    misfit,
    sigmoid,
    three_axes,
    without_background,
)
from seqto.tasks.levels import decode_levels, find_levels

STRIDES = (8, 16, 32)  # of the three grids of YOLO heads
FASTESTDET_STRIDE = 16


def yolov8(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode n × (4 + classes) × cells: centre, size in input pixels, class scores of 0–1."""
    values = three_axes(first_output(outputs), "yolov8", "n × (4 + classes) × cells")
    cells = values.transpose(0, 2, 1)
    return Candidates(from_centre(cells[..., :4]), class_columns(cells, 4, settings, "yolov8"))


def yolov5(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode n × cells × (5 + classes): centre, size in input pixels, objectness, class scores."""
    values = three_axes(first_output(outputs), "yolov5", "n × cells × (5 + classes)")
    scores = class_columns(values, 5, settings, "yolov5") * values[..., 4:5]
    return Candidates(from_centre(values[..., :4]), scores)


def yolox(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode n × cells × (5 + classes): offsets in the cell, log sizes in strides of 8, 16, 32."""
    values = three_axes(first_output(outputs), "yolox", "n × cells × (5 + classes)")
    size = settings.size or square_of(values.shape[1])
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
    boxes = from_centre(np.concatenate([centre, sides], axis=-1))
    return Candidates(boxes, class_columns(values, 5, settings, "yolox") * values[..., 4:5])


def fastestdet(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode n × (5 + classes) × H × W: objectness (0–1), x, y, w, h (raw), class shares.

    One class a cell: the best. The score is objectness^0.6 · class^0.4, as its authors have it.
    """
    values = first_output(outputs)
    if values.ndim != 4 or values.shape[1] < 6:
        raise misfit("fastestdet", "n × (5 + classes) × H × W", values.shape)
    n, _, height, width = values.shape
    high, wide = settings.size or (FASTESTDET_STRIDE * height, FASTESTDET_STRIDE * width)
    y, x = np.mgrid[:height, :width]
    centre_x = (np.tanh(values[:, 1]) + x) * (wide / width)
    centre_y = (np.tanh(values[:, 2]) + y) * (high / height)
    sides = sigmoid(values[:, 3]) * wide, sigmoid(values[:, 4]) * high
    boxes = np.stack([centre_x, centre_y, *sides], axis=-1).reshape(n, -1, 4)
    kinds = values[:, 5:].reshape(n, values.shape[1] - 5, -1).transpose(0, 2, 1)
    objects = np.clip(values[:, 0].reshape(n, -1, 1), 0.0, None)
    scores = objects**0.6 * np.clip(kinds, 0.0, None) ** 0.4
    best = scores >= scores.max(axis=2, keepdims=True)
    return Candidates(from_centre(boxes), np.where(best, scores, 0.0))


def levels(outputs: Named, settings: DecoderSettings) -> Candidates:
    """Decode scores and boxes of each stride in outputs of their own (levels.py)."""
    heads = find_levels({name: value.shape for name, value in outputs.items()}, settings.size)
    if heads is None:
        shapes = [list(value.shape) for value in outputs.values()]
        on = "" if settings.size is None else f" on {settings.size[0]}×{settings.size[1]}"
        raise ModelError(
            "decode = 'levels' needs scores and boxes of each stride's cells, the outputs have "
            f"shapes {shapes}{on}: set task.size to [height, width] of the input, or set "
            "task.output or task.decode"
        )
    boxes, scores = decode_levels(outputs, heads)
    scores = apply_activation(scores, settings.activation)
    return Candidates(boxes, without_background(scores, settings))


def cells_of(size: Size, *, strides: Sequence[int] = STRIDES) -> int:
    """Return the number of cells of grids on an input of this size."""
    return sum(math.ceil(size[0] / s) * math.ceil(size[1] / s) for s in strides)


def square_of(cells: int) -> Size | None:
    """Return the square input that has so many cells, None where none has."""
    side = 32 * math.isqrt(cells // 21)  # 1 + 4 + 16 cells for every 32 × 32 pixels
    return (side, side) if side and cells_of((side, side)) == cells else None


def _grids(size: Size) -> tuple[Numbers, Numbers]:
    corners, strides = [], []
    for stride in STRIDES:
        high, wide = math.ceil(size[0] / stride), math.ceil(size[1] / stride)
        y, x = np.mgrid[:high, :wide]
        corners.append(np.stack([x, y], axis=-1).reshape(-1, 2))
        strides.append(np.full((high * wide, 1), stride))
    return np.concatenate(corners).astype(np.float32), np.concatenate(strides).astype(np.float32)

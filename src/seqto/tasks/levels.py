"""Raw heads of anchor-free detectors: outputs of scores and of boxes for each stride.

A level is a grid of cells of one stride with `anchors` boxes a cell. Boxes are

    4 numbers      distances from the cell's corner to the box's sides in strides (SCRFD, FCOS)
    4 × bins       a distribution over 0 … bins − 1 for each distance from the middle (PicoDet)
    with objectness  offsets of the centre and log sizes in strides (YuNet)

Each level is told by its number of cells, so that heads without telling names are read too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.tasks.candidates import Numbers, Size

Sides = tuple[int | None, ...]

LEVEL_STRIDES = (4, 8, 16, 32, 64, 128)
MOST_ANCHORS = 3  # boxes a cell
BINS = (8, 16, 17)  # of a distribution over one distance, as published heads have them
LEAST_LEVELS = 2


@dataclass(frozen=True, slots=True)
class Level:
    """The outputs of one stride, by name."""

    stride: int
    anchors: int
    scores: str
    boxes: str
    objectness: str | None = None


@dataclass(frozen=True, slots=True)
class Levels:
    """All levels of a model, largest grid first."""

    size: Size  # height, width of the input
    classes: int
    bins: int | None  # None: plain distances
    levels: tuple[Level, ...]

    @property
    def cells(self) -> int:
        return sum(x.anchors * _grid(self.size, x.stride) for x in self.levels)


def find_levels(shapes: Mapping[str, Sides], size: Size | None) -> Levels | None:
    """Return the levels that these outputs are heads of; None where they are none."""
    groups = _by_cells(shapes)
    counts = sorted(groups, reverse=True)
    known = size or (_square(counts) if counts else None)
    placed = _strides(counts, known) if known else None
    widths = _widths(list(groups.values()))
    if known is None or placed is None or widths is None or len(counts) < LEAST_LEVELS:
        return None
    score, box = widths
    heads = [
        _level(groups[count], stride, anchors, score=score, box=box)
        for count, (stride, anchors) in zip(counts, placed, strict=True)
    ]
    levels = tuple(level for level in heads if level is not None)
    if len(levels) < len(heads) or len({x.objectness is None for x in levels}) > 1:
        return None
    return Levels(known, score, None if box == 4 else box // 4, levels)


def _by_cells(shapes: Mapping[str, Sides]) -> dict[int, dict[str, int]]:
    """Return cells → name and numbers a cell of each output.

    The mapping is empty where an output has other axes.
    """
    groups: dict[int, dict[str, int]] = {}
    for name, shape in shapes.items():
        cells, width = shape[-2:] if len(shape) in (2, 3) else (None, None)
        if not cells or not width:
            return {}
        groups.setdefault(cells, {})[name] = width
    return groups


def decode_levels(outputs: Mapping[str, Numbers], heads: Levels) -> tuple[Numbers, Numbers]:
    """Return boxes (n × cells × 4: corners in input pixels) and scores (n × cells × classes)."""
    boxes, scores = [], []
    for level in heads.levels:
        score = _rows(outputs[level.scores])
        box = _rows(outputs[level.boxes]).astype(np.float64)
        corner = _corners(heads.size, level)
        if level.objectness is None:
            sides = level.stride * _distances(box, heads.bins)
            origin = corner if heads.bins is None else corner + level.stride / 2
            boxes.append(np.concatenate([origin - sides[..., :2], origin + sides[..., 2:]], -1))
        else:
            centre = corner + level.stride * box[..., :2]
            with np.errstate(over="ignore"):
                half = level.stride * np.exp(box[..., 2:]) / 2
            boxes.append(np.concatenate([centre - half, centre + half], -1))
            both = np.clip(score, 0, 1) * np.clip(_rows(outputs[level.objectness]), 0, 1)
            score = np.sqrt(both)
        scores.append(score)
    return np.concatenate(boxes, axis=1), np.concatenate(scores, axis=1)


def _distances(box: Numbers, bins: int | None) -> Numbers:
    """Return plain distances, or the expectation of a distribution over 0 … bins − 1."""
    if bins is None:
        return box
    split = box.reshape(*box.shape[:2], 4, bins)
    powers = np.exp(split - split.max(axis=-1, keepdims=True))
    shares = powers / powers.sum(axis=-1, keepdims=True)
    return np.asarray(shares @ np.arange(bins, dtype=np.float64))


def _corners(size: Size, level: Level) -> Numbers:
    """Return the corners of the cells in pixels, once for every box of a cell."""
    high, wide = (math.ceil(side / level.stride) for side in size)
    y, x = np.mgrid[:high, :wide]
    cells = level.stride * np.stack([x, y], axis=-1).reshape(-1, 2)
    return np.repeat(cells, level.anchors, axis=0).astype(np.float64)


def _rows(values: Numbers) -> Numbers:
    """Return rows of n × cells × numbers; heads without an axis of samples are of one sample."""
    rows = np.asarray(values)
    return rows[None] if rows.ndim == 2 else rows


def _grid(size: Size, stride: int) -> int:
    return math.ceil(size[0] / stride) * math.ceil(size[1] / stride)


def _strides(counts: Sequence[int], size: Size) -> list[tuple[int, int]] | None:
    """Return stride and boxes a cell of each level; strides double from one level to the next."""
    for anchors in range(1, MOST_ANCHORS + 1):
        for start in range(len(LEVEL_STRIDES) - len(counts) + 1):
            strides = LEVEL_STRIDES[start : start + len(counts)]
            if [anchors * _grid(size, s) for s in strides] == list(counts):
                return [(s, anchors) for s in strides]
    return None


def _square(counts: Sequence[int]) -> Size | None:
    """Return the square input that has such levels with the usual first stride of 8."""
    for anchors in range(1, MOST_ANCHORS + 1):
        side = 8 * math.isqrt(counts[0] // anchors)
        if side and _strides(counts, (side, side)) is not None:
            return side, side
    return None


def _widths(groups: Sequence[Mapping[str, int]]) -> tuple[int, int] | None:
    """Return the numbers a cell of scores and of boxes, the same in all levels."""
    common = set.intersection(*(set(group.values()) for group in groups)) if groups else set()
    boxes = [w for w in (4, *(4 * bins for bins in BINS)) if w in common]
    if not boxes:
        return None
    # beside 4 numbers of a box, 10 are five key points: scores are the narrowest
    others = sorted(common - {boxes[0]})
    return (others[0], boxes[0]) if others else None


def _level(
    group: Mapping[str, int], stride: int, anchors: int, *, score: int, box: int
) -> Level | None:
    """Return the outputs of a level; two of a score's width must say which is the objectness."""
    boxes = [name for name, width in group.items() if width == box]
    scores = [name for name, width in group.items() if width == score]
    objects = [name for name in scores if "obj" in name.lower()]
    scores = [name for name in scores if name not in objects]
    if len(boxes) != 1 or len(scores) != 1 or len(objects) > 1:
        return None
    return Level(stride, anchors, scores[0], boxes[0], objects[0] if objects else None)

"""Guess of the decoder that fits a detector's outputs, from their shapes and names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from seqto.tasks.candidates import DecoderSettings, Size
from seqto.tasks.grid_decoders import FASTESTDET_STRIDE, cells_of, square_of
from seqto.tasks.levels import Sides, find_levels
from seqto.tasks.list_decoders import ssd_names

MOST_FINAL = 1000  # rows of an output after NMS; three grids on 224 × 224 have 1,029 cells
FEWEST_CELLS = 21


@dataclass(frozen=True, slots=True)
class DecoderGuess:
    """A decoder, what its outputs' names say about it, and the words for people."""

    decoder: str
    reason: str
    classes: int | None = None
    box_format: str | None = None
    activation: str | None = None
    normalised: bool = False

    @property
    def sentence(self) -> str:
        return f"taken for a detector, {self.reason}"

    def complete(self, settings: DecoderSettings) -> DecoderSettings:
        """Return the settings with what was guessed where they say nothing."""
        default = DecoderSettings()
        changes: dict[str, object] = {}
        for key in ("classes", "box_format", "activation", "normalised"):
            guessed = getattr(self, key)
            if guessed and getattr(settings, key) == getattr(default, key):
                changes[key] = guessed
        return dataclasses.replace(settings, **changes)  # type: ignore[arg-type]


def guess_decoder(shapes: Mapping[str, Sides], *, size: Size | None = None) -> DecoderGuess | None:
    """Return the decoder that fits these outputs (first axis: samples), None where none does."""
    for rule in (_ssd, _levels, _pair, _grid, _final, _fastestdet):
        guess = rule(shapes, size)
        if guess is not None:
            return guess
    return None


def _ssd(shapes: Mapping[str, Sides], _size: Size | None) -> DecoderGuess | None:
    names = ssd_names(shapes)
    if names is None:
        return None
    detail = "boxes, scores, classes" + (" and a count" if "count" in names else "")
    if any("detection_" in name.lower() for name in shapes):  # TensorFlow's names and order
        return DecoderGuess("ssd", f"SSD-shaped: {detail}", None, "yxyx", None, normalised=True)
    return DecoderGuess("ssd", f"SSD-shaped: {detail}")


def _levels(shapes: Mapping[str, Sides], size: Size | None) -> DecoderGuess | None:
    """Recognise scores and boxes of each stride in outputs of their own."""
    levels = find_levels(shapes, size)
    if levels is None:
        return None
    strides = ", ".join(str(level.stride) for level in levels.levels)
    reason = f"raw heads of strides {strides}: {levels.cells} cells, {_classes(levels.classes)}"
    return DecoderGuess("levels", reason, levels.classes)


def _pair(shapes: Mapping[str, Sides], _size: Size | None) -> DecoderGuess | None:
    """Recognise boxes and scores of the same cells in two outputs."""
    boxes = {n: s for n, s in shapes.items() if len(s) in (3, 4) and s[-1] == 4 and _one(s[2:-1])}
    for name, shape in sorted(boxes.items(), key=lambda item: "box" not in item[0].lower()):
        others = {n: s for n, s in shapes.items() if n != name and len(s) == 3}
        for other, scores in others.items():
            if scores[1] != shape[1] or scores[2] is None:
                continue
            logits = "logit" in other.lower()
            detr = logits and "box" in name.lower()
            return DecoderGuess(
                "boxes-scores",
                f"boxes and scores in two outputs: {_cells(shape[1])}, {_classes(scores[2])}",
                None,
                "cxcywh" if detr else None,
                "sigmoid" if logits else None,
                normalised=detr,
            )
    return None


def _grid(shapes: Mapping[str, Sides], size: Size | None) -> DecoderGuess | None:
    """Recognise YOLO's heads: one tensor with all cells, perhaps mask prototypes beside it."""
    shape, *other_shapes = shapes.values()
    other_shapes = [s for s in other_shapes if len(s) != 5]  # older exports give the raw maps too
    prototypes = other_shapes[0][1] if len(other_shapes) == 1 and len(other_shapes[0]) == 4 else 0
    if (
        len(shape) != 3
        or None in shape[1:]
        or prototypes is None
        or len(other_shapes) > bool(prototypes)
    ):
        return None
    rows, columns = (side or 0 for side in shape[1:])
    if columns >= FEWEST_CELLS and columns > rows >= 5 + prototypes:
        classes = rows - 4 - prototypes
        return DecoderGuess("yolov8", f"YOLOv8-shaped: {rows} × {columns}", classes)
    anchors = anchors_of(rows, size)
    # boxes after NMS have 6 or 7 columns too, but seldom as many rows
    final = columns in (6, 7) and rows <= MOST_FINAL and not (size and anchors)
    if rows < FEWEST_CELLS or final or not rows > columns >= 6 + prototypes:
        return None
    classes = columns - 5 - prototypes
    if anchors == 1:
        return DecoderGuess("yolox", f"YOLOX-shaped: {rows} × {columns}, raw grids", classes)
    return DecoderGuess("yolov5", f"YOLOv5-shaped: {rows} × {columns}", classes)


def _final(shapes: Mapping[str, Sides], _size: Size | None) -> DecoderGuess | None:
    """Recognise one output of m × 6 or m × 7 a sample."""
    shape = next(iter(shapes.values()))
    if len(shapes) != 1 or len(shape) not in (2, 3) or shape[-1] not in (6, 7):
        return None
    if len(shape) == 2 and shape[0] is not None:
        return None  # six or seven classes of a classifier
    return DecoderGuess("nms", f"boxes after NMS: {_n(shape[-2])} × {shape[-1]}")


def _fastestdet(shapes: Mapping[str, Sides], size: Size | None) -> DecoderGuess | None:
    shape = next(iter(shapes.values()))
    if len(shapes) != 1 or len(shape) != 4 or shape[1] != 85 or None in shape[2:]:
        return None
    grid = tuple(FASTESTDET_STRIDE * (side or 0) for side in shape[2:])
    if size is not None and grid != size:
        return None
    return DecoderGuess("fastestdet", f"FastestDet-shaped: 85 × {shape[2]} × {shape[3]}", 80)


def anchors_of(cells: int, size: Size | None) -> int | None:
    """Return how many boxes each cell of the three grids has: 1 or 3; None: no such grids."""
    for anchors in (1, 3):
        inner, remainder = divmod(cells, anchors)
        if remainder == 0 and (square_of(inner) if size is None else cells_of(size) == inner):
            return anchors
    return None


GRIDS = ((8, 16, 32), (4, 8, 16, 32), (8, 16, 32, 64), (16, 32))  # strides of YOLO's heads
LARGEST_SIDE = 2048  # of a square input that is looked for


def is_grid(cells: int, size: Size | None, *, one_grid: bool = False) -> bool:
    """Return whether a detector's grids on an input of this size have so many cells.

    Without a size any square will do. With `one_grid` a single grid is enough.
    """
    strides = GRIDS + (((4,), (8,), (16,), (32,)) if one_grid else ())
    sizes = [size] if size else [(side, side) for side in range(32, LARGEST_SIDE + 1, 32)]
    return any(cells == cells_of(one, strides=grid) for one in sizes for grid in strides)


def _one(sides: Sides) -> bool:
    return all(side == 1 for side in sides)


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count} classes"


def _cells(count: int | None) -> str:
    return "any number of cells" if count is None else f"{count} cells"


def _n(side: int | None) -> str:
    return "any number" if side is None else str(side)

"""Boxes: overlap, class-wise suppression, matching of two sets, and how far two sets are apart.

A box is x1, y1, x2, y2. IoU does not change when both axes are scaled, so that all of this may be
done in input pixels, in picture pixels or in shares of the picture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Floats = NDArray[np.float64]
Rows = NDArray[np.int64]

BLOCK = 256  # candidates compared with each other at a time: 256² overlaps, whatever their number


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of one picture with their scores and classes."""

    boxes: Numbers  # (n, 4)
    scores: Numbers  # (n,)
    classes: Numbers  # (n,)

    def __len__(self) -> int:
        return len(self.boxes)

    def take(self, rows: Numbers) -> Boxes:
        return Boxes(self.boxes[rows], self.scores[rows], self.classes[rows])


def areas(boxes: Numbers) -> Floats:
    """Return the area of each box; 0 where a side is negative or not a number."""
    sides = np.asarray(boxes, dtype=np.float64)[:, 2:4] - np.asarray(boxes, np.float64)[:, :2]
    products: Floats = np.fmax(sides, 0.0).prod(axis=1)
    return products


def iou(a: Numbers, b: Numbers) -> Floats:
    """Return the intersection over union of each box of `a` with each box of `b`."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        low = np.maximum(first[:, None, :2], second[None, :, :2])
        high = np.minimum(first[:, None, 2:4], second[None, :, 2:4])
        common = np.fmax(high - low, 0.0).prod(axis=2)
        union = areas(first)[:, None] + areas(second)[None] - common
        overlaps: Floats = np.nan_to_num(common / np.maximum(union, 1e-9), nan=0.0, posinf=0.0)
    return overlaps


def by_score(scores: Numbers) -> Rows:
    """Return the order of the boxes, strongest first; equal ones stay in their order."""
    order: Rows = np.argsort(-np.asarray(scores), kind="stable")
    return order


def nms(boxes: Boxes, *, overlap: float, most: int = 300) -> Boxes:
    """Return the boxes that no stronger kept box of their class overlaps by more than `overlap`.

    Greedy suppression, strongest first, at most `most` boxes. Boxes are taken in blocks: those
    that a kept box suppresses go, then the block decides among itself. A box is kept when no
    stronger kept one suppresses it; repeating that rule on a block ends at the greedy result,
    because each round settles at least one more box.
    """
    ordered = boxes.take(by_score(boxes.scores))
    kept_rows: list[int] = []
    for start in range(0, len(ordered), BLOCK):
        rows = np.arange(start, min(start + BLOCK, len(ordered)))
        if kept_rows:
            rows = rows[~_suppressed(ordered, np.array(kept_rows), rows, overlap).any(axis=0)]
        stronger = np.triu(_suppressed(ordered, rows, rows, overlap), k=1)
        alive: NDArray[np.bool_] = np.ones(len(rows), dtype=bool)
        while True:
            now = ~np.asarray((stronger & alive[:, None]).any(axis=0))
            if np.array_equal(now, alive):
                break
            alive = now
        kept_rows += [int(row) for row in rows[alive]]
        if len(kept_rows) >= most:
            break
    return ordered.take(np.array(kept_rows[:most], dtype=np.int64))


def _suppressed(boxes: Boxes, a: Rows, b: Rows, overlap: float) -> NDArray[np.bool_]:
    same = boxes.classes[a][:, None] == boxes.classes[b][None]
    close: NDArray[np.bool_] = same & (iou(boxes.boxes[a], boxes.boxes[b]) > overlap)
    return close


def match_boxes(a: Boxes, b: Boxes, *, match: float) -> list[tuple[int, int]]:
    """Return pairs of one box of `a` and one of `b`: same class, IoU ≥ `match`, each used once.

    Greedy: the strongest box of either set takes the free box of the other that it overlaps most,
    then the next. Exchanging `a` and `b` gives the same pairs, so that no model is favoured.
    """
    if not len(a) or not len(b):
        return []
    table = iou(a.boxes, b.boxes)
    left, right = np.nonzero((table >= match) & (a.classes[:, None] == b.classes[None]))
    strength = np.maximum(np.asarray(a.scores)[left], np.asarray(b.scores)[right])
    # of two pairs with a common box the lower number of the other box decides a tie: a rule that
    # does not ask which set comes first
    keys = (right, left, -table[left, right], -strength)
    pairs: list[tuple[int, int]] = []
    used_a: set[int] = set()
    used_b: set[int] = set()
    for k in np.lexsort(keys):
        i, j = int(left[k]), int(right[k])
        if i not in used_a and j not in used_b:
            pairs.append((i, j))
            used_a.add(i)
            used_b.add(j)
    return pairs


def changed(matched: Numbers, total: Numbers) -> Floats:
    """Return 1 − 2 · matched / total per picture, 0 where neither model found a box."""
    counts = np.asarray(total, dtype=np.float64)
    share = 2.0 * np.asarray(matched, dtype=np.float64) / np.maximum(counts, 1.0)
    distances: Floats = np.where(counts > 0, 1.0 - share, 0.0)
    return distances


def pooled(matched: Numbers, total: Numbers) -> float:
    """Return the share of changed boxes over all pictures: each box counts the same.

    It is the mean of `changed` with the weights `total`.
    """
    boxes = float(np.sum(total))
    return 1.0 - 2.0 * float(np.sum(matched)) / boxes if boxes else 0.0

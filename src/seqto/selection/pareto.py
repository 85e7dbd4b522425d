"""Non-dominated sorting, choice of recommended points, and hypervolume; pure.

All objectives are to be made small. A point is a sequence of finite figures, one an objective.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

BALANCED = "balanced"


Point = Sequence[float]


def front(points: Sequence[Point]) -> list[int]:
    """Return the indices of the non-dominated front, ascending; of equal points the first only."""
    _check(points)
    if not points:
        return []
    import numpy as np
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    first = NonDominatedSorting().do(np.array(points, float), only_non_dominated_front=True)
    index_of: dict[tuple[float, ...], int] = {}
    for index in sorted(int(i) for i in first):
        index_of.setdefault(tuple(points[index]), index)
    return list(index_of.values())


def top(points: Sequence[Point], *, names: Sequence[str]) -> dict[str, int]:
    """Return the recommended points by index: the balanced one and the best of each objective.

    Balanced is the one nearest the ideal point once each objective is scaled to 0–1 over the
    front; an objective in which the whole front is equal counts nothing. Ties go to the other
    objectives, then to the earlier point.
    """
    _check(points, len(names))
    if BALANCED in names:
        raise ValueError(f"an objective cannot be called {BALANCED!r}")
    candidates = front(points)
    if not candidates:
        return {}
    distance = _distances([points[i] for i in candidates])
    chosen = {BALANCED: candidates[min(range(len(candidates)), key=distance.__getitem__)]}
    for axis, name in enumerate(names):
        chosen[name] = min(
            candidates,
            key=lambda i: (points[i][axis], *points[i][:axis], *points[i][axis + 1 :]),
        )
    return chosen


def hypervolume(points: Sequence[Point], *, reference: Point) -> float:
    """Return the volume between the points and the reference that some point dominates; exact.

    Points that are not better than the reference in every objective contribute nothing.
    """
    _check([*points, reference], len(reference))
    inside = {
        tuple(p) for p in points if all(x < limit for x, limit in zip(p, reference, strict=True))
    }
    return _volume(sorted(inside), tuple(reference))


def gained_volume(point: Point, others: Sequence[Point], *, reference: Point) -> float:
    """Return by how much a point enlarges the volume that the others dominate."""
    _check([point, *others, reference], len(reference))
    if any(x >= limit for x, limit in zip(point, reference, strict=True)):
        return 0.0
    box = math.prod(limit - x for x, limit in zip(point, reference, strict=True))
    # the part of the box between point and reference that each of the others dominates already
    corners = [tuple(map(max, point, other)) for other in others]
    known = hypervolume([corners[i] for i in front(corners)], reference=reference)
    return max(0.0, box - known)


def _check(points: Sequence[Point], width: int | None = None) -> None:
    for point in points:
        width = len(point) if width is None else width
        if len(point) != width:
            raise ValueError(f"point {tuple(point)} has {len(point)} objectives, not {width}")
        if not all(math.isfinite(x) for x in point):
            raise ValueError(f"point {tuple(point)} is not finite: leave failed trials out")


def _distances(points: Sequence[Point]) -> list[float]:
    axes = list(zip(*points, strict=True))
    low = [min(axis) for axis in axes]
    span = [max(axis) - min(axis) for axis in axes]
    return [
        math.hypot(*((x - a) / s if s else 0.0 for x, a, s in zip(p, low, span, strict=True)))
        for p in points
    ]


def _volume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    """Sum slices along the first objective, each a volume of one dimension less. Points sorted."""
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - points[0][0]
    total = 0.0
    for count, point in enumerate(points, start=1):
        end = points[count][0] if count < len(points) else reference[0]
        if end > point[0]:
            total += (end - point[0]) * _volume(
                sorted(p[1:] for p in points[:count]), reference[1:]
            )
    return total

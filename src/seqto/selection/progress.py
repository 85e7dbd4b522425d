"""Progress of a run: the hypervolume of its front after each second at which that grew.

The box has the float model in its corner: its bytes, its time, and a loss of four times the
tolerated one, since plans beyond that are of no use. The figure is the share of the box that some
finished trial dominates.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.selection import pareto
from seqto.selection.objectives import LATENCY, LOSS, SIZE, figure_of
from seqto.selection.recommend import TOLERANCE, chosen_objectives

MOST_LOSS = 4.0  # of the tolerated loss
MOST_STEPS = 300  # of the curve; of more, an even sample is kept


def hypervolume_curve(state: RunState) -> list[tuple[float, float]]:
    """Return (seconds, share of the box), one step for each trial that has enlarged it."""
    names = [n for n in (LOSS.name, SIZE.name, LATENCY.name) if n in chosen_objectives(state)]
    corner = {
        LOSS.name: MOST_LOSS * float(state.settings.get("search", {}).get("tolerance", TOLERANCE)),
        SIZE.name: float(state.baseline.size_bytes) if state.baseline else 0.0,
        LATENCY.name: 1.0,
    }
    if not names or any(corner[n] <= 0 for n in names):
        return []
    curve: list[tuple[float, float]] = []
    known: list[tuple[float, ...]] = []
    share = 0.0
    for at_s, trial in sorted(_finished(state, names), key=lambda row: (row[0], row[1].number)):
        figures = [figure_of(trial, name, state.baseline) for name in names]
        point = tuple(f / corner[n] for f, n in zip(figures, names, strict=True) if f is not None)
        if len(point) < len(names) or any(_covers(other, point) for other in known):
            continue
        share += pareto.gained_volume(point, known, reference=(1.0,) * len(names))
        known = [other for other in known if not _covers(point, other)] + [point]
        if share > (curve[-1][1] if curve else 0.0):
            curve.append((round(at_s, 2), round(share, 6)))
    return thinned(curve)


def _finished(state: RunState, names: Sequence[str]) -> list[tuple[float, Trial]]:
    """Return the trials with the second at which all of their figures were known."""
    finished = []
    for trial in state.numbered:
        at_s = state.finished_at(trial, timed=LATENCY.name in names)
        if at_s is not None:
            finished.append((at_s, trial))
    return finished


def _covers(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


def thinned(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most MOST_STEPS steps, the last one among them."""
    if len(curve) <= MOST_STEPS:
        return list(curve)
    return [curve[(i + 1) * len(curve) // MOST_STEPS - 1] for i in range(MOST_STEPS)]

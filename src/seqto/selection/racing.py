"""Racing: what a new trial is compared with while its samples run.

A trial stops when a finished one is no larger, has changed no more answers in the end than the
new one has already, and is no slower. Bytes and answers are counted. Times are those of the
graph that the device makes of the plan, where that graph was timed; else the strategy says which
ratio to float the plan will not undercut (with 97.5 % confidence), and what is faster still counts.
A trial whose answers do not depend on the CPU is stopped by such trials only: the portable pick is
chosen among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqto.record.trial import Trial
from seqto.records import EVALUATION, Loss, RivalPoint
from seqto.selection.pareto import front
from seqto.tasks.scoring import DIGITS as SUM_DIGITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Points = tuple[RivalPoint, ...]


@dataclass(frozen=True, slots=True)
class Rival:
    """A finished trial that no other beats."""

    size_bytes: int
    total: float  # summed distance
    ratio: float | None = None  # to float's time; None: time is no objective
    graph: str = ""
    portable: bool = False

    @property
    def point(self) -> RivalPoint:
        return RivalPoint(self.size_bytes, self.total, self.portable)


def saw_all_samples(trial: Trial) -> bool:
    """Return whether a trial succeeded and was run on every sample of the evaluation split."""
    measurement = trial.measurements.get(EVALUATION)
    return trial.error is None and measurement is not None and not measurement.stopped_early


def complete(trials: Iterable[Trial]) -> list[tuple[Trial, Loss]]:
    """Return the trials that saw all samples, each with its loss."""
    return [(t, t.loss) for t in trials if saw_all_samples(t) and t.loss is not None]


def rivals(trials: Iterable[Trial], *, timed: bool = False) -> tuple[Rival, ...]:
    """Return the complete trials that no other beats; of `timed` ones those with a latency."""
    known = [
        Rival(
            t.size_bytes,
            total_of(loss),
            t.latency.ratio if timed and t.latency else None,
            t.graph,
            t.is_portable,
        )
        for t, loss in complete(trials)
        if t.latency is not None or not timed
    ]
    points = [(*_coordinates(r.point), r.ratio or 0.0) for r in known]
    unbeaten = [known[i] for i in front(points)]
    return tuple(dict.fromkeys(unbeaten))


def total_of(loss: Loss) -> float:
    """Return the summed distance of a trial that saw all samples."""
    return round(loss.value * loss.samples, SUM_DIGITS)


def no_slower(known: Sequence[Rival], ratio: float | None) -> Points:
    """Return the rivals that are as fast as this ratio; all of them where time is no objective."""
    return _unbeaten(
        r for r in known if r.ratio is None or (ratio is not None and r.ratio <= ratio)
    )


def by_graph(known: Sequence[Rival], trials: Iterable[Trial]) -> Mapping[str, Points]:
    """Return, for every graph that was timed, the rivals that are as fast as it is."""
    ratios = {t.graph: t.latency.ratio for t in trials if t.graph and t.latency is not None}
    timed = [r for r in known if r.ratio is not None]
    return {graph: no_slower(timed, ratio) for graph, ratio in ratios.items() if timed}


def beats(points: Points, size_bytes: int, total: float, *, portable: bool = False) -> bool:
    """Return whether one of the points is nowhere worse than a trial, and not the same."""
    return any(
        p.size_bytes <= size_bytes
        and p.total <= total
        and (p.size_bytes, p.total) != (size_bytes, total)
        for p in points
        if p.may_stop(portable=portable)
    )


def _unbeaten(known: Iterable[Rival]) -> Points:
    points = [r.point for r in known]
    return tuple(dict.fromkeys(points[i] for i in front([_coordinates(p) for p in points])))


def _coordinates(point: RivalPoint) -> tuple[float, float, float]:
    """Return what is compared: a portable trial is beaten by portable ones only."""
    return float(point.size_bytes), point.total, float(not point.portable)


def hardest_first(
    trials: Sequence[Trial], rows: int, difficulty: NDArray[np.float64] | None = None
) -> NDArray[np.int64]:
    """Return the samples in the order of how many trials changed their answer.

    Plans mostly change the same answers, so that a plan which is no better than a smaller one has
    shown that after a part of the samples. Among those that are changed as often, what the task
    calls difficult (`difficulty`: the float model's answer was a close call) comes first.
    """
    import numpy as np

    changes = np.zeros(rows, dtype=np.int64)
    for _, loss in complete(trials):
        raw = np.frombuffer(bytes.fromhex(loss.agreement), dtype=np.uint8)
        if loss.samples == rows and raw.size * 8 >= rows:
            changes += 1 - np.unpackbits(raw)[:rows].astype(np.int64)
    hard = np.zeros(rows) if difficulty is None else np.asarray(difficulty, dtype=np.float64)[:rows]
    order: NDArray[np.int64] = np.lexsort((np.arange(rows), -hard, -changes))
    return order

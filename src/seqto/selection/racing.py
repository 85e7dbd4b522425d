"""Racing: what a new trial is compared with while its samples run. By counting, not by guessing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from seqto.record.trial import Trial
from seqto.records import EVALUATION, Loss
from seqto.selection.pareto import front
from seqto.tasks.scoring import DIGITS as SUM_DIGITS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def saw_all_samples(trial: Trial) -> bool:
    """Whether a trial succeeded and was run on every sample of the evaluation split."""
    seen = trial.measurements.get(EVALUATION)
    return trial.error is None and seen is not None and not seen.stopped_early


def complete(trials: Iterable[Trial]) -> list[tuple[Trial, Loss]]:
    """Return the trials that saw all samples, each with its loss."""
    return [(t, t.loss) for t in trials if saw_all_samples(t) and t.loss is not None]


def rivals(trials: Iterable[Trial]) -> tuple[tuple[int, float], ...]:
    """Return (bytes, summed distance) of the complete trials that no other beats in both."""
    points = [
        (t.size_bytes, round(loss.value * loss.samples, SUM_DIGITS)) for t, loss in complete(trials)
    ]
    unbeaten = front([(float(size), total) for size, total in points])
    return tuple(dict.fromkeys(points[i] for i in unbeaten))


def hardest_first(trials: Sequence[Trial], rows: int) -> NDArray[np.int64]:
    """Return the samples in the order of how many trials changed their answer.

    Plans mostly change the same answers, so that a plan which is no better than a smaller one has
    shown that after a part of the samples.
    """
    import numpy as np

    changes = np.zeros(rows, dtype=np.int64)
    for _, loss in complete(trials):
        raw = np.frombuffer(bytes.fromhex(loss.agreement), dtype=np.uint8)
        if loss.samples == rows and raw.size * 8 >= rows:
            changes += 1 - np.unpackbits(raw)[:rows].astype(np.int64)
    order: NDArray[np.int64] = np.argsort(-changes, kind="stable")
    return order

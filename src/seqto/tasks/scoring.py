"""Raw outputs → figures: agreement with float, accuracy, damage, latency ratios."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.model import outputs as model_outputs
from seqto.records import Loss, Measurement
from seqto.tasks.intervals import wilson
from seqto.tasks.task import Task


class Reference:
    """The float model's outputs on one split, and the labels where there are any."""

    def __init__(
        self,
        split: str,
        outputs: list[NDArray[Any]],
        labels: NDArray[np.int64] | None,
        *,
        task: Task,
        judged: int = 0,
    ) -> None:
        self.split, self.outputs, self.labels, self.task = split, outputs, labels, task
        self.judged = judged  # which of the outputs damage looks at
        self.right = None if labels is None else task.correct(outputs, labels)
        self.variance = model_outputs.spread([outputs[judged]])

    @property
    def rows(self) -> int:
        return len(self.outputs[0])

    @property
    def accuracy(self) -> float | None:
        return None if self.right is None else float(self.right.mean())


class Judge:
    """Collects a candidate's chunks, which come in `order` (of rows of the split)."""

    def __init__(
        self,
        reference: Reference,
        *,
        device: str,
        rows: int,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        self.reference, self.device, self.rows = reference, device, rows
        self.order = np.arange(rows) if order is None else order
        self.agreed: list[NDArray[np.bool_]] = []
        self.right: list[NDArray[np.bool_]] = []
        self.misses: list[NDArray[np.bool_]] = []
        self.taus: list[NDArray[np.float64]] = []
        self.squares: list[NDArray[np.float64]] = []
        self.seen = 0
        self.stopped = False

    def take(self, start: int, outputs: list[NDArray[Any]]) -> None:
        if self.stopped or start != self.seen:
            return  # chunks that were under way when the judge had seen enough
        stop = start + len(outputs[0])
        rows = self.order[start:stop]
        want = [o[rows] for o in self.reference.outputs]
        task = self.reference.task
        self.agreed.append(np.asarray(task.agree(want, outputs), dtype=bool))
        if self.reference.labels is not None and self.reference.right is not None:
            labels = self.reference.labels[rows]
            self.right.append(np.asarray(task.correct(outputs, labels), dtype=bool))
        for name, kept in (("top_k_misses", self.misses), ("kendall_tau", self.taus)):
            found = getattr(task, name)(want, outputs) if hasattr(task, name) else None
            if found is not None:
                kept.append(found)
        judged = self.reference.judged
        self.squares.append(model_outputs.squared_gaps(want[judged], outputs[judged]))
        self.seen = stop

    @property
    def changed(self) -> int:
        """Answers that differ so far: in the end it will be no fewer."""
        return int(sum(np.count_nonzero(~a) for a in self.agreed))

    @property
    def complete(self) -> bool:
        return self.seen >= self.rows

    def _loss(self) -> Loss:
        """Of all rows; where some are missing, the least that it can be, and its bounds."""
        wrong = self.changed
        if not self.complete:
            most = wrong + self.rows - self.seen
            return Loss(wrong / self.rows, wrong / self.rows, most / self.rows, self.seen)
        bits = np.empty(self.seen, dtype=bool)
        bits[self.order] = np.concatenate(self.agreed)
        low, high = wilson(wrong, self.seen)
        return Loss(wrong / self.seen, low, high, self.seen, np.packbits(bits).tobytes().hex())

    def measurement(self) -> Measurement:
        loss = self._loss()
        right = self.reference.right
        labelled = bool(self.right)
        return Measurement(
            split=self.reference.split,
            device=self.device,
            loss=loss,
            accuracy=float(np.concatenate(self.right).mean()) if labelled else None,
            baseline_accuracy=float(right[self.order[: self.seen]].mean())
            if right is not None
            else None,
            top_k_loss=float(np.concatenate(self.misses).mean()) if self.misses else None,
            kendall_tau=float(np.concatenate(self.taus).mean()) if self.taus else None,
            damage=float(np.concatenate(self.squares).mean()) / self.reference.variance,
            stopped_early=self.stopped and not self.complete,
        )

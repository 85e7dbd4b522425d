"""Outputs of a session over rows of a split, chunk by chunk, raw or decoded by the task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.data.ragged import Run
from seqto.devices.bundle import FOLLOWED
from seqto.devices.device import Session
from seqto.errors import PlanError
from seqto.execution.context import WorkerContext
from seqto.model import outputs as model_outputs
from seqto.model.batch import Batch, rows_fed
from seqto.records import Json
from seqto.tasks import scoring
from seqto.tasks.scoring import Decoded
from seqto.tasks.task import Answers, Task

Chunk = list[NDArray[Any]]  # the outputs that the task gets, one row a sample


class Rows:
    """Runs a session over rows of a split, chunk by chunk, and adds up the seconds of it."""

    def __init__(
        self,
        worker: WorkerContext,
        session: Session,
        split: str,
        *,
        batch: int,
        chunk: int,
        order: NDArray[np.int64] | None = None,
        followed: NDArray[np.int64] | None = None,
    ) -> None:
        """`followed`: the float model's tokens, along which a bundle's candidate runs first."""
        self._worker, self._session, self._split = worker, session, split
        self._batch, self._chunk, self._order = batch, chunk, order
        self._followed = followed
        self.seconds = 0.0

    def chunks(self, first: int, stop: int) -> Iterator[Chunk]:
        """Yield the outputs of some rows at a time."""
        for start in range(first, stop, self._chunk):
            end = min(start + self._chunk, stop)
            if self._worker.store.ragged is None:
                yield self._run(start, end)
            else:
                yield self._run_sequences(start, end)

    def decoded(
        self,
        task: Task,
        first: int,
        stop: int,
        *,
        reference: Answers | None = None,
        see: Callable[[Chunk], None] = lambda _outputs: None,
    ) -> Iterator[Decoded]:
        """Yield what is kept of some rows at a time; `see` gets outputs of each run or chunk.

        Sequences are decoded run by run: outputs of different lengths cannot be joined, and may
        be large. `reference`: float's answers of the split.
        """
        if self._worker.store.ragged is None:
            for start in range(first, stop, self._chunk):
                yield self._decoded_chunk(task, start, min(start + self._chunk, stop), see)
            return
        for start in range(first, stop, self._chunk):
            rows = self._rows(start, min(start + self._chunk, stop))
            groups = [rows[i : i + self._batch] for i in range(0, len(rows), self._batch)]
            parts = []
            for group in groups:
                sides: dict[int, list[tuple[Run, Decoded]]] = {}
                for run in self._worker.store.runs(self._split, group.tolist()):
                    outputs = self._outputs(run.batch, group[run.positions])
                    see(outputs)
                    want = None if reference is None else reference.take(group[run.positions])
                    decoded = scoring.decode(task, outputs, batch=run.batch, reference=want)
                    sides.setdefault(run.side, []).append((run, decoded))
                parts.append(scoring.beside([_in_order(sides[side]) for side in sorted(sides)]))
            yield scoring.joined(parts)

    def _decoded_chunk(
        self, task: Task, start: int, stop: int, see: Callable[[Chunk], None]
    ) -> Decoded:
        """Decode one chunk; run by run where the number of boxes differs."""
        runs = self._runs(start, stop)
        alike = len({tuple(value.shape[1:] for value in outputs) for outputs in runs}) == 1
        if not alike:
            see(runs[0])
            parts = [scoring.decode(task, outputs) for outputs in runs]
            if all(part.answers.lengths is not None for part in parts):
                return scoring.joined(parts)
        outputs = self._joined(runs)
        see(outputs)
        return scoring.decode(task, outputs)

    def _rows(self, start: int, stop: int) -> NDArray[np.int64]:
        return np.arange(start, stop) if self._order is None else self._order[start:stop]

    def _outputs(self, feeds: Batch, rows: NDArray[np.int64]) -> Chunk:
        """Run the model once; return the outputs for the task, without what only fills a batch."""
        if self._followed is not None:
            feeds = feeds.with_feeds({FOLLOWED: self._followed[rows]})
        began = time.perf_counter()
        outputs = self._session.run(feeds)
        self.seconds += time.perf_counter() - began
        return [self._by_sample(outputs, position, feeds) for position in self._worker.setup.sent]

    def _run_sequences(self, start: int, stop: int) -> Chunk:
        """Return outputs of sequences for a task of the main process: one shape, one a sample."""
        rows = self._rows(start, stop)
        positions: list[NDArray[np.int64]] = []
        parts: list[Chunk] = []
        for first in range(0, len(rows), self._batch):
            for run in self._worker.store.runs(
                self._split, rows[first : first + self._batch].tolist()
            ):
                if run.side:
                    raise PlanError("a task of the main process gets one text a sample, not pairs")
                positions.append(first + run.positions)
                samples = rows[first + run.positions]
                parts.append(self._outputs(run.batch, samples))
        back = np.argsort(np.concatenate(positions))
        return [
            model_outputs.joined(outputs, name=self._name(position))[back]
            for position, outputs in zip(
                self._worker.setup.sent, zip(*parts, strict=True), strict=True
            )
        ]

    def _run(self, start: int, stop: int) -> Chunk:
        return self._joined(self._runs(start, stop))

    def _runs(self, start: int, stop: int) -> list[Chunk]:
        parts: list[Chunk] = []
        for first in range(start, stop, self._batch):
            last = min(first + self._batch, stop)
            parts.append(self._outputs(self._feeds(first, last), self._rows(first, last)))
        return parts

    def _joined(self, runs: Sequence[Chunk]) -> Chunk:
        return [
            model_outputs.joined(rows, name=self._name(position))
            for position, rows in zip(self._worker.setup.sent, zip(*runs, strict=True), strict=True)
        ]

    def _feeds(self, first: int, last: int) -> Batch:
        store = self._worker.store
        if self._order is None:
            return store.batch(self._split, first, last)
        return store.pick(self._split, self._order[first:last].tolist())

    def _name(self, position: int) -> str:
        judged = self._worker.setup.output
        return judged.name if position == judged.position else f"number {position}"

    def _by_sample(self, outputs: list[Any], position: int, feeds: Batch) -> NDArray[Any]:
        """Return one of the outputs, one row a sample, without what only fills a fixed batch."""
        return model_outputs.by_sample(
            outputs[position], name=self._name(position), fed=rows_fed(feeds), rows=feeds.rows
        )


class OutputDescription:
    """Description of the float model's outputs for the task, taken from the first that are seen."""

    def __init__(self, worker: WorkerContext, task: Task) -> None:
        self._output, self._task = worker.setup.output, task
        self._judged = worker.setup.sent.index(self._output.position)
        self.about: Json = {}

    def see(self, outputs: Chunk) -> None:
        """Describe the outputs, unless some were seen before."""
        if not self.about:
            self.about = scoring.describe_outputs(
                self._task, outputs, judged=self._judged, name=self._output.name
            )


def _in_order(runs: Sequence[tuple[Run, Decoded]]) -> Decoded:
    """Join what is kept of several runs in the order of their rows."""
    if len(runs) == 1:
        return runs[0][1]
    back = np.argsort(np.concatenate([run.positions for run, _ in runs]))
    return scoring.take(scoring.joined([decoded for _, decoded in runs]), back)

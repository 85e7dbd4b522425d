"""Jobs that run a model over samples: evaluation, the float model's answers, the best batch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.data.ragged import Run
from seqto.devices.bundle import FOLLOWED
from seqto.devices.device import GraphDevice, Session
from seqto.errors import PlanError
from seqto.execution.context import WorkerContext
from seqto.execution.executor import Signals
from seqto.execution.jobs import (
    BatchChosen,
    ChooseBatch,
    Evaluate,
    Evaluated,
    MakeReference,
    ModelMade,
    PlanRan,
    RawOutputs,
    ReferenceMade,
    Skipped,
    TryPlan,
)
from seqto.model import outputs as model_outputs
from seqto.model.batch import Batch, rows_fed
from seqto.records import Json
from seqto.tasks import scoring
from seqto.tasks.array_file import write_arrays
from seqto.tasks.scoring import Decoded, Scorer
from seqto.tasks.seq2seq import CHOICES
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
        """Run the model once; the outputs that the task gets, without what only fills a batch."""
        if self._followed is not None:
            feeds = feeds.with_feeds({FOLLOWED: self._followed[rows]})
        began = time.perf_counter()
        outputs = self._session.run(feeds)
        self.seconds += time.perf_counter() - began
        return [self._by_sample(outputs, position, feeds) for position in self._worker.setup.sent]

    def _run_sequences(self, start: int, stop: int) -> Chunk:
        """Outputs of sequences for a task of the main process: of one shape, one a sample."""
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
        """One of the outputs, one row a sample, without what only fills a fixed batch."""
        return model_outputs.by_sample(
            outputs[position], name=self._name(position), fed=rows_fed(feeds), rows=feeds.rows
        )


def evaluate(
    worker: WorkerContext, job: Evaluate, signals: Signals
) -> Evaluated | RawOutputs | Skipped:
    began = time.perf_counter()
    assembled = worker.assemble(job.plan)
    model = ModelMade(
        assembled.size_bytes, assembled.sha256, assembled.content, assembled.may_saturate
    )
    signals.note(dataclasses.asdict(model))
    if model.content in job.known:
        return Skipped(model)
    assembled_at = time.perf_counter()
    order = None
    if job.order is not None:
        order = np.load(worker.files.path(job.order), allow_pickle=False)
    opened, graph = _opened(worker.device, assembled.data, job.threads, with_graph=job.graph)
    model = dataclasses.replace(model, graph=graph)
    del assembled
    with opened as session:
        loaded = time.perf_counter()
        rows = Rows(
            worker,
            session,
            job.split,
            batch=job.batch,
            chunk=job.chunk,
            order=order,
            followed=_followed(worker, job),
        )
        spent = {"assemble": assembled_at - began, "load": loaded - assembled_at}
        if job.reference is None:
            file = _raw_file(worker, rows.chunks(0, job.rows), f"outputs-{job.plan.key}", signals)
            return RawOutputs(model, worker.files.put(file), {**spent, "run": rows.seconds})
        scorer = _scorer(worker, job, model, order)
        answers = scorer.reference.decoded.answers
        score(scorer, rows.decoded(scorer.task, 0, job.rows, reference=answers), signals)
    measured = scorer.measurement(intervals=job.intervals)
    spent = {**spent, "run": rows.seconds}
    return Evaluated(model, measured, spent, scorer.examples(job.examples))


def _opened(device: Any, model: Any, threads: int, *, with_graph: bool) -> tuple[Session, str]:
    """Load a model; also the hash of its graph, where it is asked for and the device has it."""
    if with_graph and isinstance(device, GraphDevice):
        return device.open_with_graph(model, threads=threads)
    return device.open(model, threads=threads), ""


def _followed(worker: WorkerContext, job: Evaluate) -> NDArray[np.int64] | None:
    """Return the tokens that the float bundle generated."""
    if worker.wiring is None or job.reference is None:
        return None
    tokens: NDArray[np.int64] = worker.reference(job.reference).decoded.answers.details[CHOICES]
    return tokens


def _scorer(
    worker: WorkerContext, job: Evaluate, model: ModelMade, order: NDArray[np.int64] | None
) -> Scorer:
    task = worker.task_of(job.split)
    if task is None or job.reference is None:
        raise PlanError("a reference was given for a task that stays in the main process")
    return Scorer(
        task,
        worker.reference(job.reference),
        device=worker.device.name,
        rows=job.rows,
        labels=worker.labels(job.split),
        order=order,
        rivals=(*job.rivals, *job.graph_rivals.get(model.graph, ())),
        size_bytes=model.size_bytes,
        least_rows=job.least_rows,
    )


def _in_order(runs: Sequence[tuple[Run, Decoded]]) -> Decoded:
    """Join what is kept of several runs in the order of their rows."""
    if len(runs) == 1:
        return runs[0][1]
    back = np.argsort(np.concatenate([run.positions for run, _ in runs]))
    return scoring.take(scoring.joined([decoded for _, decoded in runs]), back)


def score(scorer: Scorer, chunks: Iterator[Decoded], signals: Signals) -> None:
    """Compare chunk by chunk, until a rival is better for sure or the job was asked to stop."""
    for decoded in chunks:
        scorer.add(decoded)
        signals.alive()
        if scorer.is_beaten() or signals.stopped:
            scorer.stopped = True
            return


def make_reference(worker: WorkerContext, job: MakeReference, signals: Signals) -> ReferenceMade:
    opened, graph = _opened(
        worker.device, worker.model_of(job.plan), job.threads, with_graph=job.first == 0
    )
    with opened as session:
        rows = Rows(worker, session, job.split, batch=job.batch, chunk=job.chunk)
        name = f"reference-{job.split}-{job.first}"
        task = worker.task_of(job.split)
        if task is None:
            file = _raw_file(worker, rows.chunks(job.first, job.stop), name, signals)
            return ReferenceMade(job.first, worker.files.put(file), graph)
        parts: list[Decoded] = []
        about: Json = {}
        judged = worker.setup.sent.index(worker.setup.output.position)

        def see(outputs: Chunk) -> None:
            if not about:
                name = worker.setup.output.name
                about.update(scoring.describe_outputs(task, outputs, judged=judged, name=name))

        for decoded in rows.decoded(task, job.first, job.stop, see=see):
            parts.append(decoded)
            signals.alive()
    file = worker.files.work_file(name)
    scoring.save_part(file, scoring.joined(parts), about)
    return ReferenceMade(job.first, worker.files.put(file), graph)


def _raw_file(worker: WorkerContext, chunks: Iterator[Chunk], name: str, signals: Signals) -> Path:
    """Write the outputs of all chunks to a file that the main process judges."""
    parts: list[Chunk] = []
    for outputs in chunks:
        parts.append(outputs)
        signals.alive()
    whole = [np.concatenate(p) for p in zip(*parts, strict=True)]
    path = worker.files.work_file(name)
    write_arrays(path, {str(i): array for i, array in enumerate(whole)}, {})
    return path


def try_plan(worker: WorkerContext, job: TryPlan) -> PlanRan:
    with worker.device.open(worker.model_of(job.plan), threads=job.threads) as session:
        if worker.store.ragged is not None:
            for run in worker.store.runs(job.split, range(job.batch)):
                session.run(run.batch)
            return PlanRan()
        rows = Rows(worker, session, job.split, batch=job.batch, chunk=job.batch)
        for _ in rows.chunks(0, job.batch):
            pass
    return PlanRan()


def choose_batch(worker: WorkerContext, job: ChooseBatch, signals: Signals) -> BatchChosen:
    """The batch with the most samples a second on the float model, by a short trial.

    All sizes run the same number of samples, in turn; the best turn of each counts. So a busy
    moment slows no size more than another, and one quiet turn is enough. Samples are read within
    the time, as in an evaluation: of a small model, reading one by one is a tenth of the work.
    """
    rows = worker.store.rows(job.split)
    sizes = [b for b in job.batches if b <= rows]
    with worker.device.open(worker.original, threads=job.threads) as session:
        starts: dict[int, range] = {}
        for size in sizes:
            first = worker.store.batch(job.split, 0, size)
            output = session.run(first)[worker.setup.output.position]
            signals.alive()
            by_sample = model_outputs.has_rows(output, size)
            if by_sample or size == 1:
                starts[size] = range(0, max(sizes) // size * size, size)
            if not by_sample:
                break  # samples can be told apart only when they run one by one
        speed = dict.fromkeys(starts, 0.0)
        stop, ran = time.perf_counter() + job.seconds * len(starts), False
        while not ran or time.perf_counter() < stop:
            for size, firsts in starts.items():
                start = time.perf_counter()
                for first_row in firsts:
                    session.run(worker.store.batch(job.split, first_row, first_row + size))
                seconds = time.perf_counter() - start
                speed[size] = max(speed[size], size * len(firsts) / max(seconds, 1e-9))
                signals.alive()
            ran = True
    best = max(speed.values())
    # the smallest batch that is nearly best: less memory for the same speed
    chosen = min(b for b, s in speed.items() if s >= 0.97 * best)
    return BatchChosen(chosen, {str(b): s for b, s in speed.items()})

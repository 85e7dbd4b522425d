"""Jobs that run a model over samples: evaluation, the float model's answers, the best batch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
from seqto.execution.rows import Chunk, OutputDescription, Rows
from seqto.model import outputs as model_outputs
from seqto.tasks import scoring
from seqto.tasks.array_file import write_arrays
from seqto.tasks.scoring import Decoded, Scorer
from seqto.tasks.seq2seq import CHOICES


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
    source = worker.openable(assembled)
    del assembled
    try:
        opened, graph = _opened(worker.device, source, job.threads, with_graph=job.graph)
    finally:
        worker.discard(source)
    model = dataclasses.replace(model, graph=graph)
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
    rivals = (*job.rivals, *job.graph_rivals.get(model.graph, ()))
    portable = not model.may_saturate
    return Scorer(
        task,
        worker.reference(job.reference),
        device=worker.device.name,
        rows=job.rows,
        labels=worker.labels(job.split),
        order=order,
        rivals=[(p.size_bytes, p.total) for p in rivals if p.may_stop(portable=portable)],
        size_bytes=model.size_bytes,
        least_rows=job.least_rows,
    )


def score(scorer: Scorer, chunks: Iterator[Decoded], signals: Signals) -> None:
    """Compare chunk by chunk, until a rival is better for sure or the job was asked to stop."""
    for decoded in chunks:
        scorer.add(decoded)
        signals.alive()
        if scorer.is_beaten() or signals.stopped:
            scorer.stopped = True
            return


def make_reference(worker: WorkerContext, job: MakeReference, signals: Signals) -> ReferenceMade:
    source = worker.model_of(job.plan)
    try:
        opened, graph = _opened(worker.device, source, job.threads, with_graph=job.first == 0)
    finally:
        worker.discard(source)
    with opened as session:
        rows = Rows(worker, session, job.split, batch=job.batch, chunk=job.chunk)
        name = f"reference-{job.split}-{job.first}"
        task = worker.task_of(job.split)
        if task is None:
            file = _raw_file(worker, rows.chunks(job.first, job.stop), name, signals)
            return ReferenceMade(job.first, worker.files.put(file), graph)
        parts: list[Decoded] = []
        description = OutputDescription(worker, task)
        for decoded in rows.decoded(task, job.first, job.stop, see=description.see):
            parts.append(decoded)
            signals.alive()
    file = worker.files.work_file(name)
    scoring.save_part(file, scoring.joined(parts), description.about)
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
    source = worker.model_of(job.plan)
    try:
        opened = worker.device.open(source, threads=job.threads)
    finally:
        worker.discard(source)
    with opened as session:
        if worker.store.ragged is not None:
            for run in worker.store.runs(job.split, range(job.batch)):
                session.run(run.batch)
            return PlanRan()
        rows = Rows(worker, session, job.split, batch=job.batch, chunk=job.batch)
        for _ in rows.chunks(0, job.batch):
            pass
    return PlanRan()


def choose_batch(worker: WorkerContext, job: ChooseBatch, signals: Signals) -> BatchChosen:
    """Choose the batch with the most samples a second on the float model, by a short trial.

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

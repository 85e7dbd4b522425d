"""Jobs that look inside a model: kernel times, layer errors, diagnosis, rounding of weights."""

from __future__ import annotations

from typing import Any

from seqto.assembly import rounded_weights
from seqto.devices import saturation
from seqto.devices.device import ProfilingDevice
from seqto.devices.ort_profile import attribute_times, node_owners
from seqto.diagnosis.layer_errors import layer_errors
from seqto.diagnosis.measure import gather
from seqto.diagnosis.subject import Subject
from seqto.execution.context import WorkerContext
from seqto.execution.executor import Signals
from seqto.execution.jobs import (
    Diagnose,
    Figures,
    ProfilePlan,
    RankLayers,
    RoundWeights,
    WeightsRounded,
)
from seqto.records import CALIBRATION
from seqto.tasks.seq2seq import NextToken


def profile(worker: WorkerContext, job: ProfilePlan) -> Figures:
    """Return kernel milliseconds by layer; empty on devices that cannot tell."""
    if not isinstance(worker.inner, ProfilingDevice):
        return Figures(attribute_times([], {}))
    assembler = worker.assembler_of(job.plan)
    feeds = worker.feeds.usual(CALIBRATION)
    rows = worker.inner.profile(assembler.assemble(job.plan).data, feeds, runs=job.runs)
    return Figures(attribute_times(rows, node_owners(assembler), repeats=worker.feeds.repeats()))


def rank_layers(worker: WorkerContext, job: RankLayers, signals: Signals) -> Figures:
    store = worker.store
    rows = min(job.samples, store.rows(CALIBRATION))
    feeds = worker.feeds.batches(CALIBRATION, rows)
    assembler = worker.assembler_of(job.plan)
    errors = layer_errors(assembler, job.plan, feeds, exact=False, alive=signals.alive)
    return Figures({"errors": errors, "samples": rows})


def diagnose(worker: WorkerContext, job: Diagnose, signals: Signals) -> Figures:
    assembler = worker.assembler_of(job.plan)
    setup = worker.setup
    positions = (setup.output.position,) if worker.task is None else setup.sent
    outputs: tuple[str, ...] = (setup.output.name,)
    task: Any = worker.task
    if worker.wiring is None:
        outputs = tuple(assembler.prepared.outputs[i] for i in positions)
    else:
        task = NextToken()  # a diagnosis looks at single steps of a generation
    subject = Subject(
        assembler,
        job.plan,
        worker.feeds.alike(CALIBRATION, job.samples),
        worker.inner,
        worker.exact,
        alive=signals.alive,
        outputs=outputs,
        task=task,
    )
    return Figures(gather(job.part, subject))


def check_saturation(worker: WorkerContext) -> Figures:
    return Figures(saturation.probe(worker.inner))


def round_weights(worker: WorkerContext, job: RoundWeights, signals: Signals) -> WeightsRounded:
    """Round the weights of some layers for the output error; a file that others map."""
    assembler = worker.assembler(job.variant)
    prepared = assembler.prepared
    layers = [x for x in prepared.layers if x.name in set(job.layers)]
    rounded = rounded_weights.round_layers(
        prepared,
        worker.feeds.calibration,
        layers,
        job.kinds,
        constants=assembler,
        on_progress=lambda _message: signals.alive(),
    )
    path = worker.files.work_file(f"rounded-{job.variant}-{job.file}")
    rows = rounded_weights.save(rounded, path)
    return WeightsRounded(worker.files.put(path), tuple({**row, "file": job.file} for row in rows))

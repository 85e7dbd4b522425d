"""Jobs that look inside a model: kernel times, layer errors, diagnosis, rounding of weights."""

from __future__ import annotations

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


def profile(worker: WorkerContext, job: ProfilePlan) -> Figures:
    """Kernel milliseconds by layer; empty on devices that cannot tell."""
    if not isinstance(worker.device, ProfilingDevice):
        return Figures(attribute_times([], {}))
    assembler = worker.assembler_of(job.plan)
    usual, _ = worker.store.usual_and_long(CALIBRATION)
    feeds = worker.store.pick(CALIBRATION, [usual])
    rows = worker.device.profile(assembler.assemble(job.plan).data, feeds, runs=job.runs)
    return Figures(attribute_times(rows, node_owners(assembler)))


def rank_layers(worker: WorkerContext, job: RankLayers, signals: Signals) -> Figures:
    store = worker.store
    rows = min(job.samples, store.rows(CALIBRATION))
    step = store.feed_rows(1)
    feeds = (store.batch(CALIBRATION, i, min(i + step, rows)) for i in range(0, rows, step))
    assembler = worker.assembler_of(job.plan)
    errors = layer_errors(assembler, job.plan, feeds, exact=False, alive=signals.alive)
    return Figures({"errors": errors, "samples": rows})


def diagnose(worker: WorkerContext, job: Diagnose, signals: Signals) -> Figures:
    assembler = worker.assembler_of(job.plan)
    setup = worker.setup
    positions = (setup.output.position,) if worker.task is None else setup.sent
    subject = Subject(
        assembler,
        job.plan,
        worker.store.alike(CALIBRATION, job.samples),
        worker.device,
        worker.exact,
        alive=signals.alive,
        outputs=tuple(assembler.prepared.outputs[i] for i in positions),
        task=worker.task,
    )
    return Figures(gather(job.part, subject))


def check_saturation(worker: WorkerContext) -> Figures:
    return Figures(saturation.probe(worker.device))


def round_weights(worker: WorkerContext, job: RoundWeights, signals: Signals) -> WeightsRounded:
    """Round the weights of some layers for the output error; a file that others map."""
    assembler = worker.assembler(job.variant)
    prepared = assembler.prepared
    layers = [x for x in prepared.layers if x.name in set(job.layers)]
    found = rounded_weights.round_layers(
        prepared,
        worker.store.calibration,
        layers,
        job.kinds,
        constants=assembler,
        told=lambda _message: signals.alive(),
    )
    path = worker.files.work_file(f"rounded-{job.variant}-{job.file}")
    rows = rounded_weights.save(found, path)
    return WeightsRounded(worker.files.put(path), tuple({**row, "file": job.file} for row in rows))

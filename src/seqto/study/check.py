"""Measure a model file beside its float model, without a run: loss, scores, size, latency."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.feeds import model_feeds
from seqto.calibration.statistics import Statistics
from seqto.data.store import SampleStore
from seqto.devices.device import Session
from seqto.errors import ConfigError, DeviceError, ModelError
from seqto.execution.context import WorkerContext
from seqto.execution.latency import along_float, in_turn
from seqto.execution.local.first_run import refuse_endless
from seqto.execution.rows import OutputDescription, Rows
from seqto.model import files as model_files
from seqto.model import outputs
from seqto.record.trial import Trial
from seqto.records import EVALUATION, REPORT, Json, Latency, Measurement
from seqto.selection.goal import Goal, misses
from seqto.study.open_executor import worker_setup
from seqto.study.setup import RunSetup
from seqto.study.setup_data import fed_data
from seqto.study.timing import latency_from
from seqto.study.workspace import Workspace, prepare_model, task_for
from seqto.tasks import scoring
from seqto.tasks.scoring import Decoded, Reference, Scorer
from seqto.tasks.task import Task

ROWS_A_RUN = 8
ROUNDS = (5, 2000)  # of timing


@dataclass(frozen=True, slots=True)
class Checked:
    """Figures of a model file, beside those of the float model in the same call."""

    measurement: Measurement
    size_bytes: int
    float_bytes: int
    latency: Latency
    output: Json  # what an answer is
    missed: tuple[Json, ...] = ()  # bounds that are not kept: setting, value, limit


def check_model(setup: RunSetup, model: Path, *, scratch: Path) -> Checked:
    """Run both models on all samples of the data, on the device; nothing is calibrated."""
    prepared = prepare_model(setup, scratch)
    store = SampleStore.build(
        fed_data(setup.data, prepared.inputs, settings=setup.settings, fetched=setup.fetched),
        scratch / "samples",
        splits={REPORT: range(len(setup.data))},
        inputs=prepared.inputs,
        preprocess=setup.preprocess,
        max_bad_share=setup.settings.data.max_bad_share,
    )
    original = Path(setup.fetched.path)
    _refuse_other_ends(original, model)
    refuse_endless(
        [original, model],
        scratch / "samples",
        split=REPORT,
        rows=min(store.rows(REPORT), store.fixed_batch or ROWS_A_RUN),
        timeout_s=setup.settings.device.timeout_s,
    )
    judged = outputs.choose(prepared.proto, prepared.layers, output_name=setup.settings.task.output)
    assembler = Assembler(prepared, Statistics({}, {}))
    feeds = model_feeds(store, prepared.proto, setup.wiring)
    workspace = Workspace(scratch, original, prepared, store, assembler, None, judged, feeds)
    task = task_for(setup, workspace)
    worker = WorkerContext(*worker_setup(setup, workspace))
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(_open(setup, path)) for path in (original, model)]
        reference, measured = _measure(worker, task, sessions)
        latency = _timed(setup, worker, sessions)
    sizes = model_files.size_of(model), model_files.size_of(original)
    return Checked(
        measured, *sizes, latency, reference.output, _missed(setup, measured, sizes[0], latency)
    )


def _open(setup: RunSetup, path: Path) -> Session:
    try:
        return setup.device.open(path, threads=setup.settings.device.threads)
    except DeviceError as error:
        raise ModelError(f"{path}: {setup.device.name} cannot load it: {error}") from error


def _refuse_other_ends(original: Path, model: Path) -> None:
    """Refuse two files that do not take the same inputs and give the same outputs."""
    sides = [
        (_inputs(proto.graph), list(proto.graph.output))
        for proto in (model_files.load(original), model_files.load(model))
    ]
    for what, before, after in zip(("inputs", "outputs"), *sides, strict=True):
        names = [[x.name for x in side] for side in (before, after)]
        if names[0] != names[1]:
            listed = ", ".join(names[1]), ", ".join(names[0])
            raise ConfigError(_not_two_forms(model, original, what, *listed))
        for old, new in zip(before, after, strict=True):
            if not _fit(_declared(old), _declared(new)):
                listed = f"{new.name} {_declared(new)[1]}", f"{old.name} {_declared(old)[1]}"
                raise ConfigError(_not_two_forms(model, original, what, *listed))


def _not_two_forms(model: Path, original: Path, what: str, now: str, before: str) -> str:
    return (
        f"{model} has {what} {now}, but {original} has {before}: these are not two forms of one "
        "model"
    )


def _declared(value: Any) -> tuple[int, list[int | None]]:
    """Return the type and the sides that a model declares; None is an open one."""
    tensor = value.type.tensor_type
    return tensor.elem_type, [d.dim_value or None for d in tensor.shape.dim]


def _fit(a: tuple[int, list[int | None]], b: tuple[int, list[int | None]]) -> bool:
    """Return whether two declarations can be of one tensor; without sides, nothing is declared."""
    if a[0] != b[0]:
        return False
    if not a[1] or not b[1]:
        return True
    return len(a[1]) == len(b[1]) and all(
        x is None or y is None or x == y for x, y in zip(a[1], b[1], strict=True)
    )


def _inputs(graph: Any) -> list[Any]:
    constants = {x.name for x in graph.initializer}
    return [x for x in graph.input if x.name not in constants]


def _measure(
    worker: WorkerContext, task: Task, sessions: list[Session]
) -> tuple[Reference, Measurement]:
    store = worker.store
    rows, batch = store.rows(REPORT), store.fixed_batch or ROWS_A_RUN
    if not rows:
        raise ConfigError("the data have no sample that could be read")
    parts: list[Decoded] = []
    description = OutputDescription(worker, task)

    def decoded(session: Session, **more: Any) -> Any:
        return Rows(worker, session, REPORT, batch=batch, chunk=8 * batch).decoded(
            task, 0, rows, **more
        )

    parts += decoded(sessions[0], see=description.see)
    labels = store.labels(REPORT)
    reference = scoring.reference_from(task, REPORT, parts, labels=labels, about=description.about)
    scorer = Scorer(task, reference, device=worker.device.name, rows=rows, labels=labels)
    try:
        for decoded_rows in decoded(sessions[1], reference=reference.decoded.answers):
            scorer.add(decoded_rows)
    except (ValueError, IndexError) as error:  # of arrays: the files do not say their shapes
        raise ConfigError(
            f"the model's answers cannot be compared with the float model's ({error}): are these "
            "two forms of one model?"
        ) from error
    return reference, scorer.measurement(intervals=True)


def _timed(setup: RunSetup, worker: WorkerContext, sessions: list[Session]) -> Latency:
    """Return the latency of the model, interleaved with the float model."""
    usual, _ = worker.store.usual_and_long(REPORT)
    feeds = along_float(sessions[0], worker.store.pick(REPORT, [usual]))
    for session in sessions:
        for _ in range(3):
            session.time_ms(feeds)
    seconds = 2 * setup.settings.device.latency_s
    times = in_turn(sessions, feeds, seconds=seconds, rounds=ROUNDS)
    return latency_from(times[0], times[1])


def _missed(
    setup: RunSetup, measured: Measurement, size_bytes: int, latency: Latency
) -> tuple[Json, ...]:
    goal = Goal.of({name: getattr(setup.settings.search, name) for name in _SEARCH_KEYS})
    if goal is None:
        return ()
    splits = {EVALUATION: measured, REPORT: measured}
    trial = Trial(0, Plan(), size_bytes, measurements=splits, latency=latency)
    return tuple(
        {"setting": miss.setting, "value": miss.value, "limit": goal.limit(miss.setting)}
        for miss in misses(goal, trial, None)
    )


_SEARCH_KEYS = (
    *("max_loss", "max_score_drop", "max_size", "min_speedup", "max_latency", "max_peak_memory"),
)

"""One run from start to end: workspace, baseline, search, final measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path

from seqto.errors import JournalError
from seqto.execution.executor import Executor
from seqto.model import files as model_files
from seqto.record.events import (
    INTERRUPTED,
    BaselineMeasured,
    Int8ProductsTested,
    RunEnded,
    RunStarted,
    SettingsChanged,
)
from seqto.record.journal import Journal
from seqto.record.own_files import BASE, COMPILED, JOURNAL, SAMPLES, WORK, OwnFiles, claim
from seqto.record.replay import RunState, replay
from seqto.study import check_saturation, workspace
from seqto.study.finish import explain, finish
from seqto.study.header import header as make_header
from seqto.study.header import model_identity, refuse_changes
from seqto.study.make_space import make_space
from seqto.study.open_executor import open_executor
from seqto.study.round_weights import Rounding
from seqto.study.setup import Job, labelled_task, rounding_types
from seqto.study.study import Budget, Study
from seqto.study.timing import Timing


def run(job: Job) -> None:
    """Run or resume; returns when done or out of budget, raises KeyboardInterrupt on Ctrl-C."""
    began = time.monotonic()
    own = claim(job.out)
    with Journal.open(job.out / JOURNAL) as journal:
        place, header = _open_workplace(job, replay(journal.events), own)
        job = dataclasses.replace(job, task=workspace.task_for(job, place))
        try:
            with open_executor(job, place) as executor:
                study = _study(job, journal, executor, place, began=began)
                if study.state.header is None:
                    study.append(header)
                elif study.state.settings != header.settings:
                    study.append(SettingsChanged(header.settings))
                reason = _steps(job, study, place)
                study.append(RunEnded(reason, round(time.monotonic() - began, 1)))
        except KeyboardInterrupt:
            # a journal starts with its header: before it, nothing was begun
            if replay(journal.events).header is not None:
                with contextlib.suppress(JournalError):
                    seconds = round(time.monotonic() - began, 1)
                    journal.append(RunEnded(INTERRUPTED, seconds))
            raise


def clear_cache(folder: Path) -> None:
    """Remove prepared samples and compiled models, which a finished run needs no more."""
    own = OwnFiles.read(folder)
    for name in (SAMPLES, COMPILED, WORK):
        own.clear(name)


def _open_workplace(
    job: Job, state: RunState, own: OwnFiles
) -> tuple[workspace.Workplace, RunStarted]:
    identity = model_identity(job.fetched)
    recorded = state.header
    if recorded is None and state != RunState(ended=state.ended):
        raise JournalError(f"{job.out / JOURNAL} has no header: give another --out folder")
    if recorded is not None:
        refuse_changes(job, recorded, identity)
    else:
        own.clear(BASE)
        own.take(BASE)
    for name in (SAMPLES, COMPILED, WORK):
        own.take(name)
    prepared = workspace.prepare_model(job, job.out)
    store = workspace.build_store(job, prepared, job.out / "cache" / "samples")
    if recorded is not None and recorded.data.get("identity") != store.identity:
        raise JournalError(
            f"the data have changed since {job.out} was begun: give another --out folder, "
            "or the same data"
        )
    place = workspace.calibrate_or_load(job, job.out, store, prepared)
    return place, make_header(job, place, identity)


def _study(
    job: Job, journal: Journal, executor: Executor, place: workspace.Workplace, *, began: float
) -> Study:
    search, device = job.settings.search, job.settings.device
    throughput_batch = device.batch and (place.store.fixed_batch or device.batch)
    return Study(
        journal,
        executor,
        place.store,
        task=job.task,
        device=job.device,
        budget=Budget(search.max_trials, search.max_minutes),
        timing=Timing(device.threads, device.latency_s, throughput_batch),
        racing=search.racing,
        race_objectives=search.objectives,
        probes=search.probes,
        chunk=job.settings.data.chunk,
        rounding=Rounding(
            executor, place.folder, rounding_types(job.settings, job.strategy), job.progress
        ),
        listener=job.listener,
        began=began,
        judged=place.judged,
        labelled_task=labelled_task(job),
    )


def _steps(job: Job, study: Study, place: workspace.Workplace) -> str:
    """Baseline, analysis, search, then final figures for what is recommended."""
    study.runner.baseline()
    if study.state.int8_products is None:
        study.append(Int8ProductsTested(**check_saturation.ask(study.executor)))
    if study.state.baseline is None:
        references = study.runner.references
        study.append(
            BaselineMeasured(
                size_bytes=model_files.size_of(job.fetched.path),
                accuracy={s: r.scores.get("accuracy") for s, r in references.items()},
                latency=study.time_baseline(),
                output=study.runner.judged_json(),
                scores={s: dict(r.scores) for s, r in references.items()},
            )
        )
    space = make_space(job, study, place)
    reason = study.search(job.strategy, space, seed=job.settings.search.seed)
    finish(study)
    explain(job, study, space)
    return reason

"""One run from start to end: workspace, baseline, search, final measurements."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from seqto.errors import JournalError
from seqto.execution.executor import Executor
from seqto.model import files as model_files
from seqto.record.journal import Journal
from seqto.record.own_files import BASE, COMPILED, JOURNAL, SAMPLES, WORK, OwnFiles, claim
from seqto.records import Json
from seqto.study import check_saturation, workspace
from seqto.study.finish import INT8_PRODUCTS, explain, finish
from seqto.study.header import header as make_header
from seqto.study.header import last_settings, model_identity, refuse_changes
from seqto.study.make_space import make_space
from seqto.study.open_executor import open_executor
from seqto.study.round_weights import Rounding
from seqto.study.setup import Job, calibration_methods, rounding_types
from seqto.study.study import Budget, Study
from seqto.study.timing import Timing


def run(job: Job) -> None:
    """Run or resume; returns when done or out of budget, raises KeyboardInterrupt on Ctrl-C."""
    began = time.monotonic()
    own = claim(job.out)
    with Journal.open(job.out / JOURNAL) as journal:
        place, header = _open_workplace(job, journal, own)
        try:
            with open_executor(job, place) as executor:
                study = _study(job, journal, executor, place, began=began)
                if study.found("header") is None:
                    study.write(header)
                elif last_settings(journal.events) != header["settings"]:
                    study.write({"event": "settings", "settings": header["settings"]})
                reason = _steps(job, study, place)
                study.write(
                    {
                        "event": "end",
                        "reason": reason,
                        "seconds": round(time.monotonic() - began, 1),
                    }
                )
        except KeyboardInterrupt:
            # a journal starts with its header: before it, nothing was begun
            if any(e["event"] == "header" for e in journal.events):
                with contextlib.suppress(JournalError):
                    seconds = round(time.monotonic() - began, 1)
                    journal.append({"event": "end", "reason": "interrupted", "seconds": seconds})
            raise


def clear_cache(folder: Path) -> None:
    """Remove prepared samples and compiled models, which a finished run needs no more."""
    own = OwnFiles.read(folder)
    for name in (SAMPLES, COMPILED, WORK):
        own.clear(name)


def _open_workplace(job: Job, journal: Journal, own: OwnFiles) -> tuple[workspace.Workplace, Json]:
    settings = job.settings
    identity = model_identity(job.fetched)
    recorded = next((e for e in journal.events if e.get("event") == "header"), None)
    if recorded is None and any(e.get("event") != "end" for e in journal.events):
        raise JournalError(f"{job.out / JOURNAL} has no header: give another --out folder")
    if recorded is not None:
        refuse_changes(job, recorded, identity)
    else:
        own.clear(BASE)
        own.take(BASE)
    for name in (SAMPLES, COMPILED, WORK):
        own.take(name)
    prepared = workspace.prepare_model(
        job.fetched, job.out, max_opset=settings.constraints.max_opset
    )
    store = workspace.build_store(
        job.data,
        job.out / "cache" / "samples",
        prepared,
        counts=workspace.Counts(
            settings.data.calibration,
            settings.data.evaluation,
            settings.data.report,
            settings.data.seed,
        ),
        preprocess=job.preprocess,
        max_bad_share=settings.data.max_bad_share,
        progress=job.progress,
    )
    if recorded is not None and recorded["data"]["identity"] != store.identity:
        raise JournalError(
            f"the data have changed since {job.out} was begun: give another --out folder, "
            "or the same data"
        )
    place = workspace.set_up(
        job.fetched,
        job.out,
        store,
        prepared,
        methods=calibration_methods(settings),
        max_opset=settings.constraints.max_opset,
        output=settings.task.output,
        progress=job.progress,
    )
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
        rounding=Rounding(executor, place.folder, rounding_types(job.settings), job.progress),
        listener=job.listener,
        began=began,
        judged=place.judged,
    )


def _steps(job: Job, study: Study, place: workspace.Workplace) -> str:
    """Baseline, analysis, search, then final figures for what is recommended."""
    study.runner.baseline()
    if study.found(INT8_PRODUCTS) is None:
        study.write({"event": INT8_PRODUCTS, **check_saturation.ask(study.executor)})
    if study.found("baseline") is None:
        latency = study.time_baseline()
        study.write(
            {
                "event": "baseline",
                "size_bytes": model_files.size_of(job.fetched.path),
                "accuracy": {
                    s: r.scores.get("accuracy") for s, r in study.runner.references.items()
                },
                "latency": latency.to_json() if latency else None,
                "output": study.runner.judged_json(),
            }
        )
    space = make_space(job, study, place)
    reason = study.search(job.strategy, space, seed=job.settings.search.seed)
    finish(job, study)
    explain(job, study, space)
    return reason

"""One run from start to end: workspace, baseline, search, final measurements."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping

from seqto.api import Result, _gated, write_outputs
from seqto.assembly.plan import Plan
from seqto.errors import JournalError
from seqto.execution.local.pool import Pool
from seqto.model import files as model_files
from seqto.record.journal import Journal, read_events
from seqto.record.own_files import BASE, COMPILED, SAMPLES, OwnFiles, claim
from seqto.records import Json
from seqto.search.space import Space
from seqto.study import check_saturation, workspace
from seqto.study.header import header as make_header
from seqto.study.header import last_settings, model_identity, refuse_changes
from seqto.study.make_space import analysis, make_space
from seqto.study.round_weights import Rounding
from seqto.study.setup import Job, calibration_methods, rounding_types
from seqto.study.study import Budget, Study
from seqto.study.timing import Timing

JOURNAL = "journal.jsonl"


INT8_PRODUCTS = "int8_products"  # the event that says whether the device adds them exactly


SETTLING = 3  # times at most that the chosen are timed again


def run(job: Job) -> Result:
    """Run or resume; returns when done or out of budget, raises KeyboardInterrupt on Ctrl-C."""
    began = time.monotonic()
    own = claim(job.out)
    with Journal.open(job.out / JOURNAL) as journal:
        place, header = _open_workplace(job, journal, own)
        try:
            with open_pool(job, place) as pool:
                study = _study(job, journal, pool, place, began=began)
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
            if not any(e["event"] == "header" for e in journal.events):
                raise  # nothing was begun: a journal starts with its header
            with contextlib.suppress(JournalError):
                seconds = round(time.monotonic() - began, 1)
                journal.append({"event": "end", "reason": "interrupted", "seconds": seconds})
            write_outputs(job.out, journal.events)
            raise
    result = write_outputs(job.out, read_events(job.out / JOURNAL))
    for name in (SAMPLES, COMPILED):
        own.clear(name)
    if result.problems:
        raise JournalError("; ".join(result.problems))
    return _gated(result, job.settings.search.max_loss)


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
    for name in (SAMPLES, COMPILED):
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


def open_pool(job: Job, place: workspace.Workplace) -> Pool:
    device = job.settings.device
    exclusive = getattr(job.device, "exclusive", False)  # one caller at a time
    return Pool(
        "seqto.execution.worker:serve",
        place.setup_json(job.device_json, max_opset=job.settings.constraints.max_opset),
        size=1 if exclusive else job.settings.search.jobs or os.cpu_count() or 1,
        timeout_s=device.timeout_s,
        memory_bytes=None if device.memory_mb is None else device.memory_mb * 1_000_000,
    )


def _study(
    job: Job, journal: Journal, pool: Pool, place: workspace.Workplace, *, began: float
) -> Study:
    search, device = job.settings.search, job.settings.device
    throughput_batch = device.batch and (place.store.fixed_batch or device.batch)
    return Study(
        journal,
        pool,
        place.store,
        task=job.task,
        device=job.device,
        budget=Budget(search.max_trials, search.max_minutes),
        timing=Timing(device.threads, device.latency_s, throughput_batch),
        racing=search.racing,
        race_objectives=search.objectives,
        probes=search.probes,
        chunk=job.settings.data.chunk,
        rounding=Rounding(pool, place.folder, rounding_types(job.settings), job.progress),
        listener=job.listener,
        began=began,
        judged=place.judged,
    )


def _steps(job: Job, study: Study, place: workspace.Workplace) -> str:
    """Baseline, analysis, search, then final figures for what is recommended."""
    study.baseline()
    if study.found(INT8_PRODUCTS) is None:
        study.write({"event": INT8_PRODUCTS, **check_saturation.ask(study.pool)})
    if study.found("baseline") is None:
        latency = study.time_baseline()
        study.write(
            {
                "event": "baseline",
                "size_bytes": model_files.size_of(job.fetched.path),
                "accuracy": {s: r.accuracy for s, r in study.references.items()},
                "latency": latency.to_json() if latency else None,
                "output": study.judged_json(),
            }
        )
    space = make_space(job, study, place)
    reason = study.search(job.strategy, space, seed=job.settings.search.seed)
    finish(job, study)
    _explain(job, study, space)
    return reason


def _explain(job: Job, study: Study, space: Space) -> None:
    """Layer errors for the report, and why the fully quantized model loses what it loses."""
    plan = Plan.of(dict(space.default), job.settings.quantize.transforms)
    if study.deadline is not None and time.monotonic() > study.deadline:
        return
    if not space.default:  # the device refuses the mode's schemes for every layer
        return
    analysis(job, study, Plan.of(dict(space.default)))
    known = [e for e in study.journal.events if e.get("kind") == "diagnosis"]
    if known or not job.settings.analysis.diagnose:
        return
    from seqto.study.diagnose import diagnose

    profiles = [e for e in study.journal.events if e["event"] == "profile"]
    for finding in diagnose(
        study.pool, plan, profiles=profiles, int8_products=study.found(INT8_PRODUCTS)
    ):
        study.write(finding)


def finish(job: Job, study: Study) -> None:
    """Time the front, choose, measure the chosen on the report split, save their models."""
    from seqto.report.json_file import build_report

    keys = {t.number: k for k, t in study.trials.items()}
    # what stands on the front in loss and size must be timed before it can be left out for that
    wanted = [*study.untimed_front(), *build_report(study.journal.events)["front"]]
    untimed = [n for n in dict.fromkeys(wanted) if study.trials[keys[n]].latency is None]
    study.time([keys[n] for n in untimed], final=True)
    _settle(job, study, keys)
    report = build_report(study.journal.events)
    study.confirm([keys[n] for n in sorted(set(report["recommended"].values()))])
    best = report["recommended"].get("balanced", report["recommended"].get("loss"))
    profiled = {e["plan_key"] for e in study.journal.events if e["event"] == "profile"}
    if best is not None and keys[best] not in profiled:
        study.profile(study.trials[keys[best]].plan, scheme=f"trial {best}")


def _settle(job: Job, study: Study, keys: Mapping[int, str]) -> None:
    """Time the chosen again, all beside one float session, until the choice stands.

    The fastest of many is partly the luckiest: minutes in which others used the machine make
    ratios of a tenth less. What is chosen for its time must be as fast a second time.
    """
    from seqto.report.json_file import build_report

    if "latency" not in job.settings.search.objectives:
        return
    for _ in range(SETTLING):
        chosen = sorted(set(build_report(study.journal.events)["recommended"].values()))
        if all(study.is_settled(keys[n]) for n in chosen):
            return
        # the others of the choice once more too: they are compared with the newcomers
        study.time([keys[n] for n in chosen], final=True)

"""What needs a prepared model but no search: the layer analysis, and one model quantized as asked.

Both work beside a run folder without touching its journal. In a folder that is no run the
prepared model and the samples live in a temporary folder and go when the work is done.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqto.assembly.assembler import Assembler, open_assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.config import Settings
from seqto.data.splits import split_rows
from seqto.data.store import SampleStore
from seqto.diagnosis.measure import PARTS
from seqto.errors import ConfigError, DeviceError
from seqto.execution.executor import Executor, run_all
from seqto.execution.jobs import Figures, ProfilePlan
from seqto.files import TEMPORARY, shown, write_file
from seqto.record.journal import read_events
from seqto.record.own_files import JOURNAL, OwnFiles, check_run_folder, is_run
from seqto.records import CALIBRATION, Json
from seqto.search.latency_table import integer_layers
from seqto.study import workspace
from seqto.study.diagnose import diagnose
from seqto.study.export_path import check_output
from seqto.study.header import header as make_header
from seqto.study.header import model_identity, refuse_changes
from seqto.study.make_space import analysis_event, default_plan
from seqto.study.open_executor import open_executor
from seqto.study.setup import Job, calibration_methods
from seqto.study.workspace import Workplace
from seqto.transforms.variants import BASE, CORRECTIONS, MODEL_FILE, place_of, variant_of

ANALYSIS_FILE = "analysis.json"
DIAGNOSIS_FILE = "diagnosis.json"


CHECK_SAMPLES = 4  # random inputs that compare prepared and original where nothing is calibrated


@contextlib.contextmanager
def opened(job: Job) -> Iterator[tuple[Workplace, Json]]:
    """The job's workplace and its header, with calibration samples only; no journal is written.

    A run folder lends its prepared model and its ranges, if model and settings are the run's.
    """
    identity = model_identity(job.fetched)
    events = read_events(job.out / JOURNAL) if is_run(job.out) else []
    recorded = next((e for e in events if e.get("event") == "header"), None)
    if recorded is not None:
        check_run_folder(job.out)
        refuse_changes(job, recorded, identity)
    # beside the result, not in the system's folder: samples may be too large for that
    with scratch_in(job.out) as scratch:
        folder = scratch if recorded is None else job.out
        place = _set_up(job, folder, samples=scratch / "samples")
        yield place, make_header(job, place, identity)


@contextlib.contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """A folder for a while; where it cannot be made, one line says so."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=folder)
    except OSError as error:
        raise ConfigError(
            f"cannot write to {shown(folder)}: {error.strerror or error}; choose another place"
        ) from error
    with made as name:
        yield Path(name)


def _set_up(job: Job, folder: Path, *, samples: Path) -> Workplace:
    settings = job.settings
    prepared = workspace.prepare_model(
        job.fetched, folder, max_opset=settings.constraints.max_opset
    )
    # the same rows that a run with these settings would calibrate on
    rows = split_rows(
        len(job.data),
        calibration=settings.data.calibration,
        evaluation=0,
        report=None,
        seed=settings.data.seed,
        calibration_rows=getattr(job.data, "calibration_rows", None),
    )
    store = SampleStore.build(
        job.data,
        samples,
        splits={CALIBRATION: rows[CALIBRATION]},
        inputs=prepared.inputs,
        preprocess=job.preprocess,
        max_bad_share=settings.data.max_bad_share,
        progress=lambda done, total: job.progress("samples", done, total),
    )
    place = workspace.set_up(
        job.fetched,
        folder,
        store,
        prepared,
        methods=calibration_methods(settings),
        max_opset=settings.constraints.max_opset,
        output=settings.task.output,
        progress=job.progress,
    )
    _treat(job, place)
    return place


def _treat(job: Job, place: Workplace) -> None:
    """Make the treated float model that the settings name, unless the run has made it."""
    transforms = job.settings.quantize.transforms
    if not [t for t in transforms if t not in CORRECTIONS]:
        return
    if (place_of(place.folder, transforms) / MODEL_FILE).is_file():
        return
    found = place.calibration
    if found is None:
        found = calibrate(place.prepared, place.store.calibration)
    workspace.add_variant(
        place,
        transforms,
        methods=calibration_methods(job.settings),
        peaks=found.peaks,
    )


def planned(job: Job, place: Workplace) -> Plan:
    """The plan that the settings give: mode, exclusions, skip rules, transforms."""
    schemes, _ = default_plan(job.settings, place.layers)
    return Plan.of(schemes, job.settings.quantize.transforms)


# ------------------------------------------------------------------------------------- analysis


def analyze(job: Job) -> Json:
    """Rank the layers; analysis.json and plots/layer_errors go to `job.out`. Returns a report."""
    from seqto.report import plots
    from seqto.report.json_file import build_report

    drawings = {f"plots/layer_errors.{kind}": kind for kind in ("png", "svg")}
    OwnFiles.read(job.out).check([ANALYSIS_FILE, *drawings])
    with opened(job) as (place, header):
        plan = planned(job, place)
        if not plan.schemes:
            raise ConfigError("every layer is excluded: there is nothing to analyze")
        with open_executor(job, place) as executor:
            event = analysis_event(job, executor, plan)
    report = build_report([header, event])
    kept = {"model": report["model"], "analysis": report["analysis"], "plan": plan.to_json()}
    text = json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    own = OwnFiles.read(job.out)
    own.write(job.out / ANALYSIS_FILE, text.encode())
    for name, kind in drawings.items():
        drawn = plots.draw(report, "layer_errors", kind=kind)
        if drawn is not None:
            own.write(job.out / name, drawn)
    return report


# --------------------------------------------------------------------------------- one model


def settings_for_one(settings: Settings) -> Settings:
    """Settings for `quantize_once`: where nothing is calibrated, data may be left out."""
    data = settings.data
    if any(x is not None for x in (data.images, data.arrays, data.random)):
        return settings
    if settings.quantize.mode == "static" or settings.quantize.transforms:
        why = (
            "static quantization needs" if settings.quantize.mode == "static" else "transforms need"
        )
        raise ConfigError(
            f"{why} samples to calibrate on: give --data, or use --mode weight or dynamic "
            "without transforms, which work without"
        )
    chosen = dataclasses.replace(data, random=CHECK_SAMPLES, calibration=CHECK_SAMPLES)
    return dataclasses.replace(settings, data=chosen)


def quantize_once(job: Job, output: Path) -> Json:
    """Quantize with the settings' mode and exclusions: {layers, size_bytes, sha256}, no run."""
    output = Path(output)
    check_output(output, Path(job.fetched.path))
    with scratch_in(output.parent) as scratch:
        place = _set_up(job, scratch, samples=scratch / "samples")
        plan = planned(job, place)
        if not plan.schemes:
            raise ConfigError("every layer is excluded: nothing is left to quantize")
        made = _assembler_of(place, plan).assemble(plan)
        # a model that its device cannot run is not handed out
        with contextlib.closing(job.device.open(made.data)) as session:
            session.run(place.store.batch(CALIBRATION, 0, place.store.feed_rows(1)))
        check_output(output, Path(job.fetched.path))  # again: it may have been made since
        write_file(output, made.data, error=ConfigError)
    return {"layers": len(plan.schemes), "size_bytes": made.size_bytes, "sha256": made.sha256}


def _assembler_of(place: Workplace, plan: Plan) -> Assembler:
    """The assembler for the float model, treated or not, that the plan is built on."""
    if variant_of(plan.transforms) == BASE:
        return place.assembler
    found = place_of(place.folder, plan.transforms)
    return open_assembler(found, max_opset=place.assembler.max_opset)


# ------------------------------------------------------------------------------------ diagnosis


def diagnose_job(job: Job) -> list[Json]:
    """Diagnose the plan that the settings give; also written to diagnosis.json in `job.out`."""
    OwnFiles.read(job.out).check([DIAGNOSIS_FILE])
    with opened(job) as (place, _):
        plan = planned(job, place)
        with open_executor(job, place) as executor:
            found = diagnose(executor, plan, profiles=_profiled(executor, plan))
    if len([f for f in found if f["figures"]["cause"] == "failed"]) == len(PARTS):
        raise DeviceError(found[0]["message"])
    text = json.dumps({"plan": plan.to_json(), "findings": found}, indent=1, allow_nan=False)
    OwnFiles.read(job.out).write(job.out / DIAGNOSIS_FILE, text.encode())
    return found


def _profiled(executor: Executor, plan: Plan) -> list[Json]:
    """Kernel times of the float model and of the plan, one after the other: alone."""
    found = []
    for scheme, what in (("float", Plan((), plan.transforms)), ("planned", plan)):
        (done,) = run_all(executor, [ProfilePlan(what)], alone=True)
        if isinstance(done.outcome, Figures) and done.outcome.values["layers_ms"]:
            named = {"plan_key": what.key, "integer_layers": integer_layers(what)}
            found.append({"scheme": scheme, **named, **done.outcome.values})
    return found

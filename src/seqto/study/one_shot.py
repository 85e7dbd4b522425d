"""Work that needs a prepared model but no search: layer analysis, diagnosis, one quantized model.

It never touches a journal and writes no results: api.py does. Samples live in a temporary folder
beside the results, and so does the prepared model unless the folder is that of a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path

from seqto.assembly.assembler import Assembled, Assembler, open_assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.config import Settings
from seqto.diagnosis.measure import PARTS
from seqto.errors import ConfigError, DeviceError
from seqto.execution.executor import Executor, run_all
from seqto.execution.jobs import Figures, ProfilePlan
from seqto.files import TEMPORARY, shown
from seqto.record.events import RunStarted
from seqto.record.own_files import JOURNAL, check_run_folder, is_run
from seqto.record.replay import RunState, read_state, replay
from seqto.records import CALIBRATION, Json
from seqto.search.latency_table import integer_layers
from seqto.study import workspace
from seqto.study.diagnose import diagnose as diagnose_plan
from seqto.study.header import header as make_header
from seqto.study.header import model_identity, refuse_changes
from seqto.study.make_space import analysis_event, default_plan
from seqto.study.open_executor import open_executor
from seqto.study.setup import Job, calibration_methods, data_kinds
from seqto.study.workspace import Workplace
from seqto.transforms.variants import BASE, MODEL_FILE, place_of, variant_of

CHECK_SAMPLES = 4  # random inputs on which prepared and original model are compared without data


@contextlib.contextmanager
def opened(job: Job) -> Iterator[tuple[Workplace, RunStarted]]:
    """Open a workspace with calibration samples only, and make its header; no journal is written.

    Reuses the prepared model and the ranges of a run folder with equal model and settings.
    """
    identity = model_identity(job.fetched)
    recorded = read_state(job.out / JOURNAL).header if is_run(job.out) else None
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
    """Make a temporary folder; where it cannot be made, one line says so."""
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
    prepared = workspace.prepare_model(job, folder)
    store = workspace.build_store(job, prepared, samples, calibration_only=True)
    place = workspace.calibrate_or_load(job, folder, store, prepared)
    _transform(job, place)
    return place


def _transform(job: Job, place: Workplace) -> None:
    """Make the transformed float model that the settings name, unless the run has made it."""
    transforms = job.settings.quantize.transforms
    if variant_of(transforms) == BASE:
        return
    if (place_of(place.folder, transforms) / MODEL_FILE).is_file():
        return
    calibration = place.calibration or calibrate(place.prepared, place.store.calibration)
    workspace.add_variant(
        place,
        transforms,
        methods=calibration_methods(job.settings),
        peaks=calibration.peaks,
    )


def planned(job: Job, place: Workplace) -> Plan:
    """Return the plan that the settings give: mode, exclusions, skip rules, transforms."""
    schemes, _ = default_plan(job.settings, place.layers)
    return Plan.of(schemes, job.settings.quantize.transforms)


# ------------------------------------------------------------------------------------- analysis


def analyze(job: Job) -> tuple[Plan, RunState]:
    """Rank the layers of the plan that the settings give; returns the plan and a state."""
    with opened(job) as (place, header):
        plan = planned(job, place)
        if not plan.schemes:
            raise ConfigError("every layer is excluded: there is nothing to analyze")
        with open_executor(job, place) as executor:
            return plan, replay([header, analysis_event(job, executor, plan)])


# --------------------------------------------------------------------------------- one model


def settings_for_one(settings: Settings) -> Settings:
    """Settings for `quantize`: where nothing is calibrated, data may be left out."""
    if data_kinds(settings):
        return settings
    if settings.quantize.mode == "static" or settings.quantize.transforms:
        why = (
            "static quantization needs" if settings.quantize.mode == "static" else "transforms need"
        )
        raise ConfigError(
            f"{why} samples to calibrate on: give --data, or use --mode weight or dynamic "
            "without transforms, which work without"
        )
    chosen = dataclasses.replace(settings.data, random=CHECK_SAMPLES, calibration=CHECK_SAMPLES)
    return dataclasses.replace(settings, data=chosen)


def quantize(job: Job, *, beside: Path) -> tuple[Plan, Assembled]:
    """Build the model of the plan that the settings give, and run it once on the device.

    `beside`: the folder in which the temporary folder with samples is made.
    """
    with scratch_in(beside) as scratch:
        place = _set_up(job, scratch, samples=scratch / "samples")
        plan = planned(job, place)
        if not plan.schemes:
            raise ConfigError("every layer is excluded: nothing is left to quantize")
        made = _assembler_of(place, plan).assemble(plan)
        # a model that its device cannot run is not handed out
        with contextlib.closing(job.device.open(made.data)) as session:
            session.run(place.store.batch(CALIBRATION, 0, place.store.feed_rows(1)))
    return plan, made


def _assembler_of(place: Workplace, plan: Plan) -> Assembler:
    """Return the assembler of the float model, transformed or not, that the plan is built on."""
    if variant_of(plan.transforms) == BASE:
        return place.assembler
    found = place_of(place.folder, plan.transforms)
    return open_assembler(found, max_opset=place.assembler.max_opset)


# ------------------------------------------------------------------------------------ diagnosis


def diagnose(job: Job) -> tuple[Plan, list[Json]]:
    """Find the causes of the loss of the plan that the settings give."""
    with opened(job) as (place, _):
        plan = planned(job, place)
        with open_executor(job, place) as executor:
            found = diagnose_plan(executor, plan, profiles=_profiled(executor, plan))
    if len([f for f in found if f["figures"]["cause"] == "failed"]) == len(PARTS):
        raise DeviceError(found[0]["message"])
    return plan, found


def _profiled(executor: Executor, plan: Plan) -> list[Json]:
    """Kernel times of the float model and of the plan, one after the other: alone."""
    found = []
    for scheme, what in (("float", plan.with_schemes({})), ("planned", plan)):
        (done,) = run_all(executor, [ProfilePlan(what)], alone=True)
        if isinstance(done.outcome, Figures) and done.outcome.values["layers_ms"]:
            named = {"plan_key": what.key, "integer_layers": integer_layers(what)}
            found.append({"scheme": scheme, **named, **done.outcome.values})
    return found

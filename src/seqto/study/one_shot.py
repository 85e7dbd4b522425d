"""Work that needs a prepared model but no search: layer analysis, diagnosis, one quantized model.

It never touches a journal and writes no results: api.py does. Samples live in a temporary folder
beside the results, and so does the prepared model unless the folder is that of a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from seqto.assembly.assembler import Assembled, Assembler, open_assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.config import Settings
from seqto.devices.device import CheckedDevice
from seqto.diagnosis.measure import PARTS
from seqto.errors import ConfigError, DeviceError, JournalError
from seqto.execution.executor import Executor, run_all
from seqto.execution.jobs import Figures, ProfilePlan
from seqto.files import TEMPORARY, TemporaryFolder, shown, sweep
from seqto.record.events import RunStarted
from seqto.record.own_files import JOURNAL, check_run_folder, is_run
from seqto.record.replay import RunState, read_state, replay
from seqto.records import CALIBRATION, Json
from seqto.search.latency_table import integer_layers
from seqto.study.bundles import device_for
from seqto.study.diagnose import diagnose as diagnose_plan
from seqto.study.header import header as make_header
from seqto.study.header import model_identity, refuse_changes
from seqto.study.layer_ranking import analysis_event
from seqto.study.make_space import default_plan
from seqto.study.open_executor import open_executor
from seqto.study.setup import RunSetup, calibration_methods
from seqto.study.setup_data import data_kinds
from seqto.study.workspace import (
    Workspace,
    add_variant,
    build_store,
    calibrate_or_load,
    prepare_model,
)
from seqto.transforms.variants import BASE, MODEL_FILE, variant_folder, variant_of

CHECK_SAMPLES = 4  # random inputs on which prepared and original model are compared without data


@contextlib.contextmanager
def opened(setup: RunSetup) -> Iterator[tuple[Workspace, RunStarted]]:
    """Open a workspace with calibration samples only, and make its header; no journal is written.

    Reuses the prepared model and the ranges of a run folder with equal model and settings.
    """
    _check_device(setup)
    identity = model_identity(setup.fetched)
    recorded = read_state(setup.out / JOURNAL).header if is_run(setup.out) else None
    if recorded is not None:
        check_run_folder(setup.out)
        refuse_changes(setup, recorded, identity)
    # beside the result, not in the system's folder: samples may be too large for that
    with scratch_in(setup.out) as scratch:
        folder = scratch if recorded is None else setup.out
        workspace = _set_up(setup, folder, samples=scratch / "samples")
        yield workspace, make_header(setup, workspace, identity)


def _check_device(setup: RunSetup) -> None:
    """Refuse a device that cannot be used from here, before any work is done for it."""
    if isinstance(setup.device, CheckedDevice):
        usable, why = setup.device.usable()
        if not usable:
            raise DeviceError(why)


@contextlib.contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """Make a temporary folder; where it cannot be made, one line says so."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        temporary = TemporaryFolder.make(TEMPORARY, parent=folder)
    except (OSError, JournalError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None) or error
        raise ConfigError(
            f"cannot write to {shown(folder)}: {reason}; choose another place"
        ) from error
    sweep(folder)
    try:
        yield temporary.folder
    finally:
        temporary.remove()


def _set_up(setup: RunSetup, folder: Path, *, samples: Path) -> Workspace:
    prepared = prepare_model(setup, folder)
    store = build_store(setup, prepared, samples, calibration_only=True)
    workspace = calibrate_or_load(setup, folder, store, prepared)
    _transform(setup, workspace)
    return workspace


def _transform(setup: RunSetup, workspace: Workspace) -> None:
    """Make the transformed float model that the settings name, unless the run has made it."""
    transforms = setup.settings.quantize.transforms
    if variant_of(transforms) == BASE:
        return
    if (variant_folder(workspace.folder, transforms) / MODEL_FILE).is_file():
        return
    calibration = workspace.calibration or calibrate(
        workspace.prepared, workspace.feeds.calibration
    )
    add_variant(
        workspace,
        transforms,
        methods=calibration_methods(setup.settings),
        peaks=calibration.peaks,
    )


def planned(setup: RunSetup, workspace: Workspace) -> Plan:
    """Return the plan that the settings give: mode, exclusions, skip rules, transforms."""
    schemes, _ = default_plan(setup.settings, workspace.layers)
    return Plan.of(schemes, setup.settings.quantize.transforms)


# ------------------------------------------------------------------------------------- analysis


def analyze(setup: RunSetup) -> tuple[Plan, RunState]:
    """Rank the layers of the plan that the settings give; returns the plan and a state."""
    with opened(setup) as (workspace, header):
        plan = planned(setup, workspace)
        if not plan.schemes:
            raise ConfigError("every layer is excluded: there is nothing to analyze")
        with open_executor(setup, workspace) as executor:
            return plan, replay([header, analysis_event(setup, executor, plan)])


# --------------------------------------------------------------------------------- one model


def settings_for_one(settings: Settings) -> Settings:
    """Return settings for `quantize`: where nothing is calibrated, data may be left out."""
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


def quantize(setup: RunSetup, *, beside: Path) -> tuple[Plan, Assembled]:
    """Build the model of the plan that the settings give, and run it once on the device.

    `beside`: the folder in which the temporary folder with samples is made.
    """
    with scratch_in(beside) as scratch:
        workspace = _set_up(setup, scratch, samples=scratch / "samples")
        plan = planned(setup, workspace)
        if not plan.schemes:
            raise ConfigError("every layer is excluded: nothing is left to quantize")
        assembled = _assembler_of(workspace, plan).assemble(plan)
        # a model that its device cannot run is not handed out
        device = device_for(setup.device, setup.wiring)
        with contextlib.closing(device.open(assembled.data)) as session:
            session.run(workspace.store.batch(CALIBRATION, 0, workspace.store.feed_rows(1)))
    return plan, assembled


def _assembler_of(workspace: Workspace, plan: Plan) -> Assembler:
    """Return the assembler of the float model, transformed or not, that the plan is built on."""
    if variant_of(plan.transforms) == BASE:
        return workspace.assembler
    folder = variant_folder(workspace.folder, plan.transforms)
    return open_assembler(folder, max_opset=workspace.assembler.max_opset)


# ------------------------------------------------------------------------------------ diagnosis


def diagnose(setup: RunSetup) -> tuple[Plan, list[Json]]:
    """Find the causes of the loss of the plan that the settings give."""
    with opened(setup) as (workspace, _):
        plan = planned(setup, workspace)
        with open_executor(setup, workspace) as executor:
            findings = diagnose_plan(executor, plan, profiles=_profiled(executor, plan))
    if len([f for f in findings if f["figures"]["cause"] == "failed"]) == len(PARTS):
        raise DeviceError(findings[0]["message"])
    return plan, findings


def _profiled(executor: Executor, plan: Plan) -> list[Json]:
    """Return kernel times of the float model and of the plan, one after the other: alone."""
    profiles = []
    for scheme, what in (("float", plan.with_schemes({})), ("planned", plan)):
        (done,) = run_all(executor, [ProfilePlan(what)], alone=True)
        if isinstance(done.outcome, Figures) and done.outcome.values["layers_ms"]:
            named = {"plan_key": what.key, "integer_layers": integer_layers(what)}
            profiles.append({"scheme": scheme, **named, **done.outcome.values})
    return profiles

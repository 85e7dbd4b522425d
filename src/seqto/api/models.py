"""Public functions that write or measure one model file: quantize, export, check, apply."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.api.folders import state_of
from seqto.api.result import Applied
from seqto.api.saved_model import SavedModel, export_trial, save_model
from seqto.api.settings import dotted_settings, one_setup, settings_of
from seqto.assembly.rebuild import rebuild
from seqto.errors import ConfigError, PlanError
from seqto.files import TEMPORARY, given_path, temporary_folder, write_file
from seqto.publish.package import refuse_old_card
from seqto.record.replay import RunState
from seqto.report import portability
from seqto.report.view import build_report
from seqto.search.strategies.one_plan import OnePlan
from seqto.selection.recommend import pick_named, recommend
from seqto.study import one_shot
from seqto.study import run as study_run
from seqto.study.apply import refuse_other_graph, settings_for
from seqto.study.check import Checked, check_model
from seqto.study.export_path import check_output
from seqto.study.setup import RunSetup
from seqto.study.workspace import layers_of
from seqto.tasks.task import Task


def quantize(
    model: str | Path,
    output: str | Path,
    *,
    config: str | Path | None = None,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> SavedModel:
    """Quantize one model as the quantize.* settings say, without a search."""
    path, chosen = given_path(output, "output"), settings_of(model, config, settings, overrides)
    if data is None:
        chosen = one_shot.settings_for_one(chosen)
    return run_quantize(one_setup(chosen, path.parent, data=data), path)


def run_quantize(setup: RunSetup, output: Path) -> SavedModel:
    """Quantize with the settings' mode and exclusions, without a run."""
    sources = [Path(path) for path in setup.fetched.files]
    for source in sources:
        check_output(output, source)
    refuse_old_card(output)
    plan, model = one_shot.quantize(setup, beside=output.parent)
    saved = save_model(output, model.data, sources, layers=len(plan.schemes))
    return dataclasses.replace(saved, holds=portability.of_layers(model.may_saturate))


def export(
    folder: str | Path,
    output: str | Path,
    *,
    trial: int | None = None,
    pick: str | None = None,
    notes: bool = False,
) -> SavedModel:
    """Rebuild the model of a trial of a run.

    `pick` names a recommended one as the report does; without it and `trial`, it is the goal's,
    where the run has a goal, else the balanced one. The file is bit for bit the measured one. With
    `notes` each node gets a note with the scheme of its layer, which Netron shows.
    """
    source = Path(folder)
    check_output(given_path(output, "output"), source)
    state = state_of(source)
    number = _trial_number(state, trial, pick)
    if number not in state.trials:
        there = f"it has 0 to {max(state.trials)}" if state.trials else "it has none yet"
        raise ConfigError(f"no trial {number} in {source}: {there}")
    noted = state.header.layers if notes and state.header is not None else ()
    return export_trial(source, output, state.trials[number], noted=noted)


def _trial_number(state: RunState, trial: int | None, pick: str | None) -> int:
    if trial is not None:
        return trial
    picks = recommend(state).picks
    return picks[pick_named(pick, picks)]


def check(
    model: str | Path,
    *,
    against: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Checked:
    """Measure a model file beside its float model on data and a device, without a run folder."""
    chosen = settings_of(against, config, settings, overrides)
    path = Path(model)
    if not path.is_file():
        raise ConfigError(f"{str(path)!r} is no file")
    with temporary_folder(TEMPORARY) as scratch:
        setup = one_setup(chosen, scratch, data=data, task=task)
        return check_model(setup, path, scratch=scratch)


def apply(
    folder: str | Path,
    model: str | Path,
    output: str | Path,
    *,
    trial: int | None = None,
    pick: str | None = None,
    data: Any = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Applied:
    """Put a run's plan on another checkpoint of the same graph, calibrated anew and measured.

    Data and settings are those of the run unless others are given; another graph is refused with
    what differs.
    """
    path = given_path(output, "output")
    check_output(path, Path(model))
    refuse_old_card(path)
    state = state_of(folder)
    number = _trial_number(state, trial, pick)
    if number not in state.trials or state.header is None:
        raise ConfigError(f"no trial {number} in {folder}: see `seqto report {folder}`")
    plan = state.trials[number].plan
    dotted = dotted_settings(settings, overrides)
    chosen = settings_for(state, plan, model=str(model), overrides=dotted)
    with one_shot.scratch_in(path.parent) as scratch:
        timed = "latency" in chosen.search.objectives
        out = scratch / "run"
        setup = one_setup(chosen, out, data=data, strategy=OnePlan(plan, timed))
        refuse_other_graph(state.header.layers, layers_of(setup))
        applied_state = study_run.run(setup)
        applied = applied_state.by_key.get(plan.key)
        if applied is None or applied.error is not None:
            why = "it was not run" if applied is None or applied.error is None else applied.error
            said = why if isinstance(why, str) else why.message
            raise PlanError(f"the plan of trial {number} does not work on {model}: {said}")
        content = rebuild(out, applied.to_json())
        report = build_report(applied_state)
    check_output(path, Path(model))  # again: it may have been made since
    write_file(path, content, error=ConfigError)
    digest = hashlib.sha256(content).hexdigest()
    saved = SavedModel(str(path), len(content), digest, len(plan.schemes), number)
    return Applied(
        saved, next(t for t in report["trials"] if t["number"] == applied.number), report
    )

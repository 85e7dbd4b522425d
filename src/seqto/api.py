"""The public functions, one per command of the command line.

`tune`, `analyze`, `diagnose` and `quantize` take a model and settings; their `run_…` forms take a
set-up that study/setup.py has made. Everything that a user came for is written here: the study
writes its journal only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.assembly.node_notes import with_node_notes
from seqto.assembly.rebuild import rebuild
from seqto.config import Settings, make, read_toml
from seqto.errors import ConfigError, JournalError, PlanError
from seqto.files import TEMPORARY, given_path, read_path, shown, write_file
from seqto.model.bundle import files_of, split_bytes
from seqto.record.own_files import JOURNAL, ForeignFileError, OwnFiles
from seqto.record.replay import RunState, read_state
from seqto.record.trial import Trial
from seqto.records import Json, Layer
from seqto.report import compare as report_compare
from seqto.report import csv_file, html_page, json_file, plots
from seqto.report.models import save_recommended
from seqto.report.view import build_report
from seqto.search.strategies.one_plan import OnePlan
from seqto.selection.recommend import BALANCED, GOAL, pick_named, recommend
from seqto.study import one_shot
from seqto.study import run as study_run
from seqto.study.apply import refuse_other_graph, settings_for
from seqto.study.build_plugins import check_settings
from seqto.study.check import Checked, check_model
from seqto.study.export_path import check_output
from seqto.study.setup import Progress, RunSetup, fetch, make_setup
from seqto.study.starter_config import starter_config
from seqto.study.study import Listener
from seqto.study.workspace import layers_of
from seqto.tasks.task import Task

ANALYSIS_FILE = "analysis.json"
DIAGNOSIS_FILE = "diagnosis.json"


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a run; the same facts as report.json."""

    folder: str
    report: Json
    trials: tuple[Trial, ...]
    front: tuple[int, ...]
    recommended: Mapping[str, int]
    layers: tuple[Layer, ...]
    met_goal: bool | None = None  # None: no goal was set
    problems: tuple[str, ...] = ()  # models that could not be rebuilt
    not_written: tuple[str, ...] = ()  # one sentence per file of the user's that was left


@dataclass(frozen=True, slots=True)
class SavedModel:
    """A model that `quantize` or `export` has written.

    `path` is its file, or, of a bundle, that of its first component; `components` has all of them.
    """

    path: str
    size_bytes: int
    sha256: str
    layers: int  # that are not float32
    trial: int | None = None  # None: quantized without a run
    components: Mapping[str, str] = field(default_factory=dict)  # of a bundle: name → file


@dataclass(frozen=True, slots=True)
class Applied:
    """A run's plan on another checkpoint: the file, and what was measured of it."""

    saved: SavedModel
    trial: Json  # as in report.json
    report: Json


# ----------------------------------------------------------------------------------- with settings


def tune(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
    strategy: Any = None,
    listener: Listener = lambda _event: None,
    progress: Progress = lambda _what, _done, _total: None,
    **overrides: Any,
) -> Result:
    """Tune one model. Keyword overrides are settings with `__` for the dot: search__seed=3.

    `data` is a folder, an .npz, any iterable of arrays or (array, label), or a Data plug-in.
    """
    settings = _settings(model, config, overrides)
    setup = _one_setup(
        settings, given_path(out, "out"), data=data, task=task, strategy=strategy, listener=listener
    )
    return run_tune(dataclasses.replace(setup, progress=progress))


def analyze(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    **overrides: Any,
) -> Json:
    """Rank the layers of one model by their error; analysis.json and a plot go to `out`."""
    settings = _settings(model, config, overrides)
    return run_analyze(_one_setup(settings, given_path(out, "out"), data=data))


def diagnose(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    **overrides: Any,
) -> list[Json]:
    """Find the causes of one model's loss, and remedies; diagnosis.json goes to `out`."""
    settings = _settings(model, config, overrides)
    return run_diagnose(_one_setup(settings, given_path(out, "out"), data=data))


def quantize(
    model: str | Path,
    output: str | Path,
    *,
    config: str | Path | None = None,
    data: Any = None,
    **overrides: Any,
) -> SavedModel:
    """Quantize one model as the quantize.* settings say, without a search."""
    path, settings = given_path(output, "output"), _settings(model, config, overrides)
    if data is None:
        settings = one_shot.settings_for_one(settings)
    return run_quantize(_one_setup(settings, path.parent, data=data), path)


def _settings(
    model: str | Path | None, config: str | Path | None, overrides: Mapping[str, Any]
) -> Settings:
    tables = read_toml(config) if config else {}
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    if model is not None:
        dotted["model.path"] = str(model)
    return make(tables, dotted)


def _one_setup(
    settings: Settings, out: Path, *, task: Task | None = None, strategy: Any = None, **given: Any
) -> RunSetup:
    check_settings(settings, task=task, strategy=strategy)
    if settings.model.path is None and not settings.model.bundle:
        raise ConfigError("no model is given: pass a path, or set model.path in the config")
    models = list(fetch(settings))
    if len(models) != 1:
        names = ", ".join(f.name for f in models)
        raise ConfigError(
            f"{settings.model.path} names several models ({names}): give one per call; the "
            "command `seqto tune` takes several"
        )
    return make_setup(models[0], out, settings, task=task, strategy=strategy, **given)


def init(model: str | Path, output: str | Path, *, data: tuple[str, Any] | None = None) -> RunSetup:
    """Write a commented config with what can be guessed of a model; returns the run's set-up.

    `data` is a key of [data] with its value, e.g. ("images", "pictures/"). A file that is there is
    left as it is.
    """
    path = given_path(output, "output")
    if path.exists():
        raise ConfigError(
            f"{shown(path)} is there already, and is left as it is: choose another -o"
        )
    settings = _settings(str(model), None, {})
    models = list(fetch(settings))
    if len(models) != 1:
        raise ConfigError(f"{model} names {len(models)} models: a config is for one")
    given = str(model) if str(model).startswith("hub:") else str(Path(model).resolve())
    if data is not None and isinstance(data[1], str):
        data = (data[0], str(Path(data[1]).resolve()))
    text = starter_config(models[0], model=given, data=data)
    write_file(path, text.encode(), error=ConfigError)
    return _one_setup(_settings(None, path, {}), path.parent / path.stem)


def check(
    model: str | Path,
    *,
    against: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
    **overrides: Any,
) -> Checked:
    """Measure a model file beside its float model on data and a device, without a run folder."""
    settings = _settings(against, config, overrides)
    path = Path(model)
    if not path.is_file():
        raise ConfigError(f"{str(path)!r} is no file")
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as scratch:
        setup = _one_setup(settings, Path(scratch), data=data, task=task)
        return check_model(setup, path, scratch=Path(scratch))


def apply(
    folder: str | Path,
    model: str | Path,
    output: str | Path,
    *,
    trial: int | None = None,
    pick: str | None = None,
    data: Any = None,
    **overrides: Any,
) -> Applied:
    """Put a run's plan on another checkpoint of the same graph, calibrated anew and measured.

    Data and settings are those of the run unless others are given; another graph is refused with
    what differs.
    """
    path = given_path(output, "output")
    check_output(path, Path(model))
    state = state_of(folder)
    number = _trial_number(state, trial, pick)
    if number not in state.trials or state.header is None:
        raise ConfigError(f"no trial {number} in {folder}: see `seqto report {folder}`")
    plan = state.trials[number].plan
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    settings = settings_for(state, plan, model=str(model), overrides=dotted)
    with one_shot.scratch_in(path.parent) as scratch:
        timed = "latency" in settings.search.objectives
        out = scratch / "run"
        setup = _one_setup(settings, out, data=data, strategy=OnePlan(plan, timed))
        refuse_other_graph(state.header.layers, layers_of(setup))
        study_run.run(setup)
        found = read_state(out / JOURNAL)
        applied = found.by_key.get(plan.key)
        if applied is None or applied.error is not None:
            why = "it was not run" if applied is None or applied.error is None else applied.error
            said = why if isinstance(why, str) else why.message
            raise PlanError(f"the plan of trial {number} does not work on {model}: {said}")
        content = rebuild(out, applied.to_json())
        report = build_report(found)
    check_output(path, Path(model))  # again: it may have been made since
    write_file(path, content, error=ConfigError)
    digest = hashlib.sha256(content).hexdigest()
    saved = SavedModel(str(path), len(content), digest, len(plan.schemes), number)
    return Applied(
        saved, next(t for t in report["trials"] if t["number"] == applied.number), report
    )


# ------------------------------------------------------------------------------------ with a set-up


def run_tune(setup: RunSetup) -> Result:
    """Run or resume a study, then write its outputs; on Ctrl-C too, before it is raised."""
    try:
        study_run.run(setup)
    except KeyboardInterrupt:
        state = read_state(setup.out / JOURNAL) if (setup.out / JOURNAL).is_file() else RunState()
        if state.header is not None:
            write_outputs(setup.out, state)
        raise
    result = write_outputs(setup.out, read_state(setup.out / JOURNAL))
    study_run.clear_cache(setup.out)
    if result.problems:
        raise JournalError("; ".join(result.problems))
    return result


def run_analyze(setup: RunSetup) -> Json:
    """Rank the layers; analysis.json and plots/layer_errors go to `setup.out`. Returns a report."""
    drawings = {f"plots/layer_errors.{kind}": kind for kind in ("png", "svg")}
    OwnFiles.read(setup.out).check([ANALYSIS_FILE, *drawings])
    plan, state = one_shot.analyze(setup)
    report = build_report(state)
    kept = {"model": report["model"], "analysis": report["analysis"], "plan": plan.to_json()}
    text = json.dumps(kept, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    own = OwnFiles.read(setup.out)
    own.write(setup.out / ANALYSIS_FILE, text.encode())
    for name, kind in drawings.items():
        drawn = plots.draw(report, "layer_errors", kind=kind)
        if drawn is not None:
            own.write(setup.out / name, drawn)
    return report


def run_diagnose(setup: RunSetup) -> list[Json]:
    """Find the causes of the loss; they are returned, and written to diagnosis.json."""
    OwnFiles.read(setup.out).check([DIAGNOSIS_FILE])
    plan, findings = one_shot.diagnose(setup)
    text = json.dumps({"plan": plan.to_json(), "findings": findings}, indent=1, allow_nan=False)
    OwnFiles.read(setup.out).write(setup.out / DIAGNOSIS_FILE, text.encode())
    return findings


def run_quantize(setup: RunSetup, output: Path) -> SavedModel:
    """Quantize with the settings' mode and exclusions, without a run."""
    sources = [Path(path) for path in setup.fetched.files]
    for source in sources:
        check_output(output, source)
    plan, model = one_shot.quantize(setup, beside=output.parent)
    return _save(output, model.data, sources, layers=len(plan.schemes))


def _save(
    output: Path, data: bytes, sources: Sequence[Path], *, layers: int, trial: int | None = None
) -> SavedModel:
    """Write a model to its file, or to one file a component; nothing of the user's is lost."""
    files = files_of(output, data)
    for path in files:
        for source in sources:
            check_output(path, source)
    for path, content in files.items():
        write_file(path, content, error=ConfigError)
    components = dict(zip(split_bytes(data), map(str, files), strict=False))
    size = sum(map(len, files.values()))
    digest = hashlib.sha256(data).hexdigest()
    return SavedModel(str(next(iter(files))), size, digest, layers, trial, components)


# ---------------------------------------------------------------------------------- of run folders


def report(folder: str | Path, *, examples: bool = True) -> Result:
    """Write all outputs of a run folder again, from its journal; with or without examples."""
    state = state_of(folder)
    if not examples:
        state.examples.clear()
    return write_outputs(Path(folder), state)


def read_report(folder: str | Path) -> Json:
    """Return what report.json holds, made from the journal; nothing is written."""
    return build_report(state_of(folder))


def export(
    folder: str | Path,
    output: str | Path,
    *,
    trial: int | None = None,
    pick: str | None = None,
    exact: bool = False,
) -> SavedModel:
    """Rebuild the model of a trial of a run.

    `pick` names a recommended one as the report does; without it and `trial`, it is the goal's,
    where the run has a goal, else the balanced one. Each node gets a note with the scheme of its
    layer, which Netron shows; `exact` leaves them out: the file is bit for bit the measured one.
    """
    source, path = Path(folder), given_path(output, "output")
    check_output(path, source)
    state = state_of(source)
    number = _trial_number(state, trial, pick)
    if number not in state.trials:
        there = f"it has 0 to {max(state.trials)}" if state.trials else "it has none yet"
        raise ConfigError(f"no trial {number} in {source}: {there}")
    chosen = state.trials[number]
    data = rebuild(source, chosen.to_json())
    if not exact and state.header is not None:
        data = with_node_notes(data, chosen.plan, state.header.layers)
    return _save(path, data, [source], layers=len(chosen.plan.schemes), trial=number)


def _trial_number(state: RunState, trial: int | None, pick: str | None) -> int:
    if trial is not None:
        return trial
    picks = recommend(state).picks
    return picks[pick_named(pick or (GOAL if GOAL in picks else BALANCED), picks)]


def compare(before: str | Path, after: str | Path, *, margin: float = 0.0) -> Json:
    """Compare the balanced models of two runs; `worse` lists objectives beyond the margin."""
    return report_compare.compare(read_report(before), read_report(after), margin=margin)


def state_of(folder: str | Path) -> RunState:
    """Replay the journal of a run folder."""
    path = read_path(folder, "run folder") / JOURNAL
    if not path.is_file():
        raise ConfigError(f"{shown(folder)} is no run folder: it has no {JOURNAL}")
    return read_state(path)


def write_outputs(out: Path, state: RunState) -> Result:
    """Write the reports, a pure function of the journal, then the recommended models."""
    own = OwnFiles.read(out)
    left: list[str] = []

    def write(path: Path, data: bytes) -> None:
        try:
            own.write(path, data)
        except ForeignFileError as error:
            left.append(str(error))

    report = build_report(state)
    json_file.write_report(out, report, write=write)
    plots.write_plots(out / "plots", report, write=write)
    html_page.write_page(out, report, write=write)
    csv_file.write_front(out, report, write=write)
    not_ours, problems = save_recommended(own, state.trials, report["recommended"].values())
    left += not_ours
    return Result(
        folder=str(out),
        report=report,
        trials=tuple(state.numbered),
        front=tuple(report["front"]),
        recommended=dict(report["recommended"]),
        layers=state.header.layers if state.header else (),
        met_goal=report["goal"]["met"] if report["goal"] else None,
        problems=tuple(problems),
        not_written=tuple(left),
    )

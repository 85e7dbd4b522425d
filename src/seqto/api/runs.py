"""Public functions that make a run folder of one model, or say what a run would do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from seqto.api.outputs import write_outputs
from seqto.api.result import Result
from seqto.api.settings import dotted_settings, one_setup, settings_of
from seqto.demo.run import demo_setup
from seqto.errors import ConfigError, JournalError, SeqtoError
from seqto.files import given_path, shown, write_file
from seqto.publish.mlflow import check_tracker, tracked
from seqto.record.own_files import JOURNAL, check_run_folder
from seqto.record.replay import RunState, read_state
from seqto.report.dry_run import DryRun, describe
from seqto.study import run as study_run
from seqto.study.guess_task import refuse_one_number
from seqto.study.setup import Progress, RunSetup, fetch, make_setups
from seqto.study.starter_config import starter_config
from seqto.study.study import Listener
from seqto.tasks.task import Task

# gives the set-up a listener for as long as its run lasts
Watch = Callable[[RunSetup], AbstractContextManager[RunSetup]]


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
    settings: Mapping[str, Any] | None = None,
    mlflow: str | None = None,
    **overrides: Any,
) -> Result:
    """Tune one model. Keyword overrides are settings with `__` for the dot: search__seed=3.

    `data` is a folder, an .npz, any iterable of arrays or (array, label), or a Data plug-in;
    `settings` has dotted keys: {"search.seed": 3}. `mlflow` is the address of a tracking server
    that the run is recorded in; "": that of MLFLOW_TRACKING_URI.
    """
    if mlflow is not None:
        check_tracker(mlflow)
    chosen = settings_of(model, config, settings, overrides)
    setup = one_setup(
        chosen, given_path(out, "out"), data=data, task=task, strategy=strategy, listener=listener
    )
    with tracked(dataclasses.replace(setup, progress=progress), mlflow) as watched:
        return run_tune(watched)


def run_demo(
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    watch: Watch = contextlib.nullcontext,
    **overrides: Any,
) -> Result:
    """Tune the embedded model, without a download; `watch` may give the run a listener."""
    setup = demo_setup(given_path(out, "out"), dotted_settings(settings, overrides))
    with watch(setup) as watched:
        return run_tune(watched)


def dry_run(
    models: Sequence[str] = (),
    *,
    out: str | Path,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> list[DryRun]:
    """Describe what `tune_models` would do with each model; nothing is written."""
    chosen = settings_of(None, config, settings, overrides)
    setups = make_setups(chosen, models, out=given_path(out, "out"))
    for setup in setups:
        check_run_folder(setup.out)
        refuse_one_number(setup.settings, setup.guess, setup.fetched)
    return [describe(setup) for setup in setups]


def init(model: str | Path, output: str | Path, *, data: tuple[str, Any] | None = None) -> DryRun:
    """Write a commented config with what can be guessed of a model; returns what it would do.

    `data` is a key of [data] with its value, e.g. ("images", "pictures/"). A file that is there is
    left as it is.
    """
    path = given_path(output, "output")
    if os.path.lexists(path):  # a link to nowhere, too
        raise ConfigError(
            f"{shown(path)} is there already, and is left as it is: choose another -o"
        )
    models = list(fetch(settings_of(model, None, None, {})))
    if len(models) != 1:
        raise ConfigError(f"{model} names {len(models)} models: a config is for one")
    model_text = str(model) if str(model).startswith("hub:") else str(Path(model).resolve())
    if data is not None and isinstance(data[1], str):
        data = (data[0], str(Path(data[1]).resolve()))
    text = starter_config(models[0], model=model_text, data=data)
    write_file(path, text.encode(), error=ConfigError)
    try:
        described = _described_config(path)
        if data is not None and described.missing_samples:
            samples = described.samples["there"]
            text = starter_config(models[0], model=model_text, data=data, samples=samples)
            write_file(path, text.encode(), error=ConfigError)
            described = _described_config(path)
        return described
    except SeqtoError as error:
        # the file stays: what it lacks is easier to mend in it than in a command
        error.args = (f"{shown(path)} is written, but a run with it would fail: {error}",)
        raise


def _described_config(path: Path) -> DryRun:
    return describe(one_setup(settings_of(None, path, None, {}), path.parent / path.stem))


def run_tune(setup: RunSetup) -> Result:
    """Run or resume a study, then write its outputs; on Ctrl-C too, before it is raised."""
    refuse_one_number(setup.settings, setup.guess, setup.fetched)
    try:
        state = study_run.run(setup)
    except KeyboardInterrupt:
        state = read_state(setup.out / JOURNAL) if (setup.out / JOURNAL).is_file() else RunState()
        if state.header is not None:
            write_outputs(setup.out, state)
        raise
    result = write_outputs(setup.out, state)
    study_run.clear_cache(setup.out)
    if result.problems:
        raise JournalError("; ".join(result.problems))
    return result

"""The public functions, one per command."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.config import Settings, make, read_toml
from seqto.errors import ConfigError, JournalError
from seqto.files import given_path
from seqto.model.sources.source import Fetched
from seqto.record.own_files import JOURNAL, ForeignFileError, OwnFiles
from seqto.record.replay import RunState, read_state
from seqto.record.trial import Trial
from seqto.records import Json, Layer
from seqto.selection.racing import complete
from seqto.study import run as study_run
from seqto.study import workspace
from seqto.study.setup import Job, check_settings, fetch, make_job
from seqto.study.study import Listener
from seqto.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Result:
    """What `tune` returns; the same facts as report.json."""

    folder: str
    report: Json
    trials: tuple[Trial, ...]
    front: tuple[int, ...]
    recommended: Mapping[str, int]
    layers: tuple[Layer, ...]
    met_max_loss: bool | None = None
    problems: tuple[str, ...] = ()  # what could not be written beside the reports
    not_written: tuple[str, ...] = ()  # one sentence a file that is not ours and was left


def tune(
    model: str | Path | None = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    data: Any = None,
    task: Task | None = None,
    strategy: Any = None,
    listener: Listener = lambda _event: None,
    progress: workspace.Progress = lambda _what, _done, _total: None,
    **overrides: Any,
) -> Result:
    """Tune one model. Keyword overrides are settings with `__` for the dot: search__seed=3.

    `data` is a folder, an .npz, any iterable of arrays or (array, label), or a Data plug-in.
    """
    folder = given_path(out, "out")
    tables = read_toml(config) if config else {}
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    if model is not None:
        dotted["model.path"] = str(model)
    settings = make(tables, dotted)
    check_settings(settings, task=task, strategy=strategy)
    from seqto.model.sources import parse_source

    if settings.model.path is None:
        raise ConfigError("no model is given: pass a path, or set model.path in the config")
    (fetched,) = _only_one(settings, parse_source)
    job = make_job(
        fetched, folder, settings, data=data, task=task, strategy=strategy, listener=listener
    )
    return run(dataclasses.replace(job, progress=progress))


def run(job: Job) -> Result:
    """Run or resume a study, then write its outputs; on Ctrl-C too, before it is raised."""
    try:
        study_run.run(job)
    except KeyboardInterrupt:
        state = read_state(job.out / JOURNAL) if (job.out / JOURNAL).is_file() else RunState()
        if state.header is not None:
            write_outputs(job.out, state)
        raise
    result = write_outputs(job.out, read_state(job.out / JOURNAL))
    study_run.clear_cache(job.out)
    if result.problems:
        raise JournalError("; ".join(result.problems))
    return _gated(result, job.settings.search.max_loss)


def _only_one(settings: Settings, parse_source: Callable[..., Any]) -> list[Fetched]:
    found = list(fetch(settings, parse_source))
    if len(found) != 1:
        names = ", ".join(f.name for f in found)
        raise ConfigError(f"{settings.model.path} names several models ({names}): tune one a call")
    return found


def _gated(result: Result, max_loss: float | None) -> Result:
    if max_loss is None:
        return result
    met = any(loss.value <= max_loss for _, loss in complete(result.trials))
    return dataclasses.replace(result, met_max_loss=met)


def write_outputs(out: Path, state: RunState) -> Result:
    """Reports, a pure function of the journal; then models, which need the prepared one too."""
    from seqto.report import csv_file, html_page, json_file, plots
    from seqto.report.models import save_recommended
    from seqto.report.view import build_report

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
        problems=tuple(problems),
        not_written=tuple(left),
    )

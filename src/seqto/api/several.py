"""Several models in one call: one after the other here, side by side on a cluster.

On a cluster the models share the workers fairly, and `search.max_minutes` is the time of them all;
on this machine it is each model's own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from seqto.api.result import Result
from seqto.api.runs import Watch, run_tune
from seqto.api.settings import settings_of
from seqto.config import Settings
from seqto.errors import SeqtoError
from seqto.files import given_path, write_file
from seqto.record.own_files import check_run_folder
from seqto.records import Json
from seqto.report import html_page, wording
from seqto.study.open_executor import open_cluster
from seqto.study.setup import RunSetup, make_each
from seqto.text import utf8

INDEX = "index.html"

Named = tuple[str, RunSetup | SeqtoError]
Outcome = Result | SeqtoError


@dataclass(frozen=True, slots=True)
class Results:
    """The outcomes of several models; a model that could not be tuned has its error."""

    outcomes: Mapping[str, Outcome]  # by the model's name
    not_written: tuple[str, ...] = ()  # one sentence per file of the user's that was left

    @property
    def done(self) -> dict[str, Result]:
        return {n: o for n, o in self.outcomes.items() if isinstance(o, Result)}

    @property
    def failed(self) -> dict[str, SeqtoError]:
        return {n: o for n, o in self.outcomes.items() if isinstance(o, SeqtoError)}


def tune_models(
    models: Sequence[str] = (),
    *,
    out: str | Path,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    watch: Watch = contextlib.nullcontext,
    finished: Callable[[Result], None] = lambda _result: None,
    **overrides: Any,
) -> Results:
    """Tune each model that the paths name; several get a folder each below `out`, and an index.

    Of several, one that fails stops no other; the error of the only one is raised. `watch` may give
    each run a listener, `finished` is called with each result as it comes.
    """
    chosen, folder = settings_of(None, config, settings, overrides), given_path(out, "out")
    each = make_each(chosen, models, out=folder)

    def tuned(setup: RunSetup) -> Result:
        with watch(setup) as watched:
            result = run_tune(watched)
        finished(result)
        return result

    if len(each) == 1:
        ((name, setup),) = each
        if isinstance(setup, SeqtoError):
            raise setup
        check_run_folder(setup.out)
        return Results({name: tuned(setup)})
    run = side_by_side if chosen.executor.kind == "ray" else one_by_one
    outcomes = dict(zip([n for n, _ in each], run(chosen, each, tuned), strict=True))
    return Results(outcomes, write_index(folder, outcomes))


def one_by_one(
    _settings: Settings, each: Sequence[Named], tune: Callable[[RunSetup], Result]
) -> list[Outcome]:
    return [_outcome(setup, tune) for _, setup in each]


def side_by_side(
    settings: Settings, each: Sequence[Named], tune: Callable[[RunSetup], Result]
) -> list[Outcome]:
    """Run `executor.studies` models at a time on one cluster, within one budget of time."""
    waiting = sum(isinstance(setup, RunSetup) for _, setup in each)
    share = TimeShare(settings.search.max_minutes, min(settings.executor.studies, waiting), waiting)
    with open_cluster(settings) as cluster, ThreadPoolExecutor(max(1, share.at_once)) as threads:

        def tuned(setup: RunSetup) -> Result:
            search = dataclasses.replace(setup.settings.search, max_minutes=share.next_minutes())
            own = dataclasses.replace(setup.settings, search=search)
            return tune(dataclasses.replace(setup, settings=own, cluster=cluster))

        running: list[Future[Outcome]] = [
            threads.submit(_outcome, setup, tuned) for _, setup in each
        ]
        try:
            return [future.result() for future in running]
        except BaseException:  # Ctrl-C, or a bug in one: the others end too
            for future in running:
                future.cancel()
            cluster.abort("the command was ended")
            raise


@dataclasses.dataclass(slots=True)
class TimeShare:
    """The minutes of one model, so that all of them end within those of the command."""

    minutes: float | None
    at_once: int
    waiting: int
    began: float = dataclasses.field(default_factory=time.monotonic)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    def next_minutes(self) -> float | None:
        with self._lock:
            turns = -(-self.waiting // self.at_once)  # rounds of models that are still to come
            self.waiting -= 1
        if self.minutes is None:
            return None
        left = self.minutes - (time.monotonic() - self.began) / 60
        return max(0.0, left / turns)


def _outcome(setup: RunSetup | SeqtoError, tune: Callable[[RunSetup], Result]) -> Outcome:
    if isinstance(setup, SeqtoError):
        return setup
    try:
        check_run_folder(setup.out)
        return tune(setup)
    except SeqtoError as error:
        return error


def write_index(out: Path, outcomes: Mapping[str, Outcome]) -> tuple[str, ...]:
    """Write the list of runs beside them, unless a file of somebody else has its name."""
    path = out / INDEX
    head = path.read_bytes()[:20_000] if path.is_file() else b""
    if path.exists() and b"<title>seqto runs</title>" not in head:
        return (f"{path} is not ours and is left as it is",)
    rows = [_row(name, outcome) for name, outcome in outcomes.items()]
    write_file(path, utf8(html_page.render_index(rows, folder=str(out), live=False)))
    return ()


def _row(name: str, outcome: Outcome) -> Json:
    if isinstance(outcome, SeqtoError):
        return {"href": "", "name": name, "status": "failed", "trials": 0, "sentence": str(outcome)}
    return {
        "href": f"{quote(Path(outcome.folder).name)}/report.html",
        "name": name,
        "status": outcome.report["status"],
        "trials": outcome.report["counts"]["trials"],
        "sentence": wording.recommendation(outcome.report),
    }

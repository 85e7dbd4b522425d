"""Several models in one command: one after the other here, side by side on a cluster.

On a cluster the models share the workers fairly, and `search.max_minutes` is the time of them all;
on this machine it is each model's own.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from seqto.api import Result, run_tune
from seqto.cli.progress import watch
from seqto.config import Settings
from seqto.errors import SeqtoError
from seqto.files import write_file
from seqto.record.own_files import check_run_folder
from seqto.records import Json
from seqto.report import html_page, wording
from seqto.study.open_executor import open_cluster
from seqto.study.setup import RunSetup

INDEX = "index.html"

Named = tuple[str, RunSetup | SeqtoError]
Outcome = Result | SeqtoError


def tune_each(
    settings: Settings, each: Sequence[Named], *, out: Path, as_json: bool
) -> list[tuple[str, Outcome]]:
    """Tune all models; one that fails is an error among the results. Writes the index page."""
    run = side_by_side if settings.executor.kind == "ray" else one_by_one
    done = list(zip([n for n, _ in each], run(settings, each, as_json=as_json), strict=True))
    write_index(out, done)
    return done


def one_by_one(settings: Settings, each: Sequence[Named], *, as_json: bool) -> list[Outcome]:
    return [_outcome(setup, lambda s: _tuned(s, as_json=as_json)) for _, setup in each]


def side_by_side(settings: Settings, each: Sequence[Named], *, as_json: bool) -> list[Outcome]:
    """Run `executor.studies` models at a time on one cluster, within one budget of time."""
    waiting = sum(isinstance(setup, RunSetup) for _, setup in each)
    share = TimeShare(settings.search.max_minutes, min(settings.executor.studies, waiting), waiting)
    with open_cluster(settings) as cluster, ThreadPoolExecutor(max(1, share.at_once)) as threads:

        def tuned(setup: RunSetup) -> Result:
            search = dataclasses.replace(setup.settings.search, max_minutes=share.next_minutes())
            own = dataclasses.replace(setup.settings, search=search)
            return _tuned(
                dataclasses.replace(setup, settings=own, cluster=cluster), as_json=as_json
            )

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


def _tuned(setup: RunSetup, *, as_json: bool) -> Result:
    with watch(setup, quiet=True, as_json=as_json) as watched:
        result = run_tune(watched)
    if not as_json:
        print(f"seqto: {setup.out.name}: {wording.recommendation(result.report)}", file=sys.stderr)
    return result


def write_index(out: Path, done: Sequence[tuple[str, Outcome]]) -> None:
    """Write the list of runs beside them, unless a file of somebody else has its name."""
    path = out / INDEX
    if path.exists() and b"<title>seqto runs</title>" not in path.read_bytes()[:20_000]:
        print(f"seqto: {path} is not ours and is left as it is", file=sys.stderr)
        return
    rows = [_row(name, found) for name, found in done]
    write_file(path, html_page.render_index(rows, folder=str(out), live=False).encode())


def _row(name: str, found: Outcome) -> Json:
    if isinstance(found, SeqtoError):
        return {"href": "", "name": name, "status": "failed", "trials": 0, "sentence": str(found)}
    return {
        "href": f"{quote(Path(found.folder).name)}/report.html",
        "name": name,
        "status": found.report["status"],
        "trials": found.report["counts"]["trials"],
        "sentence": wording.recommendation(found.report),
    }

"""Public functions on run folders that are there, and the list of devices."""

from __future__ import annotations

from pathlib import Path

from seqto.api.outputs import write_outputs
from seqto.api.result import Result
from seqto.devices import available
from seqto.errors import ConfigError
from seqto.files import given_path, read_path, shown, write_file
from seqto.record.own_files import JOURNAL
from seqto.record.replay import RunState, read_state
from seqto.records import Json
from seqto.report import compare as report_compare
from seqto.report import compare_page
from seqto.report.compare_page import check_page
from seqto.report.live import LiveView, start
from seqto.report.view import build_report
from seqto.study.knowledge import knowledge_of
from seqto.text import utf8


def write_report(folder: str | Path, *, examples: bool = True) -> Result:
    """Write all outputs of a run folder again, from its journal; with or without examples."""
    state = state_of(folder)
    if not examples:
        state.examples.clear()
    return write_outputs(Path(folder), state)


def read_report(folder: str | Path) -> Json:
    """Return what report.json holds, made from the journal; nothing is written."""
    return build_report(state_of(folder))


def read_sensitivities(folder: str | Path) -> Json:
    """Return what a run has learnt of its layers; as a JSON file, `search.warm_start` takes it."""
    return knowledge_of(state_of(folder), Path(folder)).to_json()


def compare(
    before: str | Path,
    after: str | Path,
    *,
    margin: float = 0.0,
    page: str | Path | None = None,
) -> Json:
    """Compare the balanced models of two runs; `worse` lists objectives beyond the margin.

    `page` is an HTML file to write: both fronts in one picture, the picks before and after.
    """
    reports = read_report(before), read_report(after)
    comparison = report_compare.compare(*reports, margin=margin)
    if page is not None:
        path = given_path(page, "page")
        check_page(path)
        write_file(path, utf8(compare_page.render(comparison, *reports)), error=ConfigError)
    return comparison


def serve(folder: str | Path, *, port: int = 0) -> LiveView:
    """Serve the live page of a run, or of a folder of runs, on 127.0.0.1; port 0: any free one.

    It runs in a thread of its own: `wait()` waits for its end, `shutdown()` ends it.
    """
    path = read_path(folder, "folder")
    if not path.is_dir():
        raise ConfigError(f"{shown(path)} is no folder")
    return start(path, port=port)


def list_devices() -> list[tuple[str, bool, str]]:
    """Return (device, usable here, why) of every device that is known."""
    return available.usable_devices()


def state_of(folder: str | Path) -> RunState:
    """Replay the journal of a run folder."""
    path = read_path(folder, "run folder") / JOURNAL
    if not path.is_file():
        raise ConfigError(f"{shown(folder)} is no run folder: it has no {JOURNAL}")
    return read_state(path)

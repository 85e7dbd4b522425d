"""The files of a finished run: reports, plots, recommended models."""

from __future__ import annotations

from pathlib import Path

from seqto.api.result import Result
from seqto.record.own_files import ForeignFileError, OwnFiles
from seqto.record.replay import RunState
from seqto.report import csv_file, html_page, json_file, plots
from seqto.report.models import save_recommended
from seqto.report.view import build_report


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

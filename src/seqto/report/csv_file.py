"""front.csv: the trials on the front, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.files import write_file
from seqto.records import Json
from seqto.report.columns import Medium, Row, columns
from seqto.report.json_file import Writer
from seqto.text import plain, utf8

FILE_NAME = "front.csv"


def write_front(
    folder: str | os.PathLike[str], report: Mapping[str, Any], *, write: Writer = write_file
) -> Path:
    """Make front.csv in a run folder."""
    path = Path(folder) / FILE_NAME
    write(path, utf8(front_csv(report)))
    return path


def front_csv(report: Mapping[str, Any]) -> str:
    """Return one line a trial on the front, smallest file first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    shown = columns(report, Medium.CSV)
    writer.writerow([column.name for column in shown])
    on_front = set(report["front"])
    front = [t for t in report["trials"] if t["number"] in on_front]
    for trial in sorted(front, key=lambda t: (t["size_bytes"], t["number"])):
        writer.writerow([_cell(column.value(Row(report, trial))) for column in shown])
    return out.getvalue()


def trial_rows(report: Mapping[str, Any]) -> list[Json]:
    """Return one row for each trial with the columns of front.csv, and whether it is on it."""
    shown = columns(report, Medium.CSV)
    on_front = set(report["front"])
    return [
        {
            **{column.name: column.value(Row(report, trial)) for column in shown},
            "on_front": trial["number"] in on_front,
        }
        for trial in report["trials"]
    ]


def _cell(value: Any) -> Any:
    """Return a number as it is; a text that a spreadsheet would run as a formula gets a quote."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@|%") else text

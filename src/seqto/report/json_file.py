"""Write report.json in a run folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from seqto.files import write_file

Writer = Callable[[Path, bytes], None]

FILE_NAME = "report.json"


def write_report(
    folder: str | os.PathLike[str], report: Mapping[str, Any], *, write: Writer = write_file
) -> Path:
    """Make report.json in a run folder, whole or not at all."""
    path = Path(folder) / FILE_NAME
    # a file name that is no valid Unicode holds lone surrogates: JSON has an escape for them
    write(path, b"".join(part.encode("utf-8", "backslashreplace") for part in _parts(report)))
    return path


def _parts(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of a report in parts, indented as by json.dumps(report, indent=1).

    Lists are encoded entry by entry: all trials of a long run at once took 300 MB.
    """
    before = "{\n "
    for key, value in report.items():
        yield f"{before}{_text(key)}: "
        before = ",\n "
        if not isinstance(value, list) or not value:
            yield _text(value).replace("\n", "\n ")
            continue
        opening = "[\n  "
        for entry in value:
            yield opening + _text(entry).replace("\n", "\n  ")
            opening = ",\n  "
        yield "\n ]"
    yield "\n}\n"


def _text(value: Any) -> str:
    """Return a value as JSON; a line break in it is one of the layout, since strings escape it."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)

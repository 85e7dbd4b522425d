"""Write report.json in a run folder."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
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
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    # a file name that is no valid Unicode holds lone surrogates: JSON has an escape for them
    write(path, text.encode("utf-8", "backslashreplace"))
    return path

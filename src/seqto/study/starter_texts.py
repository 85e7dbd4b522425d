"""The [data] table of a config to begin with, of a model that is fed with texts.

What the columns of a file hold is told by its first rows: texts, or numbers.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path

from seqto.data.tables import CSV, LABEL, LEFT, RIGHT, SCORE, SUFFIXES, TEXT, TEXT_PAIR, TSV
from seqto.tasks.task_guess import EMBEDDING, TEXT_CLASSIFICATION

LOOKED_AT = 50  # rows of the file
PLACEHOLDER_LINES = (
    '# texts = "texts.tsv"        # .tsv, .csv, .jsonl, .parquet, or a file of lines',
    '# columns = ["text"]         # what the columns hold, e.g. ["text", "label"]',
)
TOKENIZER_LINES = (
    "# [data.tokenizer]",
    '# file = "tokenizer.json"    # left out: the one beside the model',
    "# max_length = 128           # tokens; longer texts are cut, and counted",
)


def text_data(path: str, kind: str) -> dict[str, object]:
    """Return keys of [data] for a file of texts and a kind of task: the file, and its columns."""
    columns = guess_columns(path, kind)
    key = "pairs" if LEFT in columns else "texts"
    return {key: path, **({"columns": columns} if columns else {})}


def guess_columns(path: str, kind: str) -> list[str]:
    """Return the roles of a file's columns for a kind of task; [] where they cannot be told."""
    rows = _first_rows(Path(path))
    widths = {len(row) for row in rows}
    if len(widths) != 1:
        return []
    columns = list(zip(*rows, strict=True))
    numbers = tuple(all(map(_is_number, column)) for column in columns)
    whole = bool(columns) and all(cell.strip().lstrip("-").isdigit() for cell in columns[-1])
    if kind == EMBEDDING and numbers in ((False, False), (False, False, True)):
        return [LEFT, RIGHT, SCORE][: len(numbers)]
    if kind == TEXT_CLASSIFICATION and whole and numbers in ((False, True), (False, False, True)):
        return [TEXT, LABEL] if len(numbers) == 2 else [TEXT, TEXT_PAIR, LABEL]
    return []


def _first_rows(path: Path) -> Sequence[Sequence[str]]:
    """Return the first rows of a TSV or CSV file; none of another form of file."""
    form = SUFFIXES.get(path.suffix.lower())
    if form not in (TSV, CSV):
        return []
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = (
                csv.reader(stream)
                if form == CSV
                else (x.rstrip("\r\n").split("\t") for x in stream)
            )
            rows = [row for row in itertools.islice(lines, LOOKED_AT) if any(row)]
    except (OSError, ValueError, csv.Error):  # what is wrong with the file is said by its reader
        return []
    return rows


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True

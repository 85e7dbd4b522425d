"""Rows of text files by column: TSV, CSV, JSON lines, Parquet and plain lines.

A column has a role (`text`, `label`, …). `columns` is a list of roles in the file's order, `_` for
a column to leave out, or a table from role to the column's name or number in the file. Line-based
files are kept as the positions of their lines, so memory does not grow with the texts; CSV, whose
fields may hold line ends, and Parquet are read whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seqto.data.preprocess import UnreadableError
from seqto.errors import ConfigError, DataError, nearest
from seqto.text import plain, shorten

TEXT, TEXT_PAIR, LEFT, RIGHT = "text", "text_pair", "left", "right"
SOURCE, TARGET, REFERENCES = "source", "target", "references"
LABEL, SCORE = "label", "score"
ROLES = (TEXT, TEXT_PAIR, LEFT, RIGHT, SOURCE, TARGET, REFERENCES, LABEL, SCORE)
SKIPPED = "_"
SHOWN = 60  # characters of a value in a message

TSV, CSV, JSONL, PARQUET, LINES = "tsv", "csv", "jsonl", "parquet", "lines"
FORMATS = (TSV, CSV, JSONL, PARQUET, LINES)
SUFFIXES = {
    ".tsv": TSV,
    ".tab": TSV,
    ".csv": CSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".json": JSONL,
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".txt": LINES,
}

Columns = Sequence[str] | Mapping[str, str | int]
ColumnsByRole = dict[str, str | int]  # role → name or number of the column


class Table(Protocol):
    """Rows by role of their columns."""

    def __len__(self) -> int: ...

    def row(self, index: int) -> Mapping[str, Any]:
        """Return role → value; UnreadableError when this row cannot be read."""
        ...

    @property
    def digest(self) -> str: ...


def open_table(
    path: Path | str, columns: Columns, *, header: bool | None = None, form: str | None = None
) -> Table:
    """Open a file of rows; its form follows from its ending where none is given.

    `header`: the first line of TSV and CSV names the columns; None: it does if it holds the names
    of all columns that are asked for.
    """
    path = Path(path)
    if not path.is_file():
        kind = "is no regular file" if path.exists() else "does not exist"
        kind = "is a folder, not a file" if path.is_dir() else kind
        raise DataError(f"the data file {str(path)!r} {kind}")
    if form is None:
        form = SUFFIXES.get(path.suffix.lower(), LINES)
    if form not in FORMATS:
        raise ConfigError(f"data.format = {form!r} is none of {', '.join(FORMATS)}")
    check_columns(columns)
    try:
        if form == PARQUET:
            return _parquet(path, columns)
        if form == CSV:
            return _csv(path, columns, header)
        return _lines(path, columns, form, header)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror or error}") from error


def check_columns(columns: Columns) -> None:
    """Refuse roles that nobody knows and columns that are named twice."""
    roles = list(columns)
    for role in roles:
        if role not in (*ROLES, SKIPPED) or (role == SKIPPED and isinstance(columns, Mapping)):
            raise ConfigError(
                f"data.columns names {role!r}, which is none of {', '.join(ROLES)}"
                f"{nearest(str(role), ROLES)} (write '_' for a column to leave out)"
            )
    for role, column in columns.items() if isinstance(columns, Mapping) else ():
        whole = isinstance(column, int) and not isinstance(column, bool) and column >= 0
        if not whole and not isinstance(column, str):
            raise ConfigError(
                f"data.columns.{role} = {shorten(repr(column), SHOWN)} is neither the name of a "
                "column nor its number, from 0"
            )
    named = [role for role in roles if role != SKIPPED]
    if not named or len(set(named)) != len(named):
        raise ConfigError(f"data.columns = {roles} must name at least one column, each once")


def columns_by_role(columns: Columns) -> ColumnsByRole:
    """Return role → key, for files whose rows are keyed by name."""
    if isinstance(columns, Mapping):
        return dict(columns)
    return {role: role for role in columns if role != SKIPPED}


# ------------------------------------------------------------------------------------------ forms


@dataclass(frozen=True, slots=True)
class _Cells:
    """Rows that are lists of cells, in memory."""

    rows: Sequence[Sequence[str]]
    column_of: Mapping[str, int]
    first: int  # number of the first row's line, for names
    digest: str

    def __len__(self) -> int:
        return len(self.rows)

    def row(self, index: int) -> Mapping[str, Any]:
        return _cells_by_role(self.rows[index], self.column_of, name=f"row {index + self.first}")


@dataclass(frozen=True, slots=True)
class _Lines:
    """Lines of a file, read when they are asked for."""

    path: Path
    form: str
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    numbers: NDArray[np.int64]  # of the lines in the file, from 1
    column_of: ColumnsByRole
    digest: str

    def __len__(self) -> int:
        return len(self.starts)

    def row(self, index: int) -> Mapping[str, Any]:
        name = f"line {self.numbers[index]}"
        with self.path.open("rb") as stream:
            stream.seek(int(self.starts[index]))
            line = stream.read(int(self.ends[index] - self.starts[index]))
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UnreadableError(name, f"not UTF-8 ({error.reason})") from error
        if self.form == LINES:
            return dict.fromkeys(self.column_of, text)
        if self.form == TSV:
            numbers = {role: int(column) for role, column in self.column_of.items()}
            return _cells_by_role(text.split("\t"), numbers, name=name)
        return _by_key(text, self.column_of, name=name)


@dataclass(frozen=True, slots=True)
class _Arrow:
    """Columns of a Parquet file."""

    columns: Mapping[str, Any]  # role → pyarrow column
    digest: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def row(self, index: int) -> Mapping[str, Any]:
        return {role: column[index].as_py() for role, column in self.columns.items()}


def _lines(path: Path, columns: Columns, form: str, header: bool | None) -> _Lines:
    starts, ends, numbers, digest = _find_lines(path)
    if not len(starts):
        raise DataError(f"{str(path)!r} has no rows")
    column_of: ColumnsByRole = columns_by_role(columns)
    if form == LINES:
        if len(column_of) != 1 or not isinstance(columns, Sequence):
            raise ConfigError(
                f"{path.name} is taken as plain lines, which have one column, and data.columns "
                f"names {len(column_of)}: give a .tsv, .csv, .jsonl or .parquet file, or "
                "data.format"
            )
    elif form == TSV:
        with path.open("rb") as stream:
            stream.seek(int(starts[0]))
            first = stream.read(int(ends[0] - starts[0])).decode("utf-8", errors="replace")
        numbered = _numbered(columns, first.split("\t"), header, path=path)
        column_of = dict(numbered.column_of)
        if numbered.header:
            starts, ends, numbers = starts[1:], ends[1:], numbers[1:]
            if not len(starts):
                raise DataError(f"{str(path)!r} has a header and no rows")
    return _Lines(path, form, starts, ends, numbers, column_of, digest)


def _find_lines(
    path: Path,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], str]:
    """Return begin, end and number of each line that is not blank, and the file's sha256."""
    sha = hashlib.sha256()
    spans: list[tuple[int, int, int]] = []
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            sha.update(line)
            start = offset + (3 if number == 1 and line.startswith(b"\xef\xbb\xbf") else 0)
            end = offset + len(line.rstrip(b"\r\n"))
            offset += len(line)
            if line.strip(b"\xef\xbb\xbf \t\r\n"):
                spans.append((start, end, number))
    table = np.array(spans, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2], sha.hexdigest()


def _csv(path: Path, columns: Columns, header: bool | None) -> _Cells:
    content = path.read_bytes()
    try:
        stream = io.StringIO(content.decode("utf-8-sig"), newline="")
        rows = [row for row in csv.reader(stream) if row]
    except UnicodeDecodeError as error:
        raise DataError(f"{str(path)!r} is not UTF-8: {error.reason}") from error
    except csv.Error as error:
        raise DataError(f"{str(path)!r} is no CSV that can be read: {error}") from error
    if not rows:
        raise DataError(f"{str(path)!r} has no rows")
    numbered = _numbered(columns, rows[0], header, path=path)
    data_rows = rows[1:] if numbered.header else rows
    if not data_rows:
        raise DataError(f"{str(path)!r} has a header and no rows")
    digest = hashlib.sha256(content).hexdigest()
    return _Cells(data_rows, numbered.column_of, 2 if numbered.header else 1, digest)


def _parquet(path: Path, columns: Columns) -> _Arrow:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigError(
            f"{path.name} is Parquet, which needs pyarrow: pip install 'seqto[parquet]'"
        ) from error
    column_of = columns_by_role(columns)
    try:
        known = parquet.read_schema(path).names
        for role, name in column_of.items():
            if name not in known:
                raise DataError(_no_column(path, role, name, known))
        table = parquet.read_table(path, columns=[str(name) for name in column_of.values()])
    except pyarrow.ArrowException as error:
        raise DataError(f"{str(path)!r} is no Parquet file that can be read: {error}") from error
    if not table.num_rows:
        raise DataError(f"{str(path)!r} has no rows")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return _Arrow({role: table.column(str(name)) for role, name in column_of.items()}, digest)


# ---------------------------------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class _Numbered:
    column_of: Mapping[str, int]
    header: bool


def _numbered(
    columns: Columns, first: Sequence[str], header: bool | None, *, path: Path
) -> _Numbered:
    """Return role → number of the column, and whether the first line is a header."""
    named = columns_by_role(columns)
    column_names = [str(column) for column in named.values() if not isinstance(column, int)]
    if header is None:
        header = bool(column_names) and all(name in first for name in column_names)
    column_of: dict[str, int] = {}
    for position, (role, column) in enumerate(named.items()):
        if isinstance(column, int):
            column_of[role] = column
        elif header:
            if column not in first:
                raise DataError(_no_column(path, role, column, list(first)))
            column_of[role] = list(first).index(column)
        elif isinstance(columns, Mapping):
            raise DataError(_no_column(path, role, column, list(first)))
        else:
            column_of[role] = list(columns).index(role) if SKIPPED in columns else position
    width = len(first)
    beyond = {role: column for role, column in column_of.items() if not 0 <= column < width}
    if beyond:
        role, column = next(iter(beyond.items()))
        raise DataError(
            f"column {role!r} is number {column + 1}, but {path.name} has {width} in its first "
            "line: check data.columns and the file's form"
        )
    return _Numbered(column_of, header)


def _no_column(path: Path, role: str, name: object, known: Sequence[str]) -> str:
    shown = ", ".join(plain(k)[:40] for k in list(known)[:8])
    return (
        f"{path.name} has no column {name!r} for {role!r}{nearest(str(name), list(known))}: "
        f'it has {shown}; name it in data.columns, as {{ {role} = "…" }}'
    )


def _cells_by_role(
    cells: Sequence[str], column_of: Mapping[str, int], *, name: str
) -> dict[str, Any]:
    missing = [role for role, column in column_of.items() if column >= len(cells)]
    if missing:
        raise UnreadableError(name, f"has {len(cells)} columns, none for {missing[0]!r}")
    return {role: cells[column] for role, column in column_of.items()}


def _by_key(text: str, column_of: Mapping[str, str | int], *, name: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(name, f"not a JSON object on one line ({error})") from error
    if isinstance(record, str) and len(column_of) == 1:
        return dict.fromkeys(column_of, record)
    if not isinstance(record, dict):
        raise UnreadableError(name, "not a JSON object")
    for role, key in column_of.items():
        if key not in record:
            suggestion = nearest(str(key), [str(k) for k in record])
            raise UnreadableError(name, f"has no key {key!r} for {role!r}{suggestion}")
    return {role: record[str(key)] for role, key in column_of.items()}

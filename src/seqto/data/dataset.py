"""Texts from a dataset of the hub, or from a folder that `datasets` has saved (extra `datasets`).

    [data] dataset = "glue"   config = "sst2"   split = "validation"   revision = "main"
           columns = { text = "sentence", label = "label" }

The dataset is read at one commit, which the report names. The library can run scripts and unpickle
in some forms of datasets: only plain files of rows (Parquet, Arrow, CSV, JSON, text) are taken, and
code of a repository is never run.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.data.tables import LEFT, RIGHT, TEXT, check_columns, columns_by_role
from seqto.data.texts import RESUME, ReadTexts, TextReader
from seqto.errors import ConfigError, DataError, nearest
from seqto.records import InputSpec, Json

PLAIN_KINDS = ("parquet", "arrow", "csv", "json", "text")
DIGEST_ROWS = 64


@dataclass(frozen=True, slots=True)
class HubDataset(ReadTexts):
    """Rows of a dataset as texts, or as pairs where columns name left and right.

    config     one of the dataset's configurations
    split      train, validation, test, or a slice such as train[:1000]
    revision   branch, tag or commit
    streaming  read the first `rows` rows without downloading the rest
    offline    take it from the library's cache alone; HF_HUB_OFFLINE=1 does the same
    """

    dataset: str
    columns: tuple[str, ...] | dict[str, Any] = field(default=(TEXT,), metadata=RESUME)
    tokenizer: dict[str, Any] = field(default_factory=dict, metadata=RESUME)
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = False
    rows: int = 10_000
    offline: bool = field(default=False, metadata=RESUME)
    specs: tuple[InputSpec, ...] = ()
    classes: tuple[str, ...] = ()
    reader: TextReader = field(init=False, repr=False, compare=False)
    origin: Json = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_columns(self.columns)
        if (LEFT in self.columns) != (RIGHT in self.columns):
            raise ConfigError("data.columns needs both left and right, or neither")
        if self.rows < 1:
            raise ConfigError(f"data.rows = {self.rows} must be at least 1")
        rows, origin = _load(self)
        table = DatasetTable(rows, columns_by_role(self.columns))
        reader = TextReader.of(
            table, self.columns, self.tokenizer, specs=self.specs, classes=self.classes
        )
        object.__setattr__(self, "reader", reader)
        object.__setattr__(self, "origin", origin)

    def identity(self) -> Json:
        return {"kind": "dataset", "origin": self.origin, **self.reader.identity()}


class DatasetTable:
    """Rows of a `datasets.Dataset`, or of a list of rows, by role."""

    def __init__(self, rows: Any, column_of: Mapping[str, str | int]) -> None:
        self._rows, self._column_of = rows, column_of

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Mapping[str, Any]:
        columns = self._rows[int(index)]
        return {role: columns[column] for role, column in self._column_of.items()}

    @property
    def digest(self) -> str:
        """Digest over the number of rows and some of them, spread evenly."""
        sha = hashlib.sha256(f"{len(self)}".encode())
        steps = range(DIGEST_ROWS)
        for index in sorted({i * (len(self) - 1) // (DIGEST_ROWS - 1) for i in steps}):
            sha.update(repr(sorted(self.row(index).items())).encode())
        return sha.hexdigest()


def _load(source: HubDataset) -> tuple[Any, Json]:
    """Return the rows and where they are from."""
    library = _library()
    names = [str(column) for column in columns_by_role(source.columns).values()]
    try:
        with _offline(library, source.offline):
            if (Path(source.dataset) / "dataset_dict.json").is_file() or (
                Path(source.dataset) / "state.json"
            ).is_file():
                rows, origin = _saved(library, source)
            else:
                rows, origin = _from_hub(library, source)
            _check_names(source, list(rows.column_names or names))
            rows = rows.select_columns(names)
            if source.streaming and not hasattr(rows, "__len__"):
                rows = list(rows.take(source.rows))
    except (ConfigError, DataError):
        raise
    except Exception as error:  # the library raises many types without a root
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DataError(f"dataset {source.dataset!r} cannot be loaded: {line}") from error
    if not rows:
        raise DataError(f"split {source.split!r} of dataset {source.dataset!r} has no rows")
    return rows, origin


def _check_names(source: HubDataset, known: list[str]) -> None:
    for role, column in columns_by_role(source.columns).items():
        if column not in known:
            raise DataError(
                f"dataset {source.dataset!r} has no column {column!r} for {role!r}"
                f"{nearest(str(column), known)}: it has {', '.join(known)}; name it in "
                f'data.columns, as {{ {role} = "…" }}'
            )


def _saved(library: Any, source: HubDataset) -> tuple[Any, Json]:
    """Return a folder written by save_to_disk; one with several splits is a folder of folders."""
    table = library.load_from_disk(source.dataset)
    if hasattr(table, "keys"):
        if source.split not in table:
            suggestion = nearest(source.split, list(table))
            known = ", ".join(table)
            raise DataError(
                f"the folder {source.dataset!r} has no split "
                f"{source.split!r}{suggestion}: it has {known}"
            )
        table = table[source.split]
    return table, {"folder": Path(source.dataset).name, "split": source.split}


def _from_hub(library: Any, source: HubDataset) -> tuple[Any, Json]:
    local = Path(source.dataset).is_dir()
    revision = source.revision
    offline = source.offline or bool(library.config.HF_HUB_OFFLINE)
    if not local and not offline:
        revision = _commit(source)
    builder = library.load_dataset_builder(source.dataset, source.config, revision=revision)
    kind = type(builder).__module__.split(".")
    # cached datasets are Arrow files that the library itself wrote
    if kind[:2] != ["datasets", "packaged_modules"] or kind[2] not in (*PLAIN_KINDS, "cache"):
        raise DataError(
            f"dataset {source.dataset!r} is made by {kind[-1]!r}, which is not taken: only plain "
            f"files of rows are ({', '.join(PLAIN_KINDS)})"
        )
    if kind[2] == "cache" and not offline and str(builder.hash) != revision:
        # the library falls back to what it has without a word
        raise DataError(
            f"dataset {source.dataset!r} cannot be loaded at {str(revision)[:12]}, only "
            f"{str(builder.hash)[:12]} is cached: set data.offline = true to take that"
        )
    if not local and offline:
        revision = _cached_commit(source, str(builder.hash))
    rows = library.load_dataset(
        source.dataset,
        source.config,
        split=source.split,
        revision=None if offline else revision,
        streaming=source.streaming,
    )
    origin = {"config": source.config, "split": source.split, "revision": revision}
    return rows, {"dataset": Path(source.dataset).name if local else source.dataset, **origin}


def _commit(source: HubDataset) -> str | None:
    """Return the commit that a revision means now."""
    import huggingface_hub

    info = huggingface_hub.HfApi().dataset_info(source.dataset, revision=source.revision)
    return None if info.sha is None else str(info.sha)


def _cached_commit(source: HubDataset, commit: str) -> str:
    """Return the commit of the cached dataset; an error where another one is asked for."""
    if source.revision is not None and source.revision != commit:
        raise DataError(
            f"dataset {source.dataset!r} is cached at {commit[:12]}, data.revision asks for "
            f"{source.revision!r}: load it online once, or leave data.revision out"
        )
    return commit


def _library() -> Any:
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    try:
        import datasets
        import huggingface_hub
    except ImportError as error:
        raise ConfigError(
            "data.dataset needs the library datasets: pip install 'seqto[datasets]'"
        ) from error
    huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY = True
    datasets.disable_progress_bars()
    return datasets


@contextmanager
def _offline(library: Any, offline: bool) -> Iterator[None]:
    """Let the library use its cache alone, as HF_HUB_OFFLINE=1 at its start does."""
    before = library.config.HF_HUB_OFFLINE
    library.config.HF_HUB_OFFLINE = before or offline
    try:
        yield
    finally:
        library.config.HF_HUB_OFFLINE = before

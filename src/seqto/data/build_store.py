"""Building a sample store: its content by name, then its files; the record is written last."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqto.data.data import Data, SequenceData, Sequences
from seqto.data.fill_store import fill
from seqto.data.input_file import InputFile, writing
from seqto.data.labels import pack
from seqto.data.preprocess import Preprocess
from seqto.data.ragged import OFFSETS, batched_order
from seqto.errors import DataError
from seqto.files import write_file
from seqto.records import InputSpec, Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA = 1
RECORD = "store.json"
LABELS = "labels.npy"  # where labels are no class numbers


def store_content(
    data: Data,
    *,
    rows: Mapping[str, Sequence[int]],
    inputs: Sequence[InputSpec],
    preprocess: Preprocess | None,
    batch: int,
) -> Json:
    """Return what a store is made from, with the hash of that as its identity."""
    _check_rows(rows, len(data))
    content: Json = {
        "schema": SCHEMA,
        "data": data.identity(),
        "preprocess": preprocess.to_json() if preprocess else None,
        "inputs": [spec.to_json() for spec in inputs],
        "rows": rows,
    }
    about = _sequences(data)
    if about is not None:
        content["sequences"] = {**about.to_json(), "batch": batch}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {**content, "identity": digest}


def write_store(
    data: Data,
    folder: Path,
    content: Json,
    *,
    inputs: Sequence[InputSpec],
    preprocess: Preprocess | None,
    max_bad_share: float,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Write all files of a store of `store_content`; see `SampleStore.build`."""
    about = _sequences(data)
    _clear(folder, len(inputs))
    files = [
        InputFile(folder / f"input-{i}.npy", spec, sequences=about is not None)
        for i, spec in enumerate(inputs)
    ]
    try:
        filled = fill(
            data,
            files,
            rows=content["rows"],
            preprocess=preprocess,
            max_bad_share=max_bad_share,
            progress=progress,
            sequences=about,
        )
        written = [file.finish() for file in files]
    except BaseException:
        for file in files:
            file.discard()
        raise
    if about is not None:
        batch = content["sequences"]["batch"]
        lengths = np.array(filled.pop("lengths"), dtype=np.int64)
        filled |= _put_in_order(filled, lengths.reshape(-1, about.per_sample), batch=batch)
        _write_offsets(folder, lengths)
    filled["labels"], values = pack(filled["labels"])
    if values is not None:
        write_file(folder / LABELS, values, error=DataError)
        filled["label_file"] = LABELS
    record = {**content, "files": written, **filled}
    write_file(folder / RECORD, json.dumps(record).encode(), error=DataError)


def _sequences(data: Data) -> Sequences | None:
    return data.sequences if isinstance(data, SequenceData) else None


def _check_rows(rows: Mapping[str, Sequence[int]], count: int) -> None:
    chosen = [row for split in rows.values() for row in split]
    if not chosen:
        raise DataError(f"no samples are asked for: all splits are empty, the data have {count}")
    if len(set(chosen)) != len(chosen):
        raise DataError("the splits share samples: each row may be in one split, once")
    outside = [row for row in chosen if not 0 <= row < count]
    if outside:
        raise DataError(f"the splits name row {outside[0]}, the data have {count} samples")


def _clear(folder: Path, count: int) -> None:
    """Take the record away first: from here on the folder counts as half-built."""
    with writing(folder, 0):
        (folder / RECORD).unlink(missing_ok=True)
        for name in (LABELS, OFFSETS):
            (folder / name).unlink(missing_ok=True)
        for i in range(count):
            # a new file, not a shorter old one: another process may have the old one mapped
            (folder / f"input-{i}.npy").unlink(missing_ok=True)


def _put_in_order(filled: Json, lengths: NDArray[np.int64], *, batch: int) -> Json:
    """Return order, names and labels of rows put so that neighbours share a batch."""
    order = np.concatenate(
        [
            start + batched_order(lengths[start:stop].max(axis=1), batch=batch)
            for start, stop in filled["spans"].values()
        ]
    ).tolist()
    return {
        "order": order,
        "names": [filled["names"][i] for i in order],
        "labels": [filled["labels"][i] for i in order],
        "texts": [filled["texts"][i] for i in order],
    }


def _write_offsets(folder: Path, lengths: NDArray[np.int64]) -> None:
    stream = io.BytesIO()
    np.save(stream, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    write_file(folder / OFFSETS, stream.getvalue(), error=DataError)

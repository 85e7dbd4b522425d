"""Samples, prepared once and shared by all processes.

A store is a folder: one `.npy` file an input, rows in the order of the splits, and `store.json`,
which is written last. A folder without a matching `store.json` is half-built and is built again.
Pictures are kept as uint8 after resize and crop and normalised when they are read, which needs
a quarter of the disk.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy

from seqto.data.data import Data
from seqto.data.labels import joined, pack, unpack
from seqto.data.preprocess import (
    InputMismatchError,
    Preprocess,
    UnreadableError,
    normalise,
    prepare_row,
    sizes,
)
from seqto.errors import DataError, nearest
from seqto.files import write_file
from seqto.model.batch import Batch, rows_fed
from seqto.records import CALIBRATION, InputSpec, Json, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array, Label

SCHEMA = 1


RECORD = "store.json"


LABELS = "labels.npy"  # where labels are no class numbers


@dataclass(frozen=True, slots=True)
class SampleStore:
    """Prepared samples in memory-mapped files. Made by `build` or `open`, then only read."""

    folder: Path
    record: Json
    arrays: Mapping[str, Array]

    @classmethod
    def build(
        cls,
        data: Data,
        folder: Path,
        *,
        splits: Mapping[str, Sequence[int]],
        inputs: Sequence[InputSpec],
        preprocess: Preprocess | None = None,
        max_bad_share: float = 0.05,
        progress: Callable[[int, int], None] | None = None,
    ) -> SampleStore:
        """Read and prepare every row of the splits once; a store that is there is used again.

        Samples that cannot be read are left out and named, their split gets shorter; more than
        `max_bad_share` of them end it. `progress` is called with (done, total).
        """
        folder = Path(folder)
        rows = {name: [int(row) for row in chosen] for name, chosen in splits.items()}
        _check_rows(rows, len(data))
        content: Json = {
            "schema": SCHEMA,
            "data": data.identity(),
            "preprocess": preprocess.to_json() if preprocess else None,
            "inputs": [spec.to_json() for spec in inputs],
            "rows": rows,
        }
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        with contextlib.suppress(DataError):
            there = cls.open(folder)
            if there.identity == digest:
                return there
        _clear(folder, len(inputs))
        files = [_InputFile(folder / f"input-{i}.npy", spec) for i, spec in enumerate(inputs)]
        try:
            filled = _fill(
                data,
                files,
                rows=rows,
                preprocess=preprocess,
                max_bad_share=max_bad_share,
                progress=progress,
            )
            written = [file.finish() for file in files]
        except BaseException:
            for file in files:
                file.discard()
            raise
        filled["labels"], values = pack(filled["labels"])
        if values is not None:
            write_file(folder / LABELS, values, error=DataError)
            filled["label_file"] = LABELS
        _write_record(folder, {**content, "identity": digest, "files": written, **filled})
        return cls.open(folder)

    @classmethod
    def open(cls, folder: Path) -> SampleStore:
        """Open the store in a folder; DataError when there is none or it is not complete."""
        try:
            folder = Path(folder)
            record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
            if record["schema"] != SCHEMA:
                raise ValueError(f"its schema is {record['schema']}, not {SCHEMA}")
            arrays = {}
            for spec, file in zip(record["inputs"], record["files"], strict=True):
                path = folder / str(file["name"])
                if path.stat().st_size != file["size_bytes"]:
                    raise ValueError(f"{path.name} has not the size it was written with")
                arrays[spec["name"]] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"no complete sample store in {folder}: {error}") from error
        return cls(folder, record, arrays)

    @property
    def identity(self) -> str:
        """sha256 over the data's identity, the preprocessing, the splits and the inputs."""
        return str(self.record["identity"])

    @property
    def data(self) -> Json:
        """The identity of the data source when the store was built."""
        return dict(self.record["data"])

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return tuple(InputSpec.from_json(spec) for spec in self.record["inputs"])

    @property
    def preprocess(self) -> Preprocess | None:
        recorded = self.record["preprocess"]
        return Preprocess.from_json(recorded) if recorded else None

    @property
    def unreadable(self) -> tuple[str, ...]:
        """Names of the samples that were left out, in the order they were met."""
        return tuple(self.record["unreadable"])

    def splits(self) -> dict[str, int]:
        return {name: stop - start for name, (start, stop) in self.record["spans"].items()}

    def rows(self, split: str) -> int:
        start, stop = self._span(split)
        return stop - start

    def names(self, split: str) -> list[str]:
        return list(self.record["names"][slice(*self._span(split))])

    def labels(self, split: str) -> NDArray[Any] | None:
        """Labels as the data gave them, a row per sample; None where any sample has none.

        Class numbers are int64; labels of different shapes are an array of arrays.
        """
        labels = self.record["labels"]
        if self.record.get("label_file"):
            values = np.load(self.folder / self.record["label_file"], allow_pickle=False)
            labels = unpack(labels, values)
        return joined(labels[slice(*self._span(split))])

    @property
    def fixed_batch(self) -> int | None:
        """Number of rows that the model takes at once, where its batch is fixed."""
        shape = self.inputs[0].shape
        return shape[0] if shape else None

    def batch(self, split: str, start: int, stop: int) -> Batch:
        """Rows start to stop of a split (cut at its end), normalised, by input name.

        Where the model has a fixed batch and these are fewer rows, the last one is repeated.
        """
        first, last = self._span(split)
        return self._read(slice(min(first + start, last), min(first + stop, last)))

    def pick(self, split: str, rows: Sequence[int]) -> Batch:
        """Return the same for any rows of a split, in the order given."""
        first, _ = self._span(split)
        return self._read(first + np.asarray(rows, dtype=np.int64))

    def _read(self, rows: slice | NDArray[np.int64]) -> Batch:
        preprocess = self.preprocess
        out: dict[str, Array] = {}
        for spec, file in zip(self.inputs, self.record["files"], strict=True):
            stored = self.arrays[spec.name][rows]
            if file["picture"] and preprocess:
                out[spec.name] = normalise(stored, preprocess).astype(spec.dtype, copy=False)
            else:
                out[spec.name] = np.array(stored, order="C")
        count = rows_fed(out)
        missing = max(0, (self.fixed_batch or 0) - count) if count else 0
        if missing:
            out = {k: np.concatenate([x, *([x[-1:]] * missing)]) for k, x in out.items()}
        return Batch(out, count)

    def picture(self, split: str, row: int) -> NDArray[np.uint8] | None:
        """Return a sample as the pixels that the model sees, H×W×3 or H×W; None: no picture."""
        first, _ = self._span(split)
        for spec, file in zip(self.inputs, self.record["files"], strict=True):
            if file["picture"] and self.preprocess:
                pixels = np.asarray(self.arrays[spec.name][first + row], dtype=np.uint8)
                return pixels[..., 0] if pixels.shape[-1] == 1 else pixels
        return None

    def feed_rows(self, rows: int) -> int:
        """Rows of calibration samples to feed at once: the model's fixed batch, or so many."""
        return min(self.fixed_batch or rows, self.rows(CALIBRATION))

    def calibration(self) -> Iterator[Batch]:
        """Calibration samples one by one, or by the fixed batch: memory stays that of one run."""
        step = self.feed_rows(1)
        for start in range(0, self.rows(CALIBRATION), step):
            yield self.batch(CALIBRATION, start, start + step)

    def _span(self, split: str) -> tuple[int, int]:
        spans = self.record["spans"]
        if split not in spans:
            raise DataError(f"the samples have no split {split!r}{nearest(split, list(spans))}")
        start, stop = spans[split]
        return start, stop


# ------------------------------------------------------------------------------ building a store


class _InputFile:
    """One input's rows, appended to a `.npy` file.

    Plain writes, not a writable memory map: with a full disk the first raises, the second kills
    the process with SIGBUS.
    """

    def __init__(self, path: Path, spec: InputSpec) -> None:
        self.path, self.spec = path, spec
        self.picture = False
        self._shape: tuple[int, ...] | None = None
        self._dtype: np.dtype[np.generic] = np.dtype(np.uint8)
        self._rows = 0
        self._stream: IO[bytes] | None = None

    def append(self, row: Array, *, picture: bool, planned: int) -> None:
        if self._stream is None:
            self.picture, self._shape, self._dtype = picture, row.shape, row.dtype
            with _writing(self.path.parent, planned * row.nbytes):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._stream = self.path.open("wb")
                self._write_header(planned)
        if (row.shape, row.dtype) != (self._shape, self._dtype):
            raise InputMismatchError(
                f"input {self.spec.name!r}: samples differ, {sizes(row.shape)} {row.dtype} after "
                f"{sizes(self._shape or ())} {self._dtype}: set preprocess.resize and "
                "preprocess.crop for pictures, pad or cut arrays to one size"
            )
        with _writing(self.path.parent, planned * row.nbytes):
            self._stream.write(row.tobytes())
        self._rows += 1

    def finish(self) -> Json:
        """Put the true number of rows into the header and make it last; what the record keeps."""
        assert self._stream is not None
        with _writing(self.path.parent, 0), self._stream as stream:
            size_bytes = stream.tell()
            stream.seek(0)
            self._write_header(self._rows)
            stream.flush()
            os.fsync(stream.fileno())
        return {"name": self.path.name, "size_bytes": size_bytes, "picture": self.picture}

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.close()
            self.path.unlink(missing_ok=True)

    def _write_header(self, rows: int) -> None:
        # numpy leaves room for 21 digits of the first axis, so that the length stays the same
        assert self._stream is not None
        shape = (rows, *(self._shape or ()))
        descr = npy.dtype_to_descr(self._dtype)
        npy.write_array_header_1_0(
            self._stream, {"descr": descr, "fortran_order": False, "shape": shape}
        )


def _fill(
    data: Data,
    files: Sequence[_InputFile],
    *,
    rows: Mapping[str, Sequence[int]],
    preprocess: Preprocess | None,
    max_bad_share: float,
    progress: Callable[[int, int], None] | None,
) -> Json:
    """Write every readable row; returns spans, names, labels and what could not be read."""
    total, done = sum(map(len, rows.values())), 0
    specs = [file.spec for file in files]
    spans: dict[str, tuple[int, int]] = {}
    names: list[str] = []
    labels: list[Label | None] = []
    bad: list[str] = []
    reasons: list[str] = []
    for split, chosen in rows.items():
        start = len(names)
        for index in chosen:
            done, name = done + 1, f"row {index}"
            try:
                sample = data.read(index)
                name = sample.name
                values = _by_input(sample, specs)
                prepared = [prepare_row(values[s.name], s, preprocess) for s in specs]
            except InputMismatchError:
                raise
            except DataError as error:
                if not isinstance(error, UnreadableError):
                    error = UnreadableError(name, str(error))
                bad.append(error.sample)
                reasons.append(str(error))
                _check_share(bad, reasons, done=done, total=total, max_bad_share=max_bad_share)
            else:
                for file, (row, picture) in zip(files, prepared, strict=True):
                    file.append(row, picture=picture, planned=total)
                names.append(sample.name)
                labels.append(sample.label)
            if progress:
                progress(done, total)
        spans[split] = (start, len(names))
        if chosen and start == len(names):
            raise DataError(f"no sample of the {split} split can be read: {reasons[-1]}")
    return {"spans": spans, "names": names, "labels": labels, "unreadable": bad}


def _by_input(sample: Sample, specs: Sequence[InputSpec]) -> Mapping[str, Array]:
    names = [spec.name for spec in specs]
    if len(specs) == 1 and list(sample.inputs) == [""]:
        return {names[0]: sample.inputs[""]}
    if set(sample.inputs) != set(names):
        given = (
            ", ".join(repr(name) for name in sample.inputs if name) or "one array without a name"
        )
        raise InputMismatchError(
            f"the model's inputs are {', '.join(map(repr, names))}, the data give {given}: "
            "give one array an input, under the input's name, and no others"
        )
    return sample.inputs


def _check_share(
    bad: Sequence[str], reasons: Sequence[str], *, done: int, total: int, max_bad_share: float
) -> None:
    if len(bad) <= max_bad_share * total:
        return
    first = "; ".join(reasons[:3])
    raise DataError(
        f"{len(bad)} of the first {done} samples cannot be read, more than the allowed "
        f"{max_bad_share:.0%} of all {total}: {first}{'; …' if len(bad) > 3 else ''}. "
        "Mend or remove them, or raise max_bad_share"
    )


def _check_rows(rows: Mapping[str, Sequence[int]], count: int) -> None:
    chosen = [row for split in rows.values() for row in split]
    if not chosen:
        raise DataError(f"no samples are asked for: all splits are empty, the data have {count}")
    if len(set(chosen)) != len(chosen):
        raise DataError("the splits share samples: each row may be in one split, once")
    outside = [row for row in chosen if not 0 <= row < count]
    if outside:
        raise DataError(f"the splits name row {outside[0]}, the data have {count} samples")


@contextlib.contextmanager
def _writing(folder: Path, needed_bytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            size = f" of about {needed_bytes / 1e6:.1f} MB" if needed_bytes else ""
            raise DataError(
                f"the disk is full: no room for the prepared samples{size} in {folder}; free "
                "some space or choose another folder"
            ) from error
        raise DataError(f"cannot write prepared samples to {folder}: {error}") from error


def _clear(folder: Path, count: int) -> None:
    """Take the record away first: from here on the folder counts as half-built."""
    with _writing(folder, 0):
        (folder / RECORD).unlink(missing_ok=True)
        (folder / LABELS).unlink(missing_ok=True)
        for i in range(count):
            # a new file, not a shorter old one: another process may have the old one mapped
            (folder / f"input-{i}.npy").unlink(missing_ok=True)


def _write_record(folder: Path, record: Json) -> None:
    write_file(folder / RECORD, json.dumps(record).encode(), error=DataError)

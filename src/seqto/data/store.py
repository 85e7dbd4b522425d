"""Samples, prepared once and shared by all processes.

A store is a folder: one `.npy` file an input, rows in the order of the splits, and `store.json`,
which is written last. A folder without a matching `store.json` is half-built and is built again.
Pictures are kept as uint8 after resize and crop and normalised when they are read, which needs
a quarter of the disk.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.data.build_store import RECORD, SCHEMA, store_content, write_store
from seqto.data.data import Data
from seqto.data.labels import joined, unpack
from seqto.data.preprocess import (
    Preprocess,
    normalise,
)
from seqto.data.ragged import (
    OFFSETS,
    Ragged,
    Run,
    sequences_from_json,
)
from seqto.errors import DataError, nearest
from seqto.model.batch import Batch, rows_fed
from seqto.records import CALIBRATION, InputSpec, Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array


@dataclass(frozen=True)  # no slots: what is parsed of the record is kept, batches ask for it
class SampleStore:
    """Prepared samples in memory-mapped files. Made by `build` or `open`, then only read."""

    folder: Path
    record: Json
    arrays: Mapping[str, Array]
    ragged: Ragged | None = None  # of sequences

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
        batch: int = 1,
    ) -> SampleStore:
        """Read and prepare every row of the splits once; a store that is there is used again.

        Samples that cannot be read are left out and named, their split gets shorter; more than
        `max_bad_share` of them end it. `progress` is called with (done, total). Sequences are put
        in an order in which each `batch` of them have nearly the same length.
        """
        folder = Path(folder)
        rows = {name: [int(row) for row in chosen] for name, chosen in splits.items()}
        content = store_content(data, rows=rows, inputs=inputs, preprocess=preprocess, batch=batch)
        with contextlib.suppress(DataError):
            there = cls.open(folder)
            if there.identity == content["identity"]:
                return there
        write_store(
            data,
            folder,
            content,
            inputs=inputs,
            preprocess=preprocess,
            max_bad_share=max_bad_share,
            progress=progress,
        )
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
            ragged = _open_ragged(folder, record, arrays) if record.get("sequences") else None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"no complete sample store in {folder}: {error}") from error
        return cls(folder, record, arrays, ragged)

    @property
    def identity(self) -> str:
        """sha256 over the data's identity, the preprocessing, the splits and the inputs."""
        return str(self.record["identity"])

    @property
    def data(self) -> Json:
        """The identity of the data source when the store was built."""
        return dict(self.record["data"])

    @cached_property
    def inputs(self) -> tuple[InputSpec, ...]:
        return tuple(InputSpec.from_json(spec) for spec in self.record["inputs"])

    @cached_property
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

    def texts(self, split: str) -> list[list[str]]:
        """Return the texts of each row, for people; [] where it has none."""
        texts = self.record.get("texts")
        return [[]] * self.rows(split) if texts is None else texts[slice(*self._span(split))]

    def labels(self, split: str) -> NDArray[Any] | None:
        """Return the labels as the data gave them, a row per sample.

        None where any sample has none.
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

    @property
    def run_rows(self) -> int | None:
        """Rows that go through the model at once, where that is not free to choose.

        The model's fixed batch; of sequences data.batch, since padding may change answers.
        """
        if self.fixed_batch or self.ragged is None:
            return self.fixed_batch
        return int(self.record["sequences"]["batch"])

    def lengths(self, split: str) -> NDArray[np.int64] | None:
        """Return how many tokens each row's sequences have (rows × sequences of a row).

        None: no sequences.
        """
        return None if self.ragged is None else self.ragged.lengths(np.arange(*self._span(split)))

    @property
    def truncated(self) -> Json | None:
        """{samples, tokens}: how many texts were cut, by how much in all; None: no sequences."""
        truncated: Json | None = self.record.get("truncated")
        return truncated

    def batch(self, split: str, start: int, stop: int) -> Batch:
        """Return rows start to stop of a split (cut at its end), normalised, by input name.

        Where the model has a fixed batch and these are fewer rows, the last one is repeated. Of
        sequences, the first of each row, padded to the longest.
        """
        first, last = self._span(split)
        return self._read(slice(min(first + start, last), min(first + stop, last)))

    def pick(self, split: str, rows: Sequence[int]) -> Batch:
        """Return the same for any rows of a split, in the order given."""
        first, _ = self._span(split)
        return self._read(first + np.asarray(rows, dtype=np.int64))

    def runs(self, split: str, rows: Sequence[int]) -> Iterator[Run]:
        """Return the runs of the model that rows of sequences need."""
        assert self.ragged is not None
        first, _ = self._span(split)
        return self.ragged.runs(first + np.asarray(rows, dtype=np.int64))

    def _read(self, rows: slice | NDArray[np.int64]) -> Batch:
        if self.ragged is not None:
            chosen = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
            return self.ragged.batch(chosen)
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
        whole = [spec.name for spec in self.inputs if spec.whole]
        if not whole:
            return Batch(out, count)
        # no axis of samples: one sample at a time, as `fixed_batch` says
        fed = rows_fed(out)
        shown = {k: np.asarray(x[0]) if k in whole else x for k, x in out.items()}
        return Batch(shown, count, fed=fed)

    def picture(self, split: str, row: int) -> NDArray[np.uint8] | None:
        """Return a sample as the pixels that the model sees, H×W×3 or H×W; None: no picture."""
        first, _ = self._span(split)
        for spec, file in zip(self.inputs, self.record["files"], strict=True):
            if file["picture"] and self.preprocess:
                pixels = np.asarray(self.arrays[spec.name][first + row], dtype=np.uint8)
                return pixels[..., 0] if pixels.shape[-1] == 1 else pixels
        return None

    def feed_rows(self, rows: int) -> int:
        """Return the rows of calibration samples to feed at once: as many as must be, or so many.

        Sequences that may not be padded are fed one by one.
        """
        alone = self.ragged is not None and not self.ragged.about.masked
        chosen = self.fixed_batch or (1 if alone else self.run_rows or rows)
        return min(chosen, self.rows(CALIBRATION))

    def calibration(self) -> Iterator[Batch]:
        """Yield calibration samples as the evaluation runs them, or one by one where it is free to.

        Memory stays that of one run.
        """
        rows = self.rows(CALIBRATION)
        step = min(self.run_rows or 1, rows)
        for start in range(0, rows, max(1, step)):
            if self.ragged is None:
                yield self.batch(CALIBRATION, start, start + step)
            else:
                chosen = range(start, min(start + step, rows))
                yield from (run.batch for run in self.runs(CALIBRATION, chosen))

    def usual_and_long(self, split: str) -> tuple[int, int | None]:
        """Return rows that latency is measured on: of sequences, of median and 95 % length."""
        if self.ragged is None or not self.rows(split):
            return 0, None
        lengths = self.ragged.lengths(np.arange(*self._span(split)))[:, 0]
        order = np.argsort(lengths, kind="stable")
        return int(order[len(order) // 2]), int(order[int(0.95 * (len(order) - 1))])

    def alike(self, split: str, rows: int) -> list[Batch]:
        """Return some rows in batches of one shape: those whose length is nearest to the median.

        For looking at layers one by one. Sequences are padded to the longest of them, or, where
        padding is not masked, cut to the shortest.
        """
        step = self.fixed_batch or 1
        rows = max(step, min(rows, self.rows(split)) // step * step)
        if self.ragged is None:
            return [self.batch(split, i, i + step) for i in range(0, rows, step)]
        first, last = self._span(split)
        lengths = self.ragged.lengths(np.arange(first, last))[:, 0]
        typical = np.argsort(np.abs(lengths - np.median(lengths)), kind="stable")[:rows]
        width = int(lengths[typical].max() if self.ragged.about.masked else lengths[typical].min())
        length = self.ragged.length_of_model or width
        groups = (typical[i : i + step] for i in range(0, len(typical), step))
        return [self.ragged.batch(first + group, length=length) for group in groups]

    def _span(self, split: str) -> tuple[int, int]:
        spans = self.record["spans"]
        if split not in spans:
            raise DataError(f"the samples have no split {split!r}{nearest(split, list(spans))}")
        start, stop = spans[split]
        return start, stop


def _open_ragged(folder: Path, record: Json, arrays: Mapping[str, Array]) -> Ragged:
    offsets = np.load(folder / OFFSETS, allow_pickle=False)
    if any(len(values) != offsets[-1] for values in arrays.values()):
        raise ValueError(f"{OFFSETS} does not fit the inputs")
    specs = tuple(InputSpec.from_json(spec) for spec in record["inputs"])
    return Ragged(
        sequences_from_json(record["sequences"]),
        specs,
        arrays,
        offsets,
        np.array(record["order"], dtype=np.int64),
        specs[0].shape[0],
    )

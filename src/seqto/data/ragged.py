"""Sequences of different lengths: where each lies, and how they are put into batches.

All inputs of a sequence have its length. The values of an input are stored end to end, `offsets`
says where each sequence begins; a row has `per_sample` of them, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.data.data import Sequences
from seqto.data.preprocess import InputMismatchError
from seqto.errors import DataError
from seqto.model.batch import Batch
from seqto.records import InputSpec, Json, Sample

OFFSETS = "offsets.npy"


@dataclass(frozen=True, slots=True)
class Run:
    """Sequences that go through the model at once: one of each of some rows."""

    positions: NDArray[np.int64]  # of the rows among those that were asked for
    side: int  # which of the row's sequences
    batch: Batch


@dataclass(frozen=True, slots=True)
class Ragged:
    """Stored sequences of some inputs."""

    about: Sequences
    specs: tuple[InputSpec, ...]
    arrays: Mapping[str, NDArray[Any]]  # input → its values, end to end
    offsets: NDArray[np.int64]
    order: NDArray[np.int64]  # row → its place among the stored samples
    fixed_batch: int | None = None

    def lengths(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the lengths of the rows' sequences, one column for each of a row."""
        by_sample = np.diff(self.offsets).reshape(-1, self.about.per_sample)
        lengths: NDArray[np.int64] = by_sample[self.order[rows]]
        return lengths

    def runs(self, rows: NDArray[np.int64]) -> Iterator[Run]:
        """Put rows into as few batches as can be: all, or where padding is not masked, equals."""
        lengths = self.lengths(rows)
        for side in range(self.about.per_sample):
            own = lengths[:, side]
            groups = [np.arange(len(rows))]
            if not self.about.masked and self._open:
                groups = [np.flatnonzero(own == length) for length in np.unique(own)]
            for positions in groups:
                yield Run(positions, side, self.batch(rows[positions], side))

    @property
    def _open(self) -> bool:
        """Whether the model leaves the length open; else every sequence is padded to its own."""
        return self.length_of_model is None

    @property
    def length_of_model(self) -> int | None:
        return next((s.shape[1] for s in self.specs if s.name == self.about.ids), None)

    def batch(self, rows: NDArray[np.int64], side: int = 0, *, length: int | None = None) -> Batch:
        """Return one sequence of each row as a batch, padded to the longest or to a length.

        Sequences beyond a given length are cut; that is for looking at layers, not for answers.
        """
        lengths = self.lengths(rows)[:, side]
        width = length or self.length_of_model or int(lengths.max(initial=0))
        lengths = np.minimum(lengths, width)
        starts = self.offsets[self.order[rows] * self.about.per_sample + side]
        feeds = {}
        for spec in self.specs:
            if spec.name in self.about.empty:
                sides = tuple(side or 0 for side in spec.shape[1:])
                feeds[spec.name] = np.zeros((len(rows), *sides), spec.dtype)
                continue
            values = self.arrays[spec.name]
            filled = np.full((len(rows), width), self.about.pad.get(spec.name, 0), values.dtype)
            for row, (start, size) in enumerate(zip(starts, lengths, strict=True)):
                filled[row, :size] = values[start : start + size]
            feeds[spec.name] = filled
        missing = max(0, (self.fixed_batch or 0) - len(rows)) if len(rows) else 0
        if missing:
            feeds = {k: np.concatenate([x, *([x[-1:]] * missing)]) for k, x in feeds.items()}
        return Batch(feeds, len(rows), lengths=lengths, ids=self.about.ids)


def check_sequence(
    inputs: Mapping[str, NDArray[Any]], specs: Sequence[InputSpec], *, empty: Sequence[str] = ()
) -> int:
    """Return the length of one sequence; an error where inputs and model do not fit.

    `empty` are inputs that are fed nothing, of any number of axes.
    """
    lengths = {name: len(values) for name, values in inputs.items() if np.ndim(values) == 1}
    if len(lengths) != len(inputs) or len(set(lengths.values())) != 1:
        raise DataError("the inputs of one sequence have different lengths")
    (length,) = set(lengths.values())
    for spec in specs:
        if spec.name in empty:
            continue
        if len(spec.shape) != 2:
            raise InputMismatchError(
                f"input {spec.name!r} has {len(spec.shape)} axes; sequences of tokens need two, "
                "samples and tokens"
            )
        if spec.shape[1] is not None and length > spec.shape[1]:
            raise InputMismatchError(
                f"input {spec.name!r} takes {spec.shape[1]} tokens, a text has {length}: set "
                f"data.tokenizer.max_length = {spec.shape[1]}"
            )
    return length


def sequences_of(sample: Sample) -> list[Mapping[str, NDArray[Any]]]:
    return [sample.inputs, *sample.others]


def batched_order(lengths: NDArray[np.int64], *, batch: int, seed: int = 0) -> NDArray[np.int64]:
    """Order rows so that each `batch` of them have nearly the same length, in random turns.

    Sorted by length alone, the first rows, which probes look at, would be the shortest.
    """
    if batch <= 1:
        return np.arange(len(lengths))
    ordered = np.argsort(lengths, kind="stable")
    whole = len(ordered) // batch
    turns = np.random.default_rng(seed).permutation(whole)
    groups = [ordered[turn * batch : (turn + 1) * batch] for turn in turns]
    return np.concatenate([*groups, ordered[whole * batch :]])


def sequences_from_json(record: Json) -> Sequences:
    return Sequences(
        ids=record["ids"],
        pad=dict(record["pad"]),
        masked=record["masked"],
        per_sample=record["per_sample"],
        max_length=record["max_length"],
        empty=tuple(record.get("empty", ())),
    )

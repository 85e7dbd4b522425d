"""Reading every row of the splits once, into the files of a sample store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from seqto.data.data import Data, Sequences
from seqto.data.input_file import InputFile
from seqto.data.preprocess import InputMismatchError, Preprocess, UnreadableError, prepare_row
from seqto.data.ragged import check_sequence, sequences_of
from seqto.errors import DataError
from seqto.records import InputSpec, Json, Sample

MOST_TEXT = 400  # characters of a text that are kept for people

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array, Label


def fill(
    data: Data,
    files: Sequence[InputFile],
    *,
    rows: Mapping[str, Sequence[int]],
    preprocess: Preprocess | None,
    max_bad_share: float,
    progress: Callable[[int, int], None] | None,
    sequences: Sequences | None = None,
) -> Json:
    """Write every readable row; return spans, names, labels and what could not be read."""
    total = sum(map(len, rows.values()))
    filled = _Filled(total, max_bad_share)
    spans: dict[str, tuple[int, int]] = {}
    for split, chosen in rows.items():
        start = len(filled.names)
        for index in chosen:
            filled.add(data, index, files, preprocess=preprocess, sequences=sequences)
            if progress:
                progress(filled.done, total)
        spans[split] = (start, len(filled.names))
        if chosen and start == len(filled.names):
            raise DataError(f"no sample of the {split} split can be read: {filled.reasons[-1]}")
    record: Json = {
        "spans": spans,
        "names": filled.names,
        "labels": filled.labels,
        "unreadable": filled.bad,
    }
    more = {"texts": filled.texts, "lengths": filled.lengths, "truncated": filled.cut}
    return record if sequences is None else {**record, **more}


@dataclass
class _Filled:
    """Facts of the rows that were read so far, and of those that cannot be read."""

    total: int
    max_bad_share: float
    done: int = 0
    names: list[str] = field(default_factory=list)
    texts: list[list[str]] = field(default_factory=list)
    labels: list[Label | None] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # of sequences
    cut: dict[str, int] = field(default_factory=lambda: {"samples": 0, "tokens": 0})
    bad: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def add(
        self,
        data: Data,
        index: int,
        files: Sequence[InputFile],
        *,
        preprocess: Preprocess | None,
        sequences: Sequences | None,
    ) -> None:
        """Read a row and append it to the files; note it where it cannot be read."""
        self.done += 1
        name, specs = f"row {index}", [file.spec for file in files]
        try:
            sample = data.read(index)
            name = sample.name
            if sequences is None:
                prepared = [_prepared(sample, specs, preprocess)]
            else:
                prepared, lengths = _prepared_sequences(sample, specs, sequences)
                self.lengths += lengths
        except InputMismatchError:
            raise
        except DataError as error:
            self._note_bad(
                error if isinstance(error, UnreadableError) else UnreadableError(name, str(error))
            )
            return
        for parts in prepared:
            for file, (row, picture) in zip(files, parts, strict=True):
                file.append(row, picture=picture, planned=self.total)
        self.cut["samples"] += sample.dropped > 0
        self.cut["tokens"] += sample.dropped
        self.names.append(sample.name)
        self.texts.append([text[:MOST_TEXT] for text in sample.texts])
        self.labels.append(sample.label)

    def _note_bad(self, error: UnreadableError) -> None:
        self.bad.append(error.sample)
        self.reasons.append(str(error))
        if len(self.bad) <= self.max_bad_share * self.total:
            return
        first = "; ".join(self.reasons[:3])
        raise DataError(
            f"{len(self.bad)} of the first {self.done} samples cannot be read, more than the "
            f"allowed {self.max_bad_share:.0%} of all {self.total}: {first}"
            f"{'; …' if len(self.bad) > 3 else ''}. Mend or remove them, or raise max_bad_share"
        )


_Prepared = list[tuple["NDArray[np.generic]", bool]]  # by input: values, whether it is a picture


def _prepared(
    sample: Sample, specs: Sequence[InputSpec], preprocess: Preprocess | None
) -> _Prepared:
    values = _by_input(sample, specs)
    return [prepare_row(values[s.name], s, preprocess) for s in specs]


def _prepared_sequences(
    sample: Sample, specs: Sequence[InputSpec], about: Sequences
) -> tuple[list[_Prepared], list[int]]:
    """Return the sequences of a sample by input, and their lengths."""
    parts, lengths = [], []
    for inputs in sequences_of(sample):
        values = _by_input(dataclasses.replace(sample, inputs=inputs), specs)
        lengths.append(check_sequence(values, specs, empty=about.empty))
        arrays = [np.asarray(values[s.name]).astype(s.dtype, copy=False) for s in specs]
        parts.append([(array, False) for array in arrays])
    return parts, lengths


def _by_input(sample: Sample, specs: Sequence[InputSpec]) -> Mapping[str, Array]:
    names = [spec.name for spec in specs]
    if len(specs) == 1 and list(sample.inputs) == [""]:
        return {names[0]: sample.inputs[""]}
    if set(sample.inputs) != set(names):
        named = (
            ", ".join(repr(name) for name in sample.inputs if name) or "one array without a name"
        )
        raise InputMismatchError(
            f"the model's inputs are {', '.join(map(repr, names))}, the data give {named}: "
            "give one array an input, under the input's name, and no others"
        )
    return sample.inputs

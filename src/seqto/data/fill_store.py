"""Reading every row of the splits once, into the files of a sample store."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
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
    """Write every readable row; returns spans, names, labels and what could not be read."""
    total, done = sum(map(len, rows.values())), 0
    specs = [file.spec for file in files]
    spans: dict[str, tuple[int, int]] = {}
    names: list[str] = []
    texts: list[list[str]] = []
    labels: list[Label | None] = []
    bad: list[str] = []
    reasons: list[str] = []
    lengths: list[int] = []
    cut = {"samples": 0, "tokens": 0}
    for split, chosen in rows.items():
        start = len(names)
        for index in chosen:
            done, name = done + 1, f"row {index}"
            try:
                sample = data.read(index)
                name = sample.name
                if sequences is None:
                    prepared = [_prepared(sample, specs, preprocess)]
                else:
                    prepared, own = _prepared_sequences(sample, specs, sequences)
                    lengths += own
            except InputMismatchError:
                raise
            except DataError as error:
                if not isinstance(error, UnreadableError):
                    error = UnreadableError(name, str(error))
                bad.append(error.sample)
                reasons.append(str(error))
                _check_share(bad, reasons, done=done, total=total, max_bad_share=max_bad_share)
            else:
                for parts in prepared:
                    for file, (row, picture) in zip(files, parts, strict=True):
                        file.append(row, picture=picture, planned=total)
                cut["samples"] += sample.dropped > 0
                cut["tokens"] += sample.dropped
                names.append(sample.name)
                texts.append([text[:MOST_TEXT] for text in sample.texts])
                labels.append(sample.label)
            if progress:
                progress(done, total)
        spans[split] = (start, len(names))
        if chosen and start == len(names):
            raise DataError(f"no sample of the {split} split can be read: {reasons[-1]}")
    record: Json = {"spans": spans, "names": names, "labels": labels, "unreadable": bad}
    more = {"texts": texts, "lengths": lengths, "truncated": cut}
    return record if sequences is None else {**record, **more}


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

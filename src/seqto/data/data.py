"""The protocol of a data source.

A data source is a plug-in of the group `seqto.data`: a frozen dataclass whose first field is the
value of its key in [data] (`images = "folder"`). Further fields are further keys of the table;
those called `labels`, `seed`, `specs` and `classes` get data.labels, data.seed, the model's inputs
(InputSpec) and the task's names of classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from seqto.records import Json, Sample


@runtime_checkable
class Data(Protocol):
    """A data source. Reading may fail for one sample without ending the run."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Return a sample; raise DataError when it cannot be read."""
        ...

    def identity(self) -> Json:
        """Return names, sizes and a digest, which change with the data; `kind` names the source."""
        ...


@runtime_checkable
class ReservedData(Data, Protocol):
    """Data that keep some rows for calibration alone; None: any row may serve it."""

    @property
    def calibration_rows(self) -> Sequence[int] | None: ...


@dataclass(frozen=True, slots=True)
class Sequences:
    """Rules by which samples of different lengths are put into batches."""

    ids: str  # the input that takes token numbers
    pad: Mapping[str, int]  # input → the value that fills up a shorter sequence
    masked: bool  # the model is told what is padding; else only equal lengths share a batch
    per_sample: int = 1  # sequences of one sample, each run by itself: 2 for pairs of texts
    max_length: int | None = None  # tokens beyond which a text was cut
    empty: tuple[str, ...] = ()  # inputs that are fed nothing: a decoder's cache at its beginning

    def to_json(self) -> Json:
        empty = {"empty": list(self.empty)} if self.empty else {}
        return {
            **empty,
            "ids": self.ids,
            "pad": dict(self.pad),
            "masked": self.masked,
            "per_sample": self.per_sample,
            "max_length": self.max_length,
        }


@runtime_checkable
class SequenceData(Data, Protocol):
    """Data whose samples are sequences of different lengths."""

    @property
    def sequences(self) -> Sequences: ...


def reserved_rows(data: Data) -> Sequence[int] | None:
    """Return the rows that serve calibration alone, where the data keep some."""
    return data.calibration_rows if isinstance(data, ReservedData) else None

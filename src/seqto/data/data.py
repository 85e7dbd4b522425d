"""The protocol of a data source.

A data source is a plug-in of the group `seqto.data`: a frozen dataclass whose first field is the
value of its key in [data] (`images = "folder"`). Further fields are further keys of the table;
those called `labels`, `seed` and `specs` get data.labels, data.seed and the model's inputs
(InputSpec).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from seqto.records import Json, Sample


@runtime_checkable
class Data(Protocol):
    """A data source. Reading may fail for one sample without ending the run."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Raises DataError when this sample cannot be read."""
        ...

    def identity(self) -> Json:
        """Return names, sizes and a digest, which change with the data; `kind` names the source."""
        ...


@runtime_checkable
class ReservedData(Data, Protocol):
    """Data that keep some rows for calibration alone; None: any row may serve it."""

    @property
    def calibration_rows(self) -> Sequence[int] | None: ...


def reserved_rows(data: Data) -> Sequence[int] | None:
    """Return the rows that serve calibration alone, where the data keep some."""
    return data.calibration_rows if isinstance(data, ReservedData) else None

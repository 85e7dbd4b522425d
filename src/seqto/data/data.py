"""The protocol of a data source."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from seqto.records import Json, Sample


@runtime_checkable
class Data(Protocol):
    """Where samples come from. Reading may fail for one sample without ending the run."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Sample:
        """Raises DataError when this sample cannot be read."""
        ...

    def identity(self) -> Json:
        """What changes when the data change: names, sizes, digest."""
        ...

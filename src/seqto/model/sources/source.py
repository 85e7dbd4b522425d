"""The protocol of a model source, and the record of a model file that was fetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from seqto.records import Json


@runtime_checkable
class Source(Protocol):
    """Where models come from: yields (name, path, provenance)."""

    def fetch(self) -> Iterator[Fetched]: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model file on this disk, and what its origin says about it."""

    name: str
    path: str
    origin: Json  # {"kind": "hub", "repo": …, "revision": …} or {"kind": "file"}
    preprocess: Json | None = None  # from the repository's own config, where it has one

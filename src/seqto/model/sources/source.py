"""The protocol of a model source, and the record of a model file that was fetched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from seqto.records import Json


@runtime_checkable
class Source(Protocol):
    """A model source: yields model files with their origin."""

    def fetch(self) -> Iterator[Fetched]: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A model file on this disk, with its origin and the preprocessing that the origin names."""

    name: str
    path: str
    origin: Json  # {"kind": "hub", "repo": …, "revision": …} or {"kind": "file"}
    preprocess: Json | None = None  # from the repository's own config, where it has one
    text: Json | None = None  # {task, tokenizer, generation, taken} of a text model's repository

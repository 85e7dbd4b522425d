"""The protocol of a model source, and the record of a model file that was fetched."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from seqto.model import bundle
from seqto.model import files as model_files
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
    components: Mapping[str, str] = field(default_factory=dict)  # of a bundle: component → its file
    text: Json | None = None  # {task, tokenizer, generation, taken} of a text model's repository

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self.components.values()) or (self.path,)

    def load(self) -> Any:
        """Return the model, that of a bundle merged."""
        if not self.components:
            return model_files.load(self.path)
        return bundle.merge(
            {name: model_files.load(path) for name, path in self.components.items()}
        )

    def size_bytes(self) -> int:
        return sum(model_files.size_of(path) for path in self.files)

    def sha256(self) -> str:
        """Return the file's hash; of a bundle, one over the names and hashes of its components."""
        if not self.components:
            return model_files.sha256_of_file(self.path)
        each = [f"{n} {model_files.sha256_of_file(path)}\n" for n, path in self.components.items()]
        return hashlib.sha256("".join(each).encode()).hexdigest()

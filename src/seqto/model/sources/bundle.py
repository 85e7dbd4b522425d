"""Several model files that are tuned as one plan ([model.bundle])."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqto.errors import ConfigError
from seqto.model.sources.file import File
from seqto.model.sources.source import Fetched


@dataclass(frozen=True, slots=True)
class Bundle:
    """Component (`encoder`, `decoder`) → path of an .onnx file."""

    components: Mapping[str, str]

    def fetch(self) -> Iterator[Fetched]:
        for name, path in self.components.items():
            if not isinstance(path, str):
                raise ConfigError(f"model.bundle.{name} = {path!r} is no path")
        paths = {name: next(File(path).fetch()).path for name, path in self.components.items()}
        origin = {"kind": "bundle", "components": dict(paths)}
        yield Fetched(self._name(), next(iter(paths.values())), origin, components=paths)

    def _name(self) -> str:
        """Return what the files' names begin with: aren-encoder and aren-decoder are aren."""
        stems = [Path(path).stem for path in self.components.values()]
        shared = os.path.commonprefix(stems).rstrip("-_. ")  # noqa: RUF071  (names, no paths)
        return shared or "+".join(stems)

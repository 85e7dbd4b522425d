"""Several model files that are tuned as one plan ([model.bundle])."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from seqto.errors import ConfigError
from seqto.model.sources import parse_source
from seqto.model.sources.file import File
from seqto.model.sources.source import Fetched

HUB = "hub:"


@dataclass(frozen=True, slots=True)
class Bundle:
    """Component (`encoder`, `decoder`) → path of an .onnx file, or hub:OWNER/NAME/FILE.

    The other fields are those of the hub.
    """

    components: Mapping[str, str]
    cache_dir: str | None = None
    endpoint: str | None = None
    offline: bool = False

    def fetch(self) -> Iterator[Fetched]:
        for name, path in self.components.items():
            if not isinstance(path, str):
                raise ConfigError(f"model.bundle.{name} = {path!r} is no path")
        fetched = {name: self._component(name, path) for name, path in self.components.items()}
        paths = {name: component.path for name, component in fetched.items()}
        origin = {"kind": "bundle", "components": dict(paths)}
        text = None
        for component in fetched.values():  # the last one, the decoder, knows how to generate
            if component.text is not None:
                text, origin["repo"] = component.text, component.origin["repo"]
                origin["taken"] = component.text["taken"]
        yield Fetched(
            self._name(paths), next(iter(paths.values())), origin, components=paths, text=text
        )

    def _component(self, name: str, path: str) -> Fetched:
        if not path.startswith(HUB):
            return next(File(path).fetch())
        fields = {"cache_dir": self.cache_dir, "endpoint": self.endpoint, "offline": self.offline}
        models = list(parse_source(path, **fields).fetch())
        if len(models) != 1:
            raise ConfigError(
                f"model.bundle.{name} = {path!r} names {len(models)} models: name one file, as "
                "hub:OWNER/NAME/FILE"
            )
        return models[0]

    def _name(self, paths: Mapping[str, str]) -> str:
        """Return what the files' names begin with: aren-encoder and aren-decoder are aren."""
        stems = [Path(path).stem for path in paths.values()]
        shared = os.path.commonprefix(stems).rstrip("-_. ")  # noqa: RUF071  (names, no paths)
        return shared or "+".join(stems)

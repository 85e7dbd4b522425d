"""All models of one folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from seqto.errors import ModelError, nearest
from seqto.model.sources.source import Fetched


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of a folder whose names match, in the order of their names.

    Sub-folders are not entered: exporters put variants of a model there, and tuning them all is
    hours of work that nobody asked for. Hidden files are left out unless the pattern begins with
    a dot.
    """

    path: str
    pattern: str = "*.onnx"

    def fetch(self) -> Iterator[Fetched]:
        folder = Path(self.path)
        if not folder.is_dir():
            what = "is no folder" if folder.exists() else "does not exist"
            raise ModelError(f"folder {self.path!r} {what}; give a folder that holds .onnx files")
        try:
            names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
        except OSError as error:
            raise ModelError(
                f"folder {self.path!r} cannot be read: {error.strerror}; check its permissions"
            ) from error
        chosen = [name for name in names if self._wants(name)]
        if not chosen:
            raise ModelError(
                f"folder {self.path!r} holds no file that matches {self.pattern!r}"
                f" ({len(names)} other files, sub-folders are not searched)"
                + nearest(self.pattern, names)
            )
        for name in chosen:
            origin = {"kind": "folder", "folder": self.path, "pattern": self.pattern, "file": name}
            yield Fetched(Path(name).stem, str(folder / name), origin)

    def _wants(self, name: str) -> bool:
        if name.startswith(".") and not self.pattern.startswith("."):
            return False
        return fnmatchcase(name, self.pattern)

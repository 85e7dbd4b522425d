"""One model file on this disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqto.errors import ModelError, nearest
from seqto.model.sources.source import Fetched


@dataclass(frozen=True, slots=True)
class File:
    """A path to an .onnx file; its content is checked later, when it is loaded."""

    path: str

    def fetch(self) -> Iterator[Fetched]:
        path = Path(self.path)
        if path.is_dir():
            raise ModelError(f"model {self.path!r} is a folder; give one of the files in it")
        if path.is_symlink() and not path.exists():
            raise ModelError(
                f"model {self.path!r} is a link to {str(path.readlink())!r}, which does not exist"
            )
        if path.exists() and not path.is_file():
            raise ModelError(f"model {self.path!r} is no regular file; give an .onnx file")
        if not path.is_file():
            raise ModelError(f"model {self.path!r} does not exist{_hint(path)}")
        yield Fetched(path.stem, str(path), {"kind": "file", "path": str(path)})


def _hint(path: Path) -> str:
    """Suggest a near name in the folder, or say which folder is missing."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return f"; there is no folder {str(path.parent)!r} that can be read"
    return nearest(path.name, names) or "; check the path"

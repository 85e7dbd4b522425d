"""Files that jobs and results name: by content hash, with a path relative to the run folder.

Workers resolve the path against their own root. On this machine that is the run folder itself;
another machine can be given the files, and checks their hashes when they arrive.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from seqto.errors import JournalError
from seqto.files import TEMPORARY, inside, make_folder
from seqto.model.files import sha256_of_file
from seqto.records import Json

WORK = "cache/work"  # where workers put the files that they make
COMPILED = "cache/compiled"  # where devices keep the models that they compile


@dataclass(frozen=True, slots=True)
class FileRef:
    """One file by its content; `name` is its path relative to the run folder."""

    sha256: str
    size_bytes: int
    name: str

    def to_json(self) -> Json:
        return {"sha256": self.sha256, "size_bytes": self.size_bytes, "name": self.name}

    @classmethod
    def from_json(cls, data: Json) -> FileRef:
        return cls(data["sha256"], data["size_bytes"], data["name"])


class FileStore(Protocol):
    """The files of a run, as the main process sees them. On this machine: the run folder."""

    def put(self, path: Path) -> FileRef:
        """Name a file of this store by its content."""
        ...

    def path(self, ref: FileRef) -> Path:
        """Return where a file is here."""
        ...

    def named(self, name: str) -> Path:
        """Return the place of a relative name."""
        ...

    def adopt(self, ref: FileRef, name: str) -> FileRef:
        """Move a file that a worker has made to its place in the run folder."""
        ...

    def discard(self, ref: FileRef) -> None:
        """Delete a file of a worker that is needed no more."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The run folder, and single files elsewhere that stand under a name of it."""

    root: Path
    elsewhere: Mapping[str, Path] = field(default_factory=dict)

    def put(self, path: Path) -> FileRef:
        name = self._name_of(path)
        return FileRef(sha256_of_file(path), path.stat().st_size, name)

    def path(self, ref: FileRef) -> Path:
        return self.named(ref.name)

    def named(self, name: str) -> Path:
        """Return the place of a relative name; one that leads out of the root is refused."""
        if name in self.elsewhere:
            return self.elsewhere[name]
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts:
            raise JournalError(f"{name!r} is no path inside of the run folder")
        return inside(self.root, name)

    def receive(self, ref: FileRef, content: Path) -> Path:
        """Put a file that came from another machine in its place, if it is what was named."""
        digest = sha256_of_file(content)
        if digest != ref.sha256:
            raise JournalError(
                f"{ref.name!r} arrived with sha256 {digest[:12]}…, not {ref.sha256[:12]}…: "
                "send it again"
            )
        return self._replace(content, self.named(ref.name))

    def adopt(self, ref: FileRef, name: str) -> FileRef:
        """Move a file that a worker has made to its place in the run folder."""
        self._replace(self.path(ref), self.named(name))
        return FileRef(ref.sha256, ref.size_bytes, name)

    def work_file(self, name: str) -> Path:
        """Return a place for a file that a worker makes; another process never has the same."""
        folder = self.named(WORK)
        make_folder(folder)
        return folder / f"{name}-{os.getpid()}"

    def put_folder(self, name: str) -> tuple[FileRef, ...]:
        """Name the files of a folder by their contents."""
        paths = self.complete_files(self.named(name))
        return tuple(
            FileRef(sha256_of_file(p), p.stat().st_size, f"{name}/{p.name}") for p in paths
        )

    def complete_files(self, folder: Path) -> list[Path]:
        """List the files of a folder that are not being written; none where it is missing."""
        there = folder.iterdir() if folder.is_dir() else ()
        return sorted(p for p in there if p.is_file() and not p.name.startswith(TEMPORARY))

    def discard(self, ref: FileRef) -> None:
        """Delete a file of a worker that is needed no more."""
        if ref.name.startswith(f"{WORK}/"):
            self.path(ref).unlink(missing_ok=True)

    def _name_of(self, path: Path) -> str:
        for name, outside in self.elsewhere.items():
            if outside == path:
                return name
        return path.resolve().relative_to(self.root.resolve()).as_posix()

    def _replace(self, source: Path, target: Path) -> Path:
        make_folder(target.parent)
        os.replace(source, target)
        return target

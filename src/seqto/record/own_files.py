"""List of the files of a folder that are ours: others are never removed or replaced.

`seqto-files.jsonl` lists every file that was written into a folder, with size and sha256. A line is
on the disk before its file is, so that a kill in between leaves nothing of ours unlisted. A file
whose content is not listed is somebody else's, whatever its name.

    {"seqto":"files","schema":1}                         the first line
    {"run":true}                                         `tune` works here
    {"file":"report.html","size_bytes":9,"sha256":"…"}   written, or about to be
    {"folder":"cache/samples"}                           made by us, with all that we put there
    {"removed":"cache/samples"}
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from seqto.errors import JournalError
from seqto.files import TEMPORARY, inside, is_unfinished, shown, sweep, write_file
from seqto.records import Json

LIST = "seqto-files.jsonl"
JOURNAL = "journal.jsonl"
FIRST = b'{"seqto":"files","schema":1}\n'
# folders of a run that are filled piece by piece, and the names that we give to files in them
BASE, SAMPLES, COMPILED = "variants/base", "cache/samples", "cache/compiled"


WORK = "cache/work"  # files that jobs and their results name


_FILLED = {
    BASE: r"(model|treated)\.onnx(\.data)?|statistics\.npz|rounded\.json|rounded-\d+\.npy",
    SAMPLES: r"store\.json|labels\.npy|offsets\.npy|input-\d+\.npy",
    COMPILED: r"[0-9a-f]{64}\.so|tmp\w+\.so",
    WORK: r"(outputs|model|reference|order|rounded)-[\w.+-]+",
}


_RUN_FOLDERS = ("variants", "cache", "models", "plots")


_RUN_FILES = (
    *(JOURNAL, "journal.lock", LIST, "report.json", "report.html", "front.csv"),
    *("analysis.json", "diagnosis.json"),
)


class ForeignFileError(JournalError):
    """A file that we did not write stands where one of ours belongs."""


@dataclass(slots=True)
class OwnFiles:
    """The list of one folder. Reading it writes nothing."""

    folder: Path
    files: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    is_run: bool = False

    @classmethod
    def read(cls, folder: Path) -> OwnFiles:
        """Read the list of a folder, empty when there is none.

        Lines that make no sense say nothing.
        """
        own = cls(Path(folder))
        for line in _lines(own.folder / LIST):
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                own._apply(json.loads(line))
        return own

    def write(self, path: Path, data: bytes, *, repair: bool = False) -> None:
        """Make or replace a file of ours; ForeignFileError when another's stands there.

        With `repair` a listed file of the same size, or a piece of the new content, counts as
        ours that was damaged.
        """
        name = Path(path).relative_to(self.folder).as_posix()
        there = self._content(name)
        digest = hashlib.sha256(data).hexdigest()
        if there is not None and there != data and not self._is_own(name, there):
            sizes = {size for size, _ in self.files.get(name, ())}
            if not (repair and sizes and (len(there) in sizes or data.startswith(there))):
                raise self._foreign(name)
        if (len(data), digest) not in self.files.get(name, ()):
            self._note({"file": name, "size_bytes": len(data), "sha256": digest})
        if there != data:
            write_file(self.folder / name, data)

    def check(self, names: Iterable[str]) -> None:
        """Raise when a file that is not ours stands at one of these names."""
        for name in names:
            there = self._content(name)
            if there is not None and not self._is_own(name, there):
                raise self._foreign(name)

    def sha256(self, name: str) -> str | None:
        """Return the hash of the regular file at a name; None when there is none."""
        with contextlib.suppress(ForeignFileError):
            there = self._content(name)
            return None if there is None else hashlib.sha256(there).hexdigest()
        return None

    def remove(self, name: str, *, known: str = "") -> None:
        """Remove a file if its content is ours: listed, or of the sha256 `known`."""
        with contextlib.suppress(ForeignFileError):
            there = self._content(name)
            if there is not None and (
                self._is_own(name, there) or hashlib.sha256(there).hexdigest() == known
            ):
                (self.folder / name).unlink()

    def take(self, name: str) -> None:
        """Make a folder ours before it is filled; one that is there must be ours already."""
        path = inside(self.folder, name)
        if name in self.folders:
            return
        if os.path.lexists(path):
            raise ForeignFileError(
                f"{shown(path)} was not made by this run: rename it, then run the same command"
            )
        self._note({"folder": name})

    def clear(self, name: str) -> None:
        """Remove what we have put into a folder of ours, and the folder if that was all."""
        if name not in self.folders:
            return
        path = inside(self.folder, name)
        ours = re.compile(rf"({_FILLED[name]}|{re.escape(TEMPORARY)}\w+)")
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for entry in list(os.scandir(path)):
                if ours.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)
        for folder in (path, path.parent):
            with contextlib.suppress(OSError):  # not empty, or not there
                folder.rmdir()
        self._note({"removed": name})

    def stranger(self, below: str = "") -> str | None:
        """Return the first entry of the folder that is not listed, or None."""
        for entry in sorted(os.listdir(self.folder / below)):
            name = f"{below}{entry}"
            if name == LIST or name in self.files or is_unfinished(entry):
                continue
            path = self.folder / name
            if (
                path.is_dir()
                and not path.is_symlink()
                and any(f.startswith(f"{name}/") for f in self.files)
            ):
                if (foreign := self.stranger(f"{name}/")) is not None:
                    return foreign
                continue
            return name
        return None

    # ---------------------------------------------------------------------------------- inside

    def _content(self, name: str) -> bytes | None:
        """Return a file's bytes; None where there is none. Links are never ours."""
        path = inside(self.folder, name)
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise self._foreign(name)
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ForeignFileError(
                f"{shown(path)} cannot be read ({error.strerror}), so it is left as it is: "
                "make it readable, or remove it"
            ) from error

    def _is_own(self, name: str, content: bytes) -> bool:
        known = self.files.get(name, ())
        return (len(content), hashlib.sha256(content).hexdigest()) in known

    def _foreign(self, name: str) -> ForeignFileError:
        return ForeignFileError(
            f"{shown(self.folder / name)} is not as seqto wrote it, or not by seqto, and is left "
            "as it is: rename or delete it, then run the same command again"
        )

    def _apply(self, line: Json) -> None:
        if "file" in line:
            entry = (int(line["size_bytes"]), str(line["sha256"]))
            self.files.setdefault(str(line["file"]), set()).add(entry)
        elif "folder" in line:
            self.folders.add(str(line["folder"]))
        elif "removed" in line:
            self.folders.discard(str(line["removed"]))
        elif "run" in line:
            self.is_run = True

    def _note(self, line: Json) -> None:
        """Add a line; several processes may do so at a time."""
        path = self.folder / LIST
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o644)
            try:
                size = os.fstat(descriptor).st_size
                text = json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
                if size < len(FIRST):  # new, or torn in its first line
                    os.ftruncate(descriptor, 0)
                    text = FIRST + text
                elif os.pread(descriptor, 1, size - 1) != b"\n":  # torn: the half line stays alone
                    text = b"\n" + text
                os.write(descriptor, text)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise JournalError(
                f"cannot write {shown(path)}: {error.strerror or error}; "
                "check that the folder exists and is yours to write, and that there is space"
            ) from error
        self._apply(line)


def check_run_folder(folder: Path) -> OwnFiles:
    """Raise unless a run may begin or go on here: nothing foreign in it, or a run of ours."""
    folder = Path(folder)
    try:
        if not os.path.lexists(folder):
            return OwnFiles(folder)
        if not folder.is_dir():
            raise JournalError(f"{shown(folder)} is no folder: give --out a new or an empty one")
        own = OwnFiles.read(folder)
        if not (own.is_run or is_run(folder)) and (other := own.stranger()) is not None:
            raise JournalError(
                f"{shown(folder)} is not empty and no run of seqto (it has {other!r}), so nothing "
                "is written there: give --out a new or an empty folder"
            )
        _check_links(folder)
    except OSError as error:
        raise JournalError(
            f"{shown(folder)} cannot be a run folder: {error.strerror or error}; choose another one"
        ) from error
    return own


def claim(folder: Path) -> OwnFiles:
    """Check a run folder, then mark it as a run: from here on it is ours to go on with."""
    own = check_run_folder(folder)
    if not own.is_run:
        own._note({"run": True})
    # what a killed call has left; samples and the like are cleared when the run is done
    for path in (folder, *(folder / name for name in _RUN_FOLDERS), *folder.glob("variants/*")):
        if not path.is_symlink():
            sweep(path)
    return own


def is_run(folder: Path) -> bool:
    """Return whether a folder has a journal of ours: its first record is a header of seqto.

    Or the end of a run that was interrupted before its header was written (0.1.0 did that).
    """
    with contextlib.suppress(OSError, ValueError, RecursionError):
        with open(folder / JOURNAL, "rb") as stream:
            first = json.loads(stream.readline())
        if not isinstance(first, dict):
            return False
        interrupted = set(first) == {"event", "reason", "seconds"} and first["event"] == "end"
        return interrupted or (first.get("event") == "header" and "seqto" in first)
    return False


def run_of(path: Path) -> Path | None:
    """Return the run folder to which a path's name belongs.

    None for a name that runs do not use.
    """
    path = Path(os.path.abspath(path))
    for candidate in {path, path.parent.resolve() / path.name}:
        for folder in candidate.parents:
            first, *below = candidate.relative_to(folder).parts
            used = first in (_RUN_FOLDERS if below else _RUN_FILES + _RUN_FOLDERS)
            if used and (is_run(folder) or OwnFiles.read(folder).is_run):
                return folder
    return None


def _check_links(folder: Path) -> None:
    """Refuse links that lead elsewhere among the files and folders that a run fills."""
    names = [*_RUN_FILES[:3], *_RUN_FOLDERS, SAMPLES, COMPILED, BASE]
    if (folder / "variants").is_dir():
        names += [f"variants/{entry}" for entry in os.listdir(folder / "variants")]
    root = folder.resolve()
    for name in names:
        inside(folder, name)
        if (folder / name).is_symlink() and not (folder / name).resolve().is_relative_to(root):
            raise JournalError(
                f"{shown(folder / name)} is a link to a place outside of the run folder, where "
                "nothing is written: put the files themselves there, or choose another folder"
            )


def _lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        folder = shown(path.parent)
        raise JournalError(f"{folder} is no folder: give a folder, or another name") from error
    except OSError as error:
        raise JournalError(f"cannot read {shown(path)}: {error.strerror}") from error
    if not (content.startswith(FIRST) or FIRST.startswith(content)):
        raise JournalError(
            f"{shown(path)} is no list of files that seqto wrote: rename it, or choose another "
            "folder"
        )
    return content.split(b"\n")[1:]

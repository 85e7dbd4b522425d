"""The one writer of files: whole or not at all, and a one-line error when it cannot be done."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from seqto.errors import ConfigError, JournalError, SeqtoError

try:
    import fcntl
except ImportError:  # not a Unix: nothing is swept
    fcntl = None  # type: ignore[assignment]

TEMPORARY = ".seqto-"  # how the names of unfinished files and folders begin
_UNFINISHED = re.compile(re.escape(TEMPORARY) + r"\w+")
_MARK = f"{TEMPORARY}folder"  # a file in each temporary folder of ours
_NEW_S = 60.0  # age from which a file that nobody has locked counts as left behind
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "free some space, or raise the limit on file sizes",
    errno.EISDIR: "give the name of a file",
    errno.ENAMETOOLONG: "choose a shorter name",
}


_SHOWN = 200  # characters of a path that a message repeats


LONGEST_NAME, LONGEST_PATH = 255, 4095  # bytes, of what file systems in use take


@contextlib.contextmanager
def replacing(
    path: str | os.PathLike[str], *, error: type[SeqtoError] = JournalError
) -> Iterator[IO[bytes]]:
    """Yield a stream whose content becomes the file when the block ends without an error.

    The content is on the disk before the name points to it: a reader, a kill or a power cut never
    meets half of a file. OSErrors become `error`, in one line.
    """
    target = Path(path)
    if "\0" in str(target):
        raise error(f"cannot write {shown(target)}: a file name cannot hold a null character")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # a name of fixed length: one made from the file's own could be too long
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=TEMPORARY)
        try:
            with os.fdopen(handle, "wb") as stream:
                with contextlib.suppress(OSError):  # a disk without locks
                    _lock(handle)  # says to `sweep` that its writer lives
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(name, 0o644)  # mkstemp keeps it to the owner; results are for everybody
            os.replace(name, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as problem:
        hint = _HINTS.get(problem.errno or 0, "choose another place, or make this one writable")
        reason = problem.strerror or str(problem)
        raise error(f"cannot write {shown(target)}: {reason}; {hint}") from problem


@dataclass(frozen=True, slots=True)
class TemporaryFolder:
    """A folder for temporary files; its lock is held for as long as this process lives.

    A process that is killed leaves its folder. The next one that makes a temporary folder in the
    same place finds that nobody holds the lock, and removes it.
    """

    folder: Path
    _lock: int  # file descriptor; the kernel frees the lock when this process ends

    @classmethod
    def make(cls, prefix: str, *, parent: Path | None = None) -> TemporaryFolder:
        """Make a folder in `parent`, by default the system's place for temporary files."""
        try:
            folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        except OSError as problem:
            reason = problem.strerror or str(problem)
            hint = "or set TMPDIR" if parent is None else f"or make {shown(parent)} writable"
            raise JournalError(
                f"cannot make a temporary folder: {reason}; free some space, {hint}"
            ) from problem
        handle = None
        try:
            handle = os.open(folder, _FOLDER_FLAGS)
            with contextlib.suppress(OSError):  # a disk without locks: nothing is swept there
                _lock(handle)
            write_file(folder / _MARK, b"")  # no folder is swept without it: now it is locked
        except BaseException as problem:
            with contextlib.suppress(OSError):  # not rmtree: it wants files that can be opened
                (folder / _MARK).unlink(missing_ok=True)
                folder.rmdir()
            if handle is not None:
                os.close(handle)
            if isinstance(problem, OSError):
                reason = problem.strerror or str(problem)
                raise JournalError(
                    f"cannot use the temporary {shown(folder)}: {reason}"
                ) from problem
            raise
        _sweep_folders(folder.parent)
        return cls(folder, handle)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


@contextlib.contextmanager
def temporary_folder(prefix: str, *, parent: Path | None = None) -> Iterator[Path]:
    """Yield a folder for temporary files, which is removed at the end."""
    made = TemporaryFolder.make(prefix, parent=parent)
    try:
        yield made.folder
    finally:
        made.remove()


def is_unfinished(name: str) -> bool:
    """Return whether a name is one that we give to unfinished files and folders."""
    return _UNFINISHED.fullmatch(name) is not None


def sweep(folder: Path) -> None:
    """Remove what killed processes of this user have left in a folder: unfinished files, folders.

    Nothing is removed that a process which lives holds.
    """
    _sweep_folders(folder)
    with contextlib.suppress(OSError):  # no folder, or not ours to read
        for entry in list(os.scandir(folder)):
            if is_unfinished(entry.name) and entry.is_file(follow_symlinks=False):
                _remove_abandoned(entry)


def _remove_abandoned(entry: os.DirEntry[str]) -> None:
    """Remove an unfinished file, unless a process that lives is writing it."""
    with contextlib.suppress(OSError):  # gone, locked, or somebody else's
        about = entry.stat(follow_symlinks=False)
        # a writer makes a file first and locks it then: a new one is left alone
        if about.st_uid != os.getuid() or time.time() - about.st_mtime < _NEW_S:
            return
        handle = os.open(entry.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        try:
            _lock(handle)
            os.unlink(entry.path)
        finally:
            os.close(handle)


def _sweep_folders(parent: Path) -> None:
    with contextlib.suppress(OSError):
        names = [n for n in os.listdir(parent) if n.lstrip(".").startswith("seqto-")]
        for folder in (parent / name for name in names):
            with contextlib.suppress(OSError):  # no folder, a link, somebody else's
                if folder.lstat().st_uid != os.getuid() or not (folder / _MARK).is_file():
                    continue
                handle = os.open(folder, _FOLDER_FLAGS)
                try:
                    _lock(handle)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(handle)


def _lock(handle: int) -> None:
    """Lock a file or folder; raises OSError where a process that lives has it."""
    if fcntl is None:
        raise OSError("no locks here")
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_file(
    path: str | os.PathLike[str], data: bytes, *, error: type[SeqtoError] = JournalError
) -> None:
    """Make or replace a file in one step."""
    with replacing(path, error=error) as stream:
        stream.write(data)


def make_folder(folder: Path) -> None:
    """Make a folder with those above it; OSErrors become one line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        reason = "a file stands there" if folder.is_file() else problem.strerror or str(problem)
        raise JournalError(
            f"cannot make the folder {shown(folder)}: {reason}; remove what is in the way, or "
            "choose another place"
        ) from problem


def inside(folder: Path, name: str) -> Path:
    """Return `folder / name`; refuses names and links to folders that lead out of the folder."""
    path = folder / name
    try:
        root, parent = folder.resolve(), path.parent.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null character
        raise JournalError(f"cannot find {shown(path)}: {error}; is it a loop of links?") from error
    if not name or path.name in ("", "..") or not parent.is_relative_to(root):
        raise JournalError(
            f"{shown(path)} is outside of {shown(folder)}, where nothing is written: "
            "the run folder holds a name or a link that leads out of it; remove that"
        )
    return path


def given_path(text: str | os.PathLike[str], what: str) -> Path:
    """Return the path that a user gave for an output; an empty one is refused."""
    if not os.fspath(text):
        raise ConfigError(f"{what} '' is empty: name a folder or file to write (. is this folder)")
    return read_path(text, what)


def read_path(text: str | os.PathLike[str], what: str) -> Path:
    """Return the path that a user gave for an input; one that no file can have is refused.

    So is an empty one: Python takes it for the working folder.
    """
    if not os.fspath(text):
        raise ConfigError(f"{what} '' is empty: name a file or folder (. is this folder)")
    path = Path(text)
    if "\0" in str(path):
        raise ConfigError(f"{what} {shown(path)} holds a null character: give the name of a file")
    encoded = os.fsencode(path)
    if len(encoded) > LONGEST_PATH or any(len(p) > LONGEST_NAME for p in encoded.split(b"/")):
        raise ConfigError(
            f"{what} {shown(path)} has {len(encoded)} bytes, too many for a file name: check it"
        )
    return path


def open_regular(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file for reading; a pipe, a device or a folder is an OSError and is not waited for."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file")
    return os.fdopen(handle, "rb")


def shown(path: str | os.PathLike[str]) -> str:
    """Format a path for a message: quoted, and cut when very long."""
    text = os.fspath(path)
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…")

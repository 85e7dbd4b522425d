"""The one writer of files: whole or not at all, and a one-line error when it cannot be done."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from seqto.errors import ConfigError, JournalError, SeqtoError

TEMPORARY = ".seqto-"  # how the names of unfinished files and folders begin


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


def make_temporary_folder(prefix: str) -> Path:
    """Make a folder for temporary files; where none can be made, that is one line."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix))
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise JournalError(
            f"cannot make a temporary folder: {reason}; free some space, or set TMPDIR"
        ) from problem


@contextlib.contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Yield a folder for temporary files, which is removed at the end."""
    folder = make_temporary_folder(prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_file(
    path: str | os.PathLike[str], data: bytes, *, error: type[SeqtoError] = JournalError
) -> None:
    """Make or replace a file in one step."""
    with replacing(path, error=error) as stream:
        stream.write(data)


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

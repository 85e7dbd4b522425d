"""Temporary files of the workers of one pool: below one folder, which goes with the pool.

A worker that is killed cannot remove its own. If main is killed too, the folder stays; the next
pool of this user finds that nobody holds its lock and removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from seqto.files import make_temporary_folder, write_file

try:
    import fcntl
except ImportError:  # not a Unix: nothing is swept
    fcntl = None  # type: ignore[assignment]

PREFIX = "seqto-workers-"
MARK = "made-by-seqto"  # a file in it
_HOW = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of one pool; its lock is held for as long as this process lives."""

    folder: Path
    _lock: int  # file descriptor; the kernel frees the lock when this process ends

    @classmethod
    def make(cls) -> Scratch:
        """Make a folder, and remove those of processes that were killed."""
        folder = make_temporary_folder(PREFIX)
        handle = os.open(folder, _HOW)
        with contextlib.suppress(OSError):  # a disk without locks: then nothing is swept there
            _lock(handle)
        write_file(folder / MARK, b"")  # without it a folder is not swept: only now it is locked
        _sweep(folder.parent)
        return cls(folder, handle)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # no folder, a link, somebody else's
            if folder.lstat().st_uid != os.getuid() or not (folder / MARK).is_file():
                continue
            handle = os.open(folder, _HOW)
            try:
                _lock(handle)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)


def _lock(handle: int) -> None:
    """Lock a folder; raises OSError where a process that lives has it."""
    if fcntl is None:
        raise OSError("no locks here")
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)

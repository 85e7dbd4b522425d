"""Files of runs on a node of a cluster: received once by hash, verified, linked under their names.

    <temporary folder>/seqto-ray-TOKEN/
        lock                 held shared by every worker of this host while it lives
        files/SHA256         contents, each verified when it arrived
        runs/RUN/…           a mirror of the run folder: links to contents, by name

TOKEN is made anew by each command. The workers of a host share the folder. A watcher process, one
for each host, waits until no worker holds the lock and removes the folder: also after kills.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.errors import JournalError
from seqto.execution.files import FileRef, LocalFiles

PREFIX = "seqto-ray-"

Contents = Mapping[str, Sequence[Any]]  # sha256 → parts of the content, as the cluster names them
Reader = Callable[[Any], Any]  # a part's name → its bytes

# waits, as a grandchild, for the lock that all workers share, then removes the folder
_WATCHER = """
import fcntl, os, shutil, sys
if os.fork():
    os._exit(0)
handle = os.open(sys.argv[1] + "/lock", os.O_RDWR)
fcntl.flock(handle, fcntl.LOCK_EX)
shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


class ContentLostError(Exception):
    """A content cannot be read any more; it must be sent again."""

    def __init__(self, sha256: str) -> None:
        super().__init__(sha256)
        self.sha256 = sha256


@dataclass(slots=True)
class NodeFiles:
    """The folder of a command on this host, as one worker sees it."""

    folder: Path
    _lock: int  # file descriptor; the kernel frees the lock when this process ends

    @classmethod
    def open(cls, token: str, *, parent: Path | None = None) -> NodeFiles:
        """Join the folder of this host; it is made, and old ones swept, by the first worker."""
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        folder = parent / f"{PREFIX}{token}"
        sweep(parent)
        while True:
            with contextlib.suppress(FileExistsError):
                folder.mkdir(mode=0o700)
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                raise JournalError(f"{str(folder)!r} belongs to somebody else: remove it")
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile: make it again
                handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.flock(handle, fcntl.LOCK_SH)
                if _is_file(handle, folder / "lock"):
                    break
                os.close(handle)
        (folder / "files").mkdir(exist_ok=True)
        files = cls(folder, handle)
        files._start_watcher()
        return files

    def close(self) -> None:
        """Leave the folder; the watcher removes it when the last worker has left."""
        os.close(self._lock)

    def remove(self) -> None:
        """Remove the folder: the command has ended on all hosts."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def identity(self) -> str:
        """Names the folder as one disk sees it: two hosts, or containers, never share one."""
        stat = self.folder.stat()
        return f"{stat.st_dev}:{stat.st_ino}"

    def missing(self, refs: Iterable[FileRef]) -> list[str]:
        """Return the hashes of the contents that are not here."""
        return [sha for sha in dict.fromkeys(r.sha256 for r in refs) if not self._at(sha).exists()]

    def receive(self, contents: Contents, read: Reader) -> None:
        """Store contents that are not here yet; one worker of a host at a time."""
        missing = [sha for sha in contents if not self._at(sha).exists()]
        if not missing:
            return
        with self._receiving():
            for sha in missing:
                if not self._at(sha).exists():  # another worker may have been first
                    self._store(sha, contents[sha], read)

    def mirror(self, run: str, refs: Iterable[FileRef]) -> LocalFiles:
        """Link contents under their names; return the run folder of this host."""
        files = LocalFiles(self._run_folder(run))
        files.root.mkdir(parents=True, exist_ok=True)
        for ref in refs:
            _link(self._at(ref.sha256), files.named(ref.name))
        return files

    def keep(self, ref: FileRef, path: Path) -> None:
        """Take over a file that a worker has made, so that this host need not be sent it."""
        _link(path, self._at(ref.sha256))
        path.unlink(missing_ok=True)

    def forget(self, run: str) -> None:
        """Remove the mirror of a run that has ended."""
        shutil.rmtree(self._run_folder(run), ignore_errors=True)

    def _run_folder(self, run: str) -> Path:
        if not run.isalnum():
            raise JournalError(f"{run!r} is no name of a run")
        return self.folder / "runs" / run

    def _at(self, sha256: str) -> Path:
        if len(sha256) != 64 or not sha256.isalnum():
            raise JournalError(f"{sha256!r} is no sha256")
        return self.folder / "files" / sha256

    def _store(self, sha256: str, parts: Sequence[Any], read: Reader) -> None:
        digest = hashlib.sha256()
        path = self.folder / "files" / f"{sha256}.part"
        with open(path, "wb") as stream:
            for part in parts:
                try:
                    content = read(part)
                except Exception as error:
                    raise ContentLostError(sha256) from error
                digest.update(content)
                stream.write(content)
                del content
        if digest.hexdigest() != sha256:
            path.unlink(missing_ok=True)
            raise ContentLostError(sha256)
        os.replace(path, self._at(sha256))

    @contextlib.contextmanager
    def _receiving(self) -> Iterator[None]:
        with open(self.folder / "receiving", "w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _start_watcher(self) -> None:
        """Start the process that cleans up, unless another worker has started it."""
        with self._receiving():
            marker = self.folder / "watched"
            if marker.exists():
                return
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", _WATCHER, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # it outlives the worker that started it
                check=False,
            )
            marker.touch()


def sweep(parent: Path) -> None:
    """Remove folders of commands whose workers and watcher were all killed."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with open(folder / "lock", "rb+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it is in use
                shutil.rmtree(folder, ignore_errors=True)


def _is_file(handle: int, path: Path) -> bool:
    """Return whether an open file is still the one with this path."""
    ours, there = os.fstat(handle), path.stat()
    return (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino)


def _link(source: Path, target: Path) -> None:
    """Let a name stand for a content; a name that stands for it already is left alone."""
    with contextlib.suppress(FileNotFoundError):
        if target.samefile(source):
            return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a disk without hard links
        shutil.copyfile(source, temporary)
    os.replace(temporary, target)

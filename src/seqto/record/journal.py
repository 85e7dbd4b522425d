"""Append-only JSON lines: what makes a second run a resumed run.

A record counts when its line is complete, newline included. Whatever a kill or a full disk left
behind it is truncated before the next record is written (a kill makes Optuna 5.0's file journal
unreadable, where the next record is appended to a partial line).

Numbers come back as they were: floats are written with as many digits as they need. JSON has no
word for NaN or infinity; they are written as null, and `append` returns the event as a reader will
see it, so a fresh run and a resumed one know the same values.

Text is written as ASCII with escapes: layer and file names are untrusted, and a file name that is
no valid Unicode must not make a record unwritable.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
from pathlib import Path
from typing import Any, NoReturn

from seqto.errors import JournalError
from seqto.record.check_types import WrongTypeError
from seqto.record.events import FORMAT, Event, NewerFormatError, from_json
from seqto.records import Json


class Journal:
    """The one writer of a run folder. Made by `Journal.open`, given back by `close` or `with`."""

    def __init__(self, path: Path, *, descriptor: int, lock: int, events: list[Event], size: int):
        self.path = path
        self._descriptor = descriptor
        self._lock = lock
        self._events = events
        self._size = size
        self._is_partial = False  # bytes of a failed append may lie behind `_size`

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Journal:
        """Create or continue; takes the folder's lock until closed; drops a partial last line."""
        file = Path(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = _take_lock(file)
        except OSError as error:
            _refuse(file, error)
        try:
            descriptor, events, size = _open_file(file)
        except BaseException as error:
            _give_lock(file, lock)
            if isinstance(error, OSError):
                _refuse(file, error)
            raise
        return cls(file, descriptor=descriptor, lock=lock, events=events, size=size)

    @property
    def events(self) -> list[Event]:
        """All events so far, oldest first. A new list: changing it changes nothing here."""
        return list(self._events)

    def append(self, event: Event) -> Event:
        """Write one event and return it as a reader will see it, when the disk has it.

        Nothing is kept of an event that could not be written.
        """
        text = json.dumps(finite(event.to_json()), allow_nan=False, separators=(",", ":"))
        line = text.encode("ascii") + b"\n"
        recorded = from_json(json.loads(text))
        size, count = self._size, len(self._events)
        try:
            self._cut()
            self._is_partial = True
            _write_all(self._descriptor, line)
            os.fsync(self._descriptor)
            self._size = size + len(line)
            self._events.append(recorded)
            self._is_partial = False
        except BaseException as error:  # Ctrl-C too: the caller may still append its `end`
            self._size, self._is_partial = size, True
            del self._events[count:]
            with contextlib.suppress(OSError):  # then the next append or open cuts it off
                self._cut()
            if isinstance(error, OSError):
                _refuse(self.path, error)
            raise
        return recorded

    def close(self) -> None:
        """Release the file and the lock; closing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            _give_lock(self.path, self._lock)
            self._descriptor = self._lock = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _cut(self) -> None:
        if self._is_partial:
            os.ftruncate(self._descriptor, self._size)
            self._is_partial = False


def read_events(path: str | os.PathLike[str]) -> list[Event]:
    """Return all complete events; takes no lock, changes nothing, a live file is fine."""
    file = Path(path)
    try:
        content = file.read_bytes()
    except FileNotFoundError as error:
        raise JournalError(
            f"no journal at {str(file)!r}: is this a run folder made by `seqto tune`?"
        ) from error
    except OSError as error:
        raise JournalError(f"cannot read {str(file)!r}: {error.strerror}") from error
    return _parse(file, content)[0]


def _open_file(file: Path) -> tuple[int, list[Event], int]:
    is_new = not file.exists()
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        if is_new:
            _sync_folder(file.parent)
        with open(descriptor, "rb", closefd=False) as stream:
            content = stream.read()
        events, size = _parse(file, content)
        if size < len(content):
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, events, size


def _parse(file: Path, content: bytes) -> tuple[list[Event], int]:
    """Return the complete events and the number of bytes they take.

    Only the last line may be partial.
    """
    lines = content.split(b"\n")
    lines.pop()  # empty, or what follows the last newline: partial
    events: list[Event] = []
    size = 0
    for number, line in enumerate(lines, start=1):
        try:
            record = _record(line)
        except (ValueError, RecursionError) as error:
            last = number == len(lines) and size + len(line) + 1 == len(content)
            if last and (events or _begins_as_ours(content)):
                break  # partial as well: blocks may reach the disk out of order
            raise JournalError(
                f"line {number} of {str(file)!r} is no journal record ({error}): the file was "
                "changed by something else; restore it, or start a run in a new folder"
            ) from error
        events.append(_event(record, number, file))
        size += len(line) + 1
    if not events and not _begins_as_ours(content):
        raise JournalError(
            f"{str(file)!r} is no journal of seqto, so it is left as it is: rename it, or start a "
            "run in a new folder"
        )
    return events, size


def _event(record: Json, number: int, file: Path) -> Event:
    try:
        return from_json(record)
    except NewerFormatError as error:
        raise JournalError(
            f"{str(file)!r} is in {error}, and this version reads formats up to {FORMAT}: update "
            "seqto, or start a run in a new folder"
        ) from error
    except WrongTypeError as error:
        raise JournalError(
            f"line {number} of {str(file)!r} is no journal record ({error}): the file was "
            "changed by something else; restore it, or start a run in a new folder"
        ) from error


def _begins_as_ours(content: bytes) -> bool:
    """Return whether a text is a partial first record: a part of a header, or empty blocks."""
    first = b'{"event":"header"'
    return content.startswith(first) or first.startswith(content.rstrip(b"\0"))


def _record(line: bytes) -> Json:
    record = json.loads(line.decode("utf-8"), parse_constant=_not_a_number)
    if not isinstance(record, dict):
        raise ValueError(f"a {type(record).__name__} where an object belongs")
    return record


def _not_a_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def finite(value: Any) -> Any:
    """Return a copy with null for NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value


def _write_all(descriptor: int, line: bytes) -> None:
    unwritten = memoryview(line)
    while unwritten:  # a nearly full disk takes a part, and refuses only the next call
        unwritten = unwritten[os.write(descriptor, unwritten) :]


def _sync_folder(folder: Path) -> None:
    """Sync a folder: a new file is safe only when its folder's entry is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_lock(file: Path) -> int:
    """Hold `journal.lock` beside the journal, which says who writes; raises when another does."""
    path = file.with_suffix(".lock")
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # the holder before us may have removed the file between our open and our lock
            if _is_still(path, descriptor):
                _refuse_foreign(path, os.pread(descriptor, 20, 0))
                os.ftruncate(descriptor, 0)
                with contextlib.suppress(OSError):  # a full disk: locked all the same
                    os.write(descriptor, str(os.getpid()).encode())
                return descriptor
            os.close(descriptor)
        except BlockingIOError as error:
            pid = os.pread(descriptor, 20, 0).decode("ascii", "replace") or "unknown"
            os.close(descriptor)
            raise JournalError(
                f"another seqto process (pid {pid}) is writing to {str(file.parent)!r}: "
                "wait for it, end it, or choose another run folder"
            ) from error
        except BaseException:
            os.close(descriptor)
            raise


def _refuse_foreign(path: Path, content: bytes) -> None:
    if content.strip(b"0123456789"):
        raise JournalError(
            f"{str(path)!r} was not written by seqto, which needs that name: rename it, or choose "
            "another run folder"
        )


def _is_still(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _give_lock(file: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):  # removed while still held, so that nobody else's goes
        os.unlink(file.with_suffix(".lock"))
    os.close(descriptor)


def _refuse(file: Path, error: OSError) -> NoReturn:
    reason = error.strerror or str(error)
    hint = "check that the folder exists and is yours to write"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "free some space and run the same command again; what was recorded is kept"
    raise JournalError(f"cannot write {str(file)!r}: {reason}; {hint}") from error

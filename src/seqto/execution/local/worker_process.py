"""The life of a local worker process: set up once, then one job after the other."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import select
import signal
import socket
import traceback
from collections.abc import Callable
from typing import NoReturn

from seqto.errors import PlanError, SeqtoError
from seqto.execution.local.frames import Frame, Wire
from seqto.records import Failure, Json

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


MOST_FILES = 1 << 16  # open files of a process that has just begun, generously


class Channel:
    """The worker's connection to the main process while one job runs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._stopped = False

    def send(self, message: Json) -> None:
        """Give a sign of life; what the message says is kept in the job's note."""
        _post(self._wire, Frame("message", message))

    @property
    def stopped(self) -> bool:
        """Whether main has asked this job to stop. Does not wait."""
        while not self._stopped and self._pull():
            pass
        return self._stopped

    def _pull(self) -> bool:
        if not _readable(self._wire, 0.0):
            return False
        try:
            frame = self._wire.read()
        except (EOFError, ConnectionError):
            _kill_own_group()
        if frame is not None and frame.kind == "stop":
            self._stopped = True
        return True


Handler = Callable[[Json, Channel], Json]


def serve(
    target: str, *, channel_fd: int, watchdog_fd: int, main_pid: int, launched: bool = False
) -> None:
    """Run a worker: set up once, then one job after the other until main hangs up.

    `launched`: through a command that may stay between main and this process; the group is its.
    """
    if os.getpgrp() != os.getpid() and not launched:
        raise SystemExit("a worker is started by seqto itself")
    _start_watchdog(watchdog_fd)
    _die_with_main(None if launched else main_pid)
    stream = socket.socket(fileno=channel_fd)
    stream.set_inheritable(False)  # main must see the end of this process, not of its children
    wire = Wire(stream)
    first = _next(wire)
    handle: Handler | None = None
    try:
        module, _, name = target.partition(":")
        handle = getattr(importlib.import_module(module), name)(first.body) if first else None
    except Exception as error:
        _post(wire, Frame("failure", failure_json(error)))
    if handle is not None:
        _post(wire, Frame("ready", {}))
        while job := _next(wire):
            _post(wire, _outcome(handle, job, wire))

    # The watchdog stays: if main was killed it ends what this worker has started, and if main is
    # there it ends the watchdog itself, with the whole group.


def _outcome(handle: Handler, job: Frame, wire: Wire) -> Frame:
    try:
        result = handle(job.body, Channel(wire))
        json.dumps(result)  # what cannot travel is the handler's mistake: name it there
        return Frame("result", result)
    except Exception as error:
        return Frame("failure", failure_json(error))


def failure_json(error: Exception) -> Json:
    """Return an exception as a Failure, plus the traceback where it is a bug."""
    stage = getattr(error, "stage", "run")
    if isinstance(error, PlanError):
        stage = "plan"
    if isinstance(error, MemoryError):
        stage = "memory"
    message = str(error) or type(error).__name__
    ops, layers = getattr(error, "ops", ()), getattr(error, "layers", ())
    if not isinstance(error, SeqtoError | MemoryError):
        text = "".join(traceback.format_exception(error))
        return {**Failure("run", message).to_json(), "type": "", "bug": text}
    return {**Failure(stage, message, ops, layers).to_json(), "type": type(error).__name__}


def _next(wire: Wire) -> Frame | None:
    """Return the next setup or job; None when main has hung up. Late stops fall away."""
    while True:
        _readable(wire, None)
        try:
            frame = wire.read()
        except (EOFError, ConnectionError):
            return None
        if frame is not None and frame.kind in ("setup", "job"):
            return frame


def _post(wire: Wire, frame: Frame) -> None:
    wire.queue(frame)
    try:
        wire.flush()
    except ConnectionError:
        _kill_own_group()


def _readable(wire: Wire, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(wire.socket, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


def _kill_own_group() -> NoReturn:
    """Kill this process group: the main process exited during a job."""
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)


def _start_watchdog(pipe_fd: int) -> None:
    """Fork a process that kills this group when main's end of the pipe closes."""
    if os.fork():  # no thread runs yet and nothing heavy is loaded
        os.close(pipe_fd)
        return
    try:
        os.closerange(0, pipe_fd)
        # where there is no limit, macOS gives a number that would take hours to count to
        os.closerange(pipe_fd + 1, min(os.sysconf("SC_OPEN_MAX"), MOST_FILES))
        os.read(pipe_fd, 1)
    finally:
        os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)


def _die_with_main(main_pid: int | None) -> None:
    """Let Linux kill this process when main's thread ends; the watchdog does the rest.

    None: behind a launcher main may not be the parent, and the watchdog alone sees its end.
    """
    with contextlib.suppress(AttributeError, OSError):  # other systems have the watchdog alone
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if main_pid is not None and os.getppid() != main_pid:  # main exited before prctl was called
        _kill_own_group()

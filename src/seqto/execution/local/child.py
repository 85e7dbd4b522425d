"""One worker process as the main process sees it: its socket, its output, its memory, its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seqto.execution.local.frames import Wire
from seqto.records import Failure, Json

GRACE_S = 2.0  # how long a worker may take to die or to leave
LAST_OUTPUT_BYTES = 1000  # of stdout and stderr that a failure quotes


@dataclass(slots=True, eq=False)
class Ticket:
    """A promise for one job: when done it has a result or a failure."""

    job: Json
    number: int
    result: Json | None = None
    failure: Failure | None = None
    seconds: float = 0.0  # from its start in a worker, not from its submission
    done: bool = False
    note: Json = field(default_factory=dict)  # what its messages have said so far
    stopping: bool = False


class Child:
    """One worker process as main sees it."""

    def __init__(self, target: str, *, temporary: Path, launcher: Sequence[str] = ()) -> None:
        """Start it. `launcher`: a command before its own; `temporary`: for its temporary files."""
        ours, theirs = socket.socketpair()
        watchdog_fd, self._lifeline_fd = os.pipe()  # nothing is written: its end is the message
        self.output_fd, stderr_fd = os.pipe()
        os.set_blocking(self.output_fd, False)
        command = [
            *launcher,
            sys.executable,
            "-P",
            "-u",
            "-m",
            "seqto.execution.local.pool",
            target,
        ]
        command += [str(theirs.fileno()), str(watchdog_fd), str(os.getpid())]
        command += ["launched"] if launcher else []
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stderr_fd,
                stderr=stderr_fd,
                pass_fds=(theirs.fileno(), watchdog_fd),
                start_new_session=True,  # Ctrl-C in the terminal is main's alone
                env={**_environment(os.environ), "TMPDIR": str(temporary)},
            )
        except OSError:
            ours.close()
            os.close(self._lifeline_fd)
            os.close(self.output_fd)
            raise
        finally:
            theirs.close()
            os.close(watchdog_fd)
            os.close(stderr_fd)
        self.pid = self._process.pid
        self.wire = Wire(ours)
        self.ready = False
        self.ticket: Ticket | None = None
        self.has_served = False  # got a job at least once
        self.began_at = self.heard_at = time.monotonic()
        self._output = b""

    def begin(self, ticket: Ticket) -> None:
        """Take a job; what was written before is not its output."""
        self.drain_output()
        self._output = b""
        self.ticket, self.has_served = ticket, True
        self.began_at = self.heard_at = time.monotonic()

    def drain_output(self) -> bool:
        """Drain stdout and stderr, keep the end; False when nobody writes there any more."""
        while True:
            try:
                chunk = os.read(self.output_fd, 1 << 16)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            self._output = (self._output + chunk)[-LAST_OUTPUT_BYTES:]

    def last_output(self) -> str:
        return self._output.decode("utf-8", "replace").strip()

    def has_exited(self) -> bool:
        """Return whether the child has exited, without reaping it.

        While unreaped, the group's number belongs to nobody else.
        """
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        try:
            how = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, how) is not None
        except ChildProcessError:
            return True

    def end(self) -> int:
        """Kill the whole group, reap, close; returns the exit code (minus the signal)."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in the kernel
            self._process.wait(GRACE_S)
        self.drain_output()
        self.wire.socket.close()
        os.close(self.output_fd)
        os.close(self._lifeline_fd)
        code = self._process.returncode
        return -int(signal.SIGKILL) if code is None else code


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's environment: it finds what main finds, in the same order.

    Workers share the cores, so that numpy's own threads would only get in each other's way.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**one, **environment, "PYTHONPATH": path}


def held_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants that the system cannot take back.

    Resident minus file-backed: the memory-mapped samples, which all workers share, do not count.
    Only Linux tells the two apart; elsewhere all that is resident counts.
    """
    if not os.path.exists("/proc/self/statm"):
        return _resident_bytes(pid)
    try:
        resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return 0
    held = (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    for task in tasks:
        with contextlib.suppress(OSError):  # a thread that has just ended
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            held += sum(held_bytes(int(child)) for child in children)
    return held


def _resident_bytes(pid: int) -> int:
    import psutil

    held = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has just ended
                held += one.memory_info().rss
    return held

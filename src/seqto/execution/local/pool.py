"""Supervised worker processes: a segfault, a hang or a memory blow-up ends one job, never the pool.

    main process                          worker process (own session, own process group)
    Pool.submit ── job ─────────────────▶ handle(job, channel)
    ticket.note  ◀── message ────────────   channel.send (a sign of life)
    Pool.stop    ─── stop ───────────────▶  channel.stopped
    Pool.wait  ◀── result or failure ────   return, raise

A target is "package.module:function". In the worker the function gets the pool's setup once and
returns the handler of all jobs. Frames are a length and JSON text: no pickle. They travel on a
socket of their own, since native libraries write to stdout and stderr at will; the end of what
they wrote there is quoted when a worker dies.

No process is left behind. Main kills whole process groups, so that what a worker has started goes
with it. If main itself is killed, a sentry that each worker forks sees its pipe end and kills the
group, even when the worker hangs in native code. (Linux also ends the worker itself when the
*thread* that made it ends: use a pool in the thread that opened it.)
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from seqto import errors
from seqto.errors import DeviceError, SeqtoError
from seqto.execution.local.frames import Frame, Wire
from seqto.execution.local.worker_process import serve
from seqto.records import Failure, Json

TICK_S = 0.2  # how often deadlines, memory and deaths are looked at


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


class Pool:
    """Up to `size` workers, started when there is work for them; use it in a `with` block."""

    def __init__(
        self,
        target: str,
        setup: Json,
        *,
        size: int = 1,
        timeout_s: float = 120.0,  # a job's longest silence: every message starts it anew
        setup_timeout_s: float = 300.0,
        memory_bytes: int | None = None,  # per worker with its descendants, mapped files left out
    ) -> None:
        if size < 1:
            raise ValueError(f"a pool of {size} workers")
        self._target = target
        self._setup = json.loads(json.dumps(setup))  # a copy, and proof that it can travel
        self.size = size
        self._timeout_s = timeout_s
        self._setup_timeout_s = setup_timeout_s
        self._memory_bytes = memory_bytes
        self._selector = selectors.DefaultSelector()
        self._workers: list[_Worker] = []
        self._queue: deque[Ticket] = deque()
        self._finished: list[Ticket] = []
        self._submitted = 0
        self._left_at = self._checked_at = time.monotonic()
        self._closed = False

    def submit(self, job: Json) -> Ticket:
        """Queue a job."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        self._submitted += 1
        ticket = Ticket(json.loads(json.dumps(job)), self._submitted)
        self._queue.append(ticket)
        self._dispatch()
        return ticket

    def stop(self, ticket: Ticket) -> None:
        """Ask a job to end early: its handler sees `channel.stopped` and returns what it has."""
        ticket.stopping = True
        for worker in self._workers:
            if worker.ticket is ticket:
                self._send(worker, "stop")

    def cancel(self, ticket: Ticket) -> None:
        """Forget a job; the worker that runs it is ended. It is not among what `wait` returns."""
        if ticket in self._queue:
            self._queue.remove(ticket)
        if ticket in self._finished:
            self._finished.remove(ticket)
        for worker in [w for w in self._workers if w.ticket is ticket]:
            self._end(worker)

    def wait(self, timeout_s: float | None = None) -> list[Ticket]:
        """Tickets that are done, at least one unless the time passes or nothing is under way."""
        self._extend_deadlines(time.monotonic() - self._left_at)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while True:
                self._dispatch()
                busy = self._queue or any(w.ticket for w in self._workers)
                if self._finished or not busy:
                    break
                left = TICK_S if deadline is None else max(0.0, deadline - time.monotonic())
                self._poll(min(left, TICK_S))
                if deadline is not None and time.monotonic() >= deadline:
                    break
        finally:
            self._left_at = time.monotonic()
        finished, self._finished = self._finished, []
        return finished

    def run(self, jobs: Iterable[Json]) -> Iterator[Ticket]:
        """Submit all, then yield each ticket as it is done, in no certain order."""
        open_tickets = {self.submit(job) for job in jobs}
        while open_tickets:
            for ticket in self.wait():
                if ticket in open_tickets:
                    open_tickets.remove(ticket)
                    yield ticket

    def map(self, jobs: Iterable[Json]) -> list[Ticket]:
        """Run all; their tickets in the order of the jobs."""
        return sorted(self.run(jobs), key=lambda ticket: ticket.number)

    def close(self) -> None:
        """End all workers: idle ones may leave by themselves, busy ones are killed."""
        self._closed = True
        self._queue.clear()
        leaving = [w for w in self._workers if w.ready and not w.ticket]
        for worker in leaving:
            with contextlib.suppress(OSError):
                worker.wire.socket.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + GRACE_S
        while any(not w.has_exited() for w in leaving) and time.monotonic() < deadline:
            for worker in leaving:
                worker.drain_output()  # a full stderr pipe would keep it from leaving
            time.sleep(0.005)
        for worker in list(self._workers):
            self._end(worker)
        self._selector.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _dispatch(self) -> None:
        idle = [w for w in self._workers if w.ready and not w.ticket]
        for worker in [w for w in idle if w.has_exited()]:  # between two jobs
            self._lost(worker)
            idle.remove(worker)
        starting = sum(not w.ready for w in self._workers)
        while self._queue and idle:
            worker, ticket = idle.pop(), self._queue.popleft()
            worker.begin(ticket)
            self._send(worker, "job", ticket.job)
            if ticket.stopping:
                self._send(worker, "stop")
        while starting < len(self._queue) and len(self._workers) < self.size:
            worker = _Worker(self._target)
            self._workers.append(worker)
            self._selector.register(worker.wire.socket, selectors.EVENT_READ, worker)
            self._selector.register(worker.output_fd, selectors.EVENT_READ, worker)
            self._send(worker, "setup", self._setup)
            starting += 1

    def _send(self, worker: _Worker, kind: str, body: Json | None = None) -> None:
        worker.wire.queue(Frame(kind, body or {}))
        self._flush(worker)

    def _flush(self, worker: _Worker) -> None:
        events = selectors.EVENT_READ
        with contextlib.suppress(ConnectionError):  # it died: reading finds out, and tells why
            if not worker.wire.flush(socket.MSG_DONTWAIT):
                events |= selectors.EVENT_WRITE
        self._selector.modify(worker.wire.socket, events, worker)

    def _poll(self, timeout_s: float) -> None:
        """Serve what is ready, then check deadlines, memory and deaths."""
        for key, mask in self._selector.select(timeout_s):
            worker: _Worker = key.data
            if worker not in self._workers:
                continue  # ended a moment ago, in this very loop
            if key.fileobj == worker.output_fd:
                if not worker.drain_output():
                    self._selector.unregister(worker.output_fd)
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(worker)
            if mask & selectors.EVENT_READ:
                self._read_frame(worker)
        now = time.monotonic()
        if now - self._checked_at >= TICK_S * 0.9:
            self._checked_at = now
            for worker in list(self._workers):
                self._check_health(worker, now)

    def _read_frame(self, worker: _Worker) -> bool:
        """Serve one frame; False when none was complete."""
        worker.heard_at = time.monotonic()
        try:
            frame = worker.wire.read()
        except (EOFError, OSError, ValueError):
            self._lost(worker)
            return False
        if frame is None:
            return False
        if frame.kind == "ready":
            worker.ready = True
        elif frame.kind == "failure" and not worker.ready:
            self._end(worker)
            raise error_of(frame.body, f"setting up {self._target}")
        elif frame.kind == "message":
            if worker.ticket is not None:
                worker.ticket.note.update(frame.body)
        elif frame.kind == "failure" and "bug" in frame.body:
            self._finish(worker)
            raise error_of(frame.body, f"a job of {self._target}")
        elif frame.kind == "failure":
            self._finish(worker, failure=Failure.from_json(frame.body))
        else:
            self._finish(worker, result=frame.body)
        return True

    def _extend_deadlines(self, seconds: float) -> None:
        """Extend all deadlines by the time that the main process did not poll."""
        for worker in self._workers:
            worker.heard_at += seconds

    def _check_health(self, worker: _Worker, now: float) -> None:
        if worker.has_exited():
            while self._read_frame(worker):  # its last frames may still be in the socket
                pass
            if worker in self._workers:  # no end of file: a child of its holds the socket open
                self._lost(worker)
            return
        limit_s = self._timeout_s if worker.ready else self._setup_timeout_s
        if (worker.ticket or not worker.ready) and now - worker.heard_at > limit_s:
            self._ended_for(worker, "timeout", f"no sign of life for {limit_s:g} s")
        elif self._memory_bytes is not None:
            held = _held_bytes(worker.pid)
            if held > self._memory_bytes:
                cap = f"the cap of {self._memory_bytes / 1e6:.0f} MB"
                self._ended_for(worker, "memory", f"{held / 1e6:.0f} MB held, above {cap}")

    def _lost(self, worker: _Worker) -> None:
        deadline = time.monotonic() + GRACE_S
        while not worker.has_exited() and time.monotonic() < deadline:
            time.sleep(0.002)
        exited = worker.has_exited()
        code = self._end(worker)
        how = f"died with {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        self._fail_job_of(worker, "crash", f"worker {how if exited else 'closed its channel'}")

    def _ended_for(self, worker: _Worker, stage: str, what: str) -> None:
        self._end(worker)
        self._fail_job_of(worker, stage, f"worker was killed: {what}")

    def _fail_job_of(self, worker: _Worker, stage: str, what: str) -> None:
        output = worker.last_output()
        message = f"{what}; last output: {output}" if output else f"{what}; no output"
        if worker.ticket:
            self._finish(worker, failure=Failure(stage, message))
        elif not worker.has_served:  # it never got a job: the next one would end the same way
            raise DeviceError(f"setting up {self._target}: {message}", stage=stage)

    def _finish(
        self, worker: _Worker, *, result: Json | None = None, failure: Failure | None = None
    ) -> None:
        ticket = worker.ticket
        if ticket is None:
            raise RuntimeError("a worker answered a job that it did not have")
        ticket.result, ticket.failure, ticket.done = result, failure, True
        ticket.seconds = time.monotonic() - worker.began_at
        worker.ticket = None
        self._finished.append(ticket)

    def _end(self, worker: _Worker) -> int:
        self._workers.remove(worker)
        self._selector.unregister(worker.wire.socket)
        with contextlib.suppress(KeyError):  # gone already when its stderr has ended
            self._selector.unregister(worker.output_fd)
        return worker.end()


class _Worker:
    """One worker process as main sees it."""

    def __init__(self, target: str) -> None:
        ours, theirs = socket.socketpair()
        sentry_fd, self._lifeline_fd = os.pipe()  # nothing is written: its end is the message
        self.output_fd, stderr_fd = os.pipe()
        os.set_blocking(self.output_fd, False)
        command = [sys.executable, "-P", "-u", "-m", "seqto.execution.local.pool", target]
        command += [str(theirs.fileno()), str(sentry_fd), str(os.getpid())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stderr_fd,
                stderr=stderr_fd,
                pass_fds=(theirs.fileno(), sentry_fd),
                start_new_session=True,  # Ctrl-C in the terminal is main's alone
                env=_environment(os.environ),
            )
        finally:
            theirs.close()
            os.close(sentry_fd)
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
        """Looks without reaping: while unreaped, the group's number belongs to nobody else."""
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
    """The worker finds what main finds, in the same order; `-P` keeps its own guesses out.

    Workers share the cores, so that numpy's own threads would only get in each other's way.
    """
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**one, **environment, "PYTHONPATH": path}


def _held_bytes(pid: int) -> int:
    """Memory of a process and its descendants that the system cannot take back.

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
            held += sum(_held_bytes(int(child)) for child in children)
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


def _signal_name(number: int) -> str:
    known = {int(s): s.name for s in signal.Signals} | {9: "SIGKILL (out of memory?)"}
    return known.get(number, f"signal {number}")


def error_of(failure: Json, where: str) -> Exception:
    """The worker's error, as main raises it: a SeqtoError as itself, all else as a bug."""
    if "bug" in failure:
        return RuntimeError(f"{where} failed in a worker:\n{failure['bug']}")
    message = f"{where}: {failure['message']}"
    kind = getattr(errors, failure["type"], SeqtoError)
    if kind is DeviceError or failure["type"] == "MemoryError":
        found = Failure.from_json(failure)
        return DeviceError(message, stage=found.stage, ops=found.ops, layers=found.layers)
    return kind(message) if issubclass(kind, SeqtoError) else SeqtoError(message)


if __name__ == "__main__":
    serve(
        sys.argv[1],
        channel_fd=int(sys.argv[2]),
        sentry_fd=int(sys.argv[3]),
        main_pid=int(sys.argv[4]),
    )

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
with it. If main itself is killed, a watchdog that each worker forks sees its pipe end and kills the
group, even when the worker hangs in native code. (Linux also ends the worker itself when the
*thread* that made it ends: use a pool in the thread that opened it.)
"""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seqto import errors
from seqto.errors import DeviceError, SeqtoError
from seqto.execution.local.child import GRACE_S, Child, Ticket, held_bytes
from seqto.execution.local.frames import Frame
from seqto.execution.local.worker_process import serve
from seqto.files import TemporaryFolder
from seqto.records import Failure, Json

SCRATCH = "seqto-workers-"  # how the names of folders for workers' temporary files begin
TICK_S = 0.2  # how often deadlines, memory and deaths are looked at


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
        launcher: Sequence[str] = (),  # a command that workers are started through
    ) -> None:
        if size < 1:
            raise ValueError(f"a pool of {size} workers")
        self._target = target
        self._setup = json.loads(json.dumps(setup))  # a copy, and proof that it can travel
        self.size = size
        self._timeout_s = timeout_s
        self._setup_timeout_s = setup_timeout_s
        self._memory_bytes = memory_bytes
        self._launcher = tuple(launcher)
        self._selector = selectors.DefaultSelector()
        self._workers: list[Child] = []
        self._queue: deque[Ticket] = deque()
        self._finished: list[Ticket] = []
        self._submitted = 0
        self._left_at = self._checked_at = time.monotonic()
        self._closed = False
        self._scratch: TemporaryFolder | None = None  # made with the first worker

    def submit(self, job: Json) -> Ticket:
        """Queue a job."""
        if self._closed:
            raise RuntimeError("the pool is closed")
        self._submitted += 1
        ticket = Ticket(json.loads(json.dumps(job)), self._submitted)
        self._queue.append(ticket)
        self._dispatch()
        return ticket

    def start(self) -> None:
        """Start all workers, without waiting for them."""
        while len(self._workers) < self.size:
            self._add_worker()

    def wait_until_ready(self) -> None:
        """Wait for the workers that were started; jobs begin at once then."""
        self._extend_deadlines(time.monotonic() - self._left_at)
        try:
            while any(not worker.ready for worker in self._workers):
                self._poll(TICK_S)
        finally:
            self._left_at = time.monotonic()

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
        """Return tickets that are done: at least one, unless time passes or none is under way."""
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
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None

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
            self._add_worker()
            starting += 1

    def _add_worker(self) -> None:
        if self._scratch is None:
            self._scratch = TemporaryFolder.make(SCRATCH)
        worker = self._start(self._scratch.folder)
        self._workers.append(worker)
        self._selector.register(worker.wire.socket, selectors.EVENT_READ, worker)
        self._selector.register(worker.output_fd, selectors.EVENT_READ, worker)
        self._send(worker, "setup", self._setup)

    def _start(self, temporary: Path) -> Child:
        try:
            return Child(self._target, launcher=self._launcher, temporary=temporary)
        except OSError as error:
            raise DeviceError(
                f"a worker process cannot be started: {error.strerror or error}; see the limits of "
                "this shell (ulimit -a), or use fewer workers (search.jobs)"
            ) from error

    def _send(self, worker: Child, kind: str, body: Json | None = None) -> None:
        worker.wire.queue(Frame(kind, body or {}))
        self._flush(worker)

    def _flush(self, worker: Child) -> None:
        events = selectors.EVENT_READ
        with contextlib.suppress(ConnectionError):  # it died: reading finds out, and tells why
            if not worker.wire.flush(socket.MSG_DONTWAIT):
                events |= selectors.EVENT_WRITE
        self._selector.modify(worker.wire.socket, events, worker)

    def _poll(self, timeout_s: float) -> None:
        """Serve what is ready, then check deadlines, memory and deaths."""
        for key, mask in self._selector.select(timeout_s):
            worker: Child = key.data
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

    def _read_frame(self, worker: Child) -> bool:
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

    def _check_health(self, worker: Child, now: float) -> None:
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
            held = held_bytes(worker.pid)
            if held > self._memory_bytes:
                cap = f"the cap of {self._memory_bytes / 1e6:.0f} MB"
                self._ended_for(worker, "memory", f"{held / 1e6:.0f} MB held, above {cap}")

    def _lost(self, worker: Child) -> None:
        deadline = time.monotonic() + GRACE_S
        while not worker.has_exited() and time.monotonic() < deadline:
            time.sleep(0.002)
        exited = worker.has_exited()
        code = self._end(worker)
        how = f"died with {_signal_name(-code)}" if code < 0 else f"exited with code {code}"
        self._fail_job_of(worker, "crash", f"worker {how if exited else 'closed its channel'}")

    def _ended_for(self, worker: Child, stage: str, what: str) -> None:
        self._end(worker)
        self._fail_job_of(worker, stage, f"worker was killed: {what}")

    def _fail_job_of(self, worker: Child, stage: str, what: str) -> None:
        output = worker.last_output()
        message = f"{what}; last output: {output}" if output else f"{what}; no output"
        if worker.ticket:
            self._finish(worker, failure=Failure(stage, message))
        elif not worker.has_served:  # it never got a job: the next one would end the same way
            raise DeviceError(f"setting up {self._target}: {message}", stage=stage)

    def _finish(
        self, worker: Child, *, result: Json | None = None, failure: Failure | None = None
    ) -> None:
        ticket = worker.ticket
        if ticket is None:
            raise RuntimeError("a worker answered a job that it did not have")
        ticket.result, ticket.failure, ticket.done = result, failure, True
        ticket.seconds = time.monotonic() - worker.began_at
        worker.ticket = None
        self._finished.append(ticket)

    def _end(self, worker: Child) -> int:
        self._workers.remove(worker)
        self._selector.unregister(worker.wire.socket)
        with contextlib.suppress(KeyError):  # gone already when its stderr has ended
            self._selector.unregister(worker.output_fd)
        return worker.end()


def _signal_name(number: int) -> str:
    known = {int(s): s.name for s in signal.Signals} | {9: "SIGKILL (out of memory?)"}
    return known.get(number, f"signal {number}")


def error_of(failure: Json, where: str) -> Exception:
    """Return the worker's error, as main raises it: a SeqtoError as itself, all else as a bug."""
    if "bug" in failure:
        return RuntimeError(f"{where} failed in a worker:\n{failure['bug']}")
    message = f"{where}: {failure['message']}"
    kind = getattr(errors, failure["type"], SeqtoError)
    if kind is DeviceError or failure["type"] == "MemoryError":
        parsed = Failure.from_json(failure)
        return DeviceError(message, stage=parsed.stage, ops=parsed.ops, layers=parsed.layers)
    return kind(message) if issubclass(kind, SeqtoError) else SeqtoError(message)


if __name__ == "__main__":
    serve(
        sys.argv[1],
        channel_fd=int(sys.argv[2]),
        watchdog_fd=int(sys.argv[3]),
        main_pid=int(sys.argv[4]),
        launched=sys.argv[5:] == ["launched"],
    )

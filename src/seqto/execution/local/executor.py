"""The executor of this machine: supervised worker processes that share the run folder."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from seqto.execution.executor import CANCELLED, Done, Handle
from seqto.execution.files import LocalFiles
from seqto.execution.jobs import (
    Job,
    MeasureMemory,
    WorkerSetup,
    job_to_json,
    result_from_json,
)
from seqto.execution.local.child import Ticket
from seqto.execution.local.pool import Pool
from seqto.execution.local.serve import setup_to_json
from seqto.records import Failure


class _Queued(NamedTuple):
    handle: Handle
    job: Job
    alone: bool


class LocalExecutor:
    """Up to `slots` worker processes, started when there is work for them."""

    def __init__(
        self,
        setup: WorkerSetup,
        files: LocalFiles,
        *,
        slots: int = 1,
        timeout_s: float = 120.0,
        memory_bytes: int | None = None,
        target: str | None = None,
        launcher: Sequence[str] = (),
    ) -> None:
        """`target`: "package.module:function" that handles jobs in place of a worker."""
        self.slots, self.files = slots, files
        setup_json = setup_to_json(setup, files)
        self._new_pool: Callable[[int], Pool] = lambda size: Pool(
            target or "seqto.execution.local.serve:serve",
            setup_json,
            size=size,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            launcher=launcher,
        )
        self._pool = self._new_pool(slots)
        self._queue: deque[_Queued] = deque()
        self._running: dict[int, tuple[Handle, Ticket]] = {}  # by the ticket's number
        self._is_alone = False  # the one that runs must have the machine for itself
        self._finished: list[Done] = []
        self._repeated: set[int] = set()  # jobs whose worker has died once
        self._submitted = 0

    def submit(self, job: Job, *, alone: bool = False) -> Handle:
        self._submitted += 1
        handle = Handle(self._submitted)
        self._queue.append(_Queued(handle, job, alone or _needs_fresh_process(job)))
        self._feed()
        return handle

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        self._feed()
        if not self._finished and not self._running and self._queue:
            self._run_fresh()
        repeated = True
        while repeated and not self._finished:
            repeated = False
            for ticket in self._pool.wait(timeout_s):
                handle, _ = self._running.pop(ticket.number)
                if self._tried_again(handle, ticket):
                    repeated = True
                else:
                    self._finished.append(_done(handle, ticket))
            self._feed()
        finished, self._finished = self._finished, []
        return finished

    def stop(self, handle: Handle) -> None:
        for running, ticket in self._running.values():
            if running == handle:
                self._pool.stop(ticket)

    def cancel(self, handle: Handle) -> None:
        for queued in [q for q in self._queue if q.handle == handle]:
            self._queue.remove(queued)
            self._finished.append(Done(handle, CANCELLED))
        for number, (running, ticket) in list(self._running.items()):
            if running == handle:
                self._pool.cancel(ticket)
                del self._running[number]
                self._finished.append(Done(handle, CANCELLED))

    def close(self) -> None:
        self._queue.clear()
        self._pool.close()

    def _tried_again(self, handle: Handle, ticket: Ticket) -> bool:
        """Return whether a job whose worker died runs once more: only a second death is its fault.

        The system ends processes when memory is short, and so do people.
        """
        died = ticket.failure is not None and ticket.failure.stage == "crash"
        if not died or handle.number in self._repeated:
            return False
        self._repeated.add(handle.number)
        again = self._pool.submit(ticket.job)
        if ticket.stopping:
            self._pool.stop(again)
        self._running[again.number] = (handle, again)
        return True

    def _feed(self) -> None:
        """Hand jobs to the pool in their order; one that must be alone waits for all before it."""
        while self._queue:
            first = self._queue[0]
            if _needs_fresh_process(first.job) or (
                self._running and (first.alone or self._is_alone)
            ):
                return
            self._queue.popleft()
            ticket = self._pool.submit(job_to_json(first.job))
            self._running[ticket.number] = (first.handle, ticket)
            self._is_alone = first.alone

    def _run_fresh(self) -> None:
        """Run the jobs at the head of the queue in processes that have done nothing else.

        Most of their seconds are the start of Python: as many as there are slots start at the same
        time, and when all are ready the jobs run one after the other, nothing else beside them.
        """
        fresh = itertools.takewhile(lambda queued: _needs_fresh_process(queued.job), self._queue)
        wave = list(itertools.islice(fresh, self.slots))
        with contextlib.ExitStack() as stack:
            pools = [stack.enter_context(self._new_pool(1)) for _ in wave]
            for pool in pools:
                pool.start()
            for pool in pools:
                pool.wait_until_ready()
            for queued, pool in zip(wave, pools, strict=True):
                (ticket,) = pool.map([job_to_json(queued.job)])
                self._queue.popleft()
                self._finished.append(_done(queued.handle, ticket))


def _needs_fresh_process(job: Job) -> bool:
    return isinstance(job, MeasureMemory)


def _done(handle: Handle, ticket: Ticket) -> Done:
    outcome = ticket.failure or (
        Failure("run", "the worker gave no result")
        if ticket.result is None
        else result_from_json(ticket.result)
    )
    return Done(handle, outcome, ticket.seconds, dict(ticket.note))

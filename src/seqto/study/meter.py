"""Wall time of a run by phase, and how busy the workers are meanwhile.

A job that runs alone (a timing) has the machine for itself: it counts as exclusive, not as idle.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from seqto.execution.executor import Done, Executor, Handle
from seqto.execution.files import FileStore
from seqto.execution.jobs import Job
from seqto.records import Json

START, PROBES, TRIALS, TIMING = "start-up", "probes", "trials", "timing"
REPORT_PHASE, DIAGNOSIS_PHASE = "report split", "diagnosis"


@dataclass(slots=True)
class Spent:
    """Seconds of one phase: of the clock, of all workers together, and of exclusive jobs."""

    wall_s: float = 0.0
    busy_s: float = 0.0
    exclusive_s: float = 0.0

    def to_json(self) -> Json:
        return {name: round(getattr(self, name), 2) for name in ("wall_s", "busy_s", "exclusive_s")}


@dataclass(slots=True)
class Meter:
    """Adds up the seconds of the phase that a run is in."""

    since: float
    phase: str = START
    phases: dict[str, Spent] = field(default_factory=dict)

    def _spent(self, phase: str) -> Spent:
        return self.phases.setdefault(phase, Spent())

    def _change(self, phase: str) -> None:
        now = time.monotonic()
        self._spent(self.phase).wall_s += now - self.since
        self.since, self.phase = now, phase

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Count what follows for a phase; then the one before goes on."""
        before = self.phase
        self._change(phase)
        try:
            yield
        finally:
            self._change(before)

    def enter(self, phase: str) -> None:
        """Count all that follows for a phase."""
        self._change(phase)

    def add(self, phase: str, seconds: float, *, alone: bool) -> None:
        spent = self._spent(phase)
        if alone:
            spent.exclusive_s += seconds
        else:
            spent.busy_s += seconds

    def to_json(self, slots: int) -> Json:
        """Return seconds by phase, and the share of the workers' shared time that was idle."""
        self._change(self.phase)
        whole = Spent()
        for spent in self.phases.values():
            whole.wall_s += spent.wall_s
            whole.busy_s += spent.busy_s
            whole.exclusive_s += spent.exclusive_s
        shared = slots * max(0.0, whole.wall_s - whole.exclusive_s)
        idle = max(0.0, 1.0 - whole.busy_s / shared) if shared else 0.0
        return {
            "workers": slots,
            "phases": {name: spent.to_json() for name, spent in self.phases.items()},
            "idle_share": round(idle, 4),
        }


class MeteredExecutor:
    """An executor whose jobs are counted.

    Jobs that nothing waits for yet can be begun ahead: their outcomes are kept until they are
    collected, and those who wait for other jobs do not see them.
    """

    def __init__(self, executor: Executor, meter: Meter) -> None:
        self._executor, self._meter = executor, meter
        self._phase: dict[Handle, tuple[str, bool]] = {}  # of jobs that are under way
        self._ahead: dict[Handle, Done | None] = {}  # jobs that were begun ahead; None: under way

    @property
    def slots(self) -> int:
        return self._executor.slots

    @property
    def files(self) -> FileStore:
        return self._executor.files

    def submit(self, job: Job, *, alone: bool = False) -> Handle:
        handle = self._executor.submit(job, alone=alone)
        self._phase[handle] = (self._meter.phase, alone)
        return handle

    def begin(self, jobs: Iterable[Job], *, phase: str) -> list[Handle]:
        """Submit jobs that are collected later; they count for a phase."""
        handles = [self._executor.submit(job) for job in jobs]
        self._ahead |= dict.fromkeys(handles)
        self._phase |= dict.fromkeys(handles, (phase, False))
        return handles

    def collect(self, handles: Sequence[Handle]) -> list[Done]:
        """Wait for jobs that were begun ahead; return them in this order."""
        while any(self._ahead[handle] is None for handle in handles):
            self._wait_once(None)
        finished = [self._ahead.pop(handle) for handle in handles]
        return [done for done in finished if done is not None]

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            finished = self._wait_once(None if end is None else max(0.0, end - time.monotonic()))
            waiting = self._phase.keys() - self._ahead.keys()
            if finished or not waiting or (end is not None and time.monotonic() >= end):
                return finished

    def _wait_once(self, timeout_s: float | None) -> list[Done]:
        """Count what is done; return it without what was begun ahead, which is kept."""
        finished = self._executor.wait(timeout_s)
        for done in finished:
            phase, alone = self._phase.pop(done.handle, (self._meter.phase, False))
            self._meter.add(phase, done.seconds, alone=alone)
        self._ahead |= {done.handle: done for done in finished if done.handle in self._ahead}
        return [done for done in finished if done.handle not in self._ahead]

    def stop(self, handle: Handle) -> None:
        self._executor.stop(handle)

    def cancel(self, handle: Handle) -> None:
        self._executor.cancel(handle)

    def close(self) -> None:
        self._executor.close()

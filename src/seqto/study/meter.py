"""How a run's wall time is spent: by phase, and how busy the workers are meanwhile.

A job that runs alone (a timing) has the machine for itself: it counts as exclusive, not as idle.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
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
    """An executor whose jobs are counted."""

    def __init__(self, executor: Executor, meter: Meter) -> None:
        self._executor, self._meter = executor, meter
        self._phase: dict[Handle, tuple[str, bool]] = {}  # of jobs that are under way

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

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        found = self._executor.wait(timeout_s)
        for done in found:
            phase, alone = self._phase.pop(done.handle, (self._meter.phase, False))
            self._meter.add(phase, done.seconds, alone=alone)
        return found

    def stop(self, handle: Handle) -> None:
        self._executor.stop(handle)

    def cancel(self, handle: Handle) -> None:
        self._executor.cancel(handle)

    def close(self) -> None:
        self._executor.close()

"""The protocol of an executor: jobs in, results out, on this machine or on others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from seqto.execution.files import FileStore
from seqto.execution.jobs import Job, Result
from seqto.records import Failure, Json

R = TypeVar("R")

CANCELLED = Failure("cancelled", "the job was cancelled")


@dataclass(frozen=True, slots=True)
class Handle:
    """One job that was submitted."""

    number: int


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a job."""

    handle: Handle
    outcome: Result | Failure
    seconds: float = 0.0  # from its start in a worker, not from its submission
    note: Json = field(default_factory=dict)  # what it noted before it failed
    node: Json = field(default_factory=dict)  # name and environment; empty: this machine


class Executor(Protocol):
    """Runs jobs. A failure of one job, a crash included, never ends another."""

    @property
    def slots(self) -> int:
        """How many jobs run at the same time."""
        ...

    @property
    def files(self) -> FileStore:
        """The files of the run, as the main process sees them."""
        ...

    def submit(self, job: Job, *, alone: bool = False) -> Handle:
        """Queue a job. alone: nothing else runs on its machine meanwhile."""
        ...

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        """Return jobs that are done, one at least unless time passes or nothing is under way."""
        ...

    def stop(self, handle: Handle) -> None:
        """Ask a job to end early: it returns what it has."""
        ...

    def cancel(self, handle: Handle) -> None:
        """End a job: it is done with Failure("cancelled")."""
        ...

    def close(self) -> None: ...


class Signals(Protocol):
    """Messages between a running job and its executor."""

    def alive(self) -> None:
        """Say that the job goes on; long silence ends it."""
        ...

    def note(self, facts: Json) -> None:
        """Say what is to be known even if the job fails later."""
        ...

    @property
    def stopped(self) -> bool:
        """Whether the job was asked to end early. Does not wait."""
        ...


def run_all(executor: Executor, jobs: Iterable[Job], *, alone: bool = False) -> list[Done]:
    """Run jobs to their end; return them in the order of the jobs."""
    handles = [executor.submit(job, alone=alone) for job in jobs]
    by_handle: dict[Handle, Done] = {}
    while len(by_handle) < len(handles):
        for done in executor.wait():
            if done.handle in handles:
                by_handle[done.handle] = done
    return [by_handle[handle] for handle in handles]


def expect(done: Done, kind: type[R]) -> R | Failure:
    """Return a result of the kind that the job gives, or its failure."""
    if isinstance(done.outcome, Failure | kind):
        return done.outcome
    raise TypeError(f"a job gave {type(done.outcome).__name__}, not {kind.__name__}")

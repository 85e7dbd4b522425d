"""Executors without processes, for tests: one runs jobs here, one answers them from a function."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from seqto.execution.executor import CANCELLED, Done, Handle
from seqto.execution.files import LocalFiles
from seqto.execution.jobs import (
    Job,
    Result,
    WorkerSetup,
    job_from_json,
    job_to_json,
    result_from_json,
    result_to_json,
)
from seqto.execution.local.pool import error_of
from seqto.execution.local.serve import setup_from_json, setup_to_json
from seqto.execution.local.worker_process import failure_json
from seqto.execution.worker import Worker
from seqto.records import Failure, Json


class InlineExecutor:
    """An executor without processes: jobs run in this one, in their order, inside `wait`.

    For tests in which processes are not the subject; it takes what `LocalExecutor` takes. There is
    one worker; time limits, memory caps and crashes are not looked after.
    """

    def __init__(
        self, setup: WorkerSetup, files: LocalFiles, *, slots: int = 1, **_limits: object
    ) -> None:
        self.slots, self.files = slots, files
        self._setup: Json = json.loads(json.dumps(setup_to_json(setup, files)))
        self._worker: Worker | None = None
        self._queue: deque[tuple[Handle, Json]] = deque()
        self._finished: list[Done] = []
        self._submitted = 0
        self._stopped: set[Handle] = set()

    def submit(self, job: Job, *, alone: bool = False) -> Handle:
        del alone  # it always is
        self._submitted += 1
        handle = Handle(self._submitted)
        self._queue.append((handle, json.loads(json.dumps(job_to_json(job)))))
        return handle

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        """Run the next job; nothing is returned when nothing is queued."""
        del timeout_s
        if self._queue and not self._finished:
            self._finished.append(self._run(*self._queue.popleft()))
        finished, self._finished = self._finished, []
        return finished

    def _run(self, handle: Handle, job: Json) -> Done:
        try:
            worker = self._worker = self._worker or Worker(*setup_from_json(self._setup))
        except Exception as error:
            raise error_of(failure_json(error), "setting up a worker") from error
        signals = InlineSignals(is_stopped=lambda: handle in self._stopped)
        began = time.monotonic()
        outcome: Result | Failure
        try:
            result = worker.run(job_from_json(job), signals)
            outcome = result_from_json(json.loads(json.dumps(result_to_json(result))))
        except Exception as error:
            said = failure_json(error)
            if "bug" in said:
                raise error_of(said, "a job") from error
            outcome = Failure.from_json(said)
        return Done(handle, outcome, time.monotonic() - began, signals.noted)

    def stop(self, handle: Handle) -> None:
        self._stopped.add(handle)

    def cancel(self, handle: Handle) -> None:
        for queued in [q for q in self._queue if q[0] == handle]:
            self._queue.remove(queued)
            self._finished.append(Done(handle, CANCELLED))

    def close(self) -> None:
        self._queue.clear()
        self._worker = None


class InlineSignals:
    """`Signals` of a job in this process; `stop_after` signs of life it is asked to stop."""

    def __init__(
        self, *, is_stopped: Callable[[], bool] = lambda: False, stop_after: int | None = None
    ) -> None:
        self._is_stopped, self._stop_after = is_stopped, stop_after
        self.signs = 0
        self.noted: Json = {}

    def alive(self) -> None:
        self.signs += 1

    def note(self, facts: Json) -> None:
        self.noted.update(json.loads(json.dumps(facts)))

    @property
    def stopped(self) -> bool:
        late = self._stop_after is not None and self.signs >= self._stop_after
        return late or self._is_stopped()


class FakeExecutor:
    """An executor that runs nothing: `answer` gives the outcome of each job, in their order."""

    def __init__(
        self,
        answer: Callable[[Job], Result | Failure],
        *,
        folder: Path = Path(),
        slots: int = 2,
    ) -> None:
        self.slots, self.files = slots, LocalFiles(folder)
        self.jobs: list[Job] = []
        self.cancelled: list[Handle] = []
        self._answer = answer
        self._queue: deque[tuple[Handle, Job]] = deque()

    def submit(self, job: Job, *, alone: bool = False) -> Handle:
        del alone
        self.jobs.append(job)
        handle = Handle(len(self.jobs))
        self._queue.append((handle, job))
        return handle

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        del timeout_s
        if not self._queue:
            return []
        handle, job = self._queue.popleft()
        return [Done(handle, self._answer(job), 0.01)]

    def stop(self, handle: Handle) -> None:
        """Stop nothing: nothing runs."""

    def cancel(self, handle: Handle) -> None:
        self.cancelled.append(handle)
        self._queue = deque(q for q in self._queue if q[0] != handle)

    def close(self) -> None:
        self._queue.clear()

"""Executors with and without processes give the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pytest

from ready import ROWS, ready, reference_of
from seqto.assembly.plan import Plan
from seqto.execution import jobs
from seqto.execution.executor import CANCELLED, run_all
from seqto.execution.local import executor as local_executor
from seqto.execution.local.child import Ticket
from seqto.execution.local.executor import LocalExecutor
from seqto.execution.local.pool import Pool
from seqto.records import CALIBRATION, Failure, Json
from seqto.tasks.classification import Classification
from seqto.testing.executors import InlineExecutor

EXECUTORS = [LocalExecutor, InlineExecutor]


@pytest.mark.parametrize("kind", EXECUTORS)
def test_plans_are_evaluated_alone_and_beside_others(kind: Any, tmp_path: Path) -> None:
    with (
        ready(tmp_path) as (setup, files, plan),
        contextlib.closing(kind(setup, files, slots=2, timeout_s=60)) as executor,
    ):
        (made,) = run_all(executor, [jobs.MakeReference(None, CALIBRATION, 0, ROWS, 1, 4)])
        ref = reference_of(files, made.outcome.file, Classification(), None)
        job = jobs.Evaluate(plan, CALIBRATION, ROWS, 1, 4, ref)
        first = executor.submit(job)
        alone = executor.submit(jobs.TimePlans((plan,), None, 0.01), alone=True)
        last = executor.submit(job)
        ended = []
        while len(ended) < 3:
            ended += executor.wait()
        assert executor.wait() == []
    assert [d.handle for d in ended] == [first, alone, last], "what is alone keeps its place"
    assert ended[0].outcome.measurement == ended[2].outcome.measurement
    assert ended[0].outcome.measurement.loss.samples == ROWS
    assert ended[0].note["content"] == ended[0].outcome.model.content


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_job_that_fails_is_a_failure_and_others_go_on(kind: Any, tmp_path: Path) -> None:
    with (
        ready(tmp_path) as (setup, files, plan),
        contextlib.closing(kind(setup, files, timeout_s=60)) as executor,
    ):
        unknown = Plan.of({"nowhere": "fp16"})
        bad, good = run_all(executor, [jobs.TryPlan(unknown, 1), jobs.TryPlan(plan, 1)])
    assert isinstance(bad.outcome, Failure)
    assert bad.outcome.stage == "plan"
    assert good.outcome == jobs.PlanRan()


@pytest.mark.parametrize("kind", EXECUTORS)
def test_a_cancelled_job_is_done_with_a_failure(kind: Any, tmp_path: Path) -> None:
    with (
        ready(tmp_path) as (setup, files, plan),
        contextlib.closing(kind(setup, files, timeout_s=60)) as executor,
    ):
        handles = [executor.submit(jobs.TryPlan(plan, 1)) for _ in range(3)]
        executor.cancel(handles[1])
        ended = {}
        while len(ended) < 3:
            ended |= {d.handle: d.outcome for d in executor.wait()}
    assert ended[handles[1]] == CANCELLED
    assert ended[handles[0]] == ended[handles[2]] == jobs.PlanRan()


def test_memory_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    with (
        ready(tmp_path) as (setup, files, plan),
        contextlib.closing(LocalExecutor(setup, files, timeout_s=60)) as executor,
    ):
        (saved,) = run_all(executor, [jobs.SaveModel(plan)])
        before = {p.pid for p in psutil.Process().children()}
        (found,) = run_all(executor, [jobs.MeasureMemory(saved.outcome.files)])
        assert {p.pid for p in psutil.Process().children()} == before
    assert found.outcome.peak_memory_bytes > 0
    assert found.outcome.load_ms > 0


def test_processes_that_measure_memory_start_together_and_measure_one_after_the_other(
    tmp_path: Path,
) -> None:
    steps: list[str] = []

    class Watched(Pool):
        def wait_until_ready(self) -> None:
            steps.append("ready")
            super().wait_until_ready()

        def start(self) -> None:
            steps.append("start")
            super().start()

        def map(self, jobs: Iterable[Json]) -> list[Ticket]:
            steps.append("measure")
            return super().map(jobs)

        def close(self) -> None:
            steps.append("close")
            super().close()

    with (
        ready(tmp_path) as (setup, files, plan),
        pytest.MonkeyPatch.context() as patch,
        contextlib.closing(LocalExecutor(setup, files, slots=2, timeout_s=60)) as executor,
    ):
        (saved,) = run_all(executor, [jobs.SaveModel(plan)])
        before = {p.pid for p in psutil.Process().children()}
        patch.setattr(local_executor, "Pool", Watched)
        job = jobs.MeasureMemory(saved.outcome.files)
        found = run_all(executor, [job, job, job], alone=True)
        assert {p.pid for p in psutil.Process().children()} == before
    both = ["start", "start", "ready", "ready", "measure", "measure", "close", "close"]
    assert steps == [*both, "start", "ready", "measure", "close"]
    assert all(done.outcome.peak_memory_bytes > 0 for done in found)


class DyingPool:
    """A pool whose first workers die during their job."""

    def __init__(self, deaths: int) -> None:
        self.deaths, self.submitted, self.waiting = deaths, 0, list[Ticket]()

    def submit(self, job: Any) -> Ticket:
        self.submitted += 1
        self.waiting.append(Ticket(job, self.submitted))
        return self.waiting[-1]

    def wait(self, _timeout_s: float | None = None) -> list[Ticket]:
        ended, self.waiting = self.waiting, []
        for ticket in ended:
            if ticket.number <= self.deaths:
                ticket.failure = Failure("crash", "worker died with SIGKILL")
            else:
                ticket.result = jobs.result_to_json(jobs.PlanRan())
        return ended

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("deaths", "outcome"), [(0, "ran"), (1, "ran"), (2, "crash"), (3, "crash")]
)
def test_a_job_whose_worker_is_killed_runs_once_more(
    tmp_path: Path, deaths: int, outcome: str
) -> None:
    """Somebody else may have ended the worker; a job that ends two of them is to blame itself."""
    with ready(tmp_path) as (setup, files, plan):
        executor = LocalExecutor(setup, files, timeout_s=60)
        executor._pool = pool = DyingPool(deaths)  # type: ignore[assignment]
        handle = executor.submit(jobs.TryPlan(plan, 1))
        (done,) = executor.wait()
        assert executor.wait() == []
    assert done.handle == handle
    assert pool.submitted == min(deaths, 1) + 1
    if outcome == "ran":
        assert done.outcome == jobs.PlanRan()
    else:
        assert isinstance(done.outcome, Failure)
        assert done.outcome.stage == "crash"

"""Workers, nodes and the head go away in the middle of jobs."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sleeping

from conftest import Nodes, wait_until
from ready import ready
from seqto.assembly.plan import Plan
from seqto.errors import DeviceError
from seqto.execution import jobs
from seqto.execution.executor import Done, run_all
from seqto.execution.ray.executor import ClusterSettings, RayCluster, RayExecutor
from seqto.records import LOST, Failure

pytestmark = pytest.mark.ray

SLEEP = 600  # milliseconds of a job


@contextlib.contextmanager
def sleepers(
    nodes: Nodes, folder: Path, *, workers: int, timeout_s: float = 60, **limits: Any
) -> Iterator[tuple[RayCluster, RayExecutor]]:
    """An executor whose jobs sleep."""
    settings = ClusterSettings(nodes.address)
    with (
        ready(folder) as (setup, files, _),
        RayCluster(settings, worker="actors:SleepingWorker", interval_s=0.3) as cluster,
        contextlib.closing(
            cluster.executor(setup, files, timeout_s=timeout_s, **limits)
        ) as executor,
    ):
        cluster.wait_for_workers(workers)
        yield cluster, executor


def sleep(milliseconds: int = SLEEP) -> jobs.Job:
    return jobs.TryPlan(Plan(), milliseconds)


def in_background(
    executor: RayExecutor, work: list[jobs.Job]
) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.extend(run_all(executor, work))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def outcomes(found: list[Done]) -> set[Any]:
    return {done.outcome for done in found}


def test_a_crash_a_hang_and_too_much_memory_end_one_job_each(nodes: Nodes, tmp_path: Path) -> None:
    with sleepers(nodes, tmp_path, workers=3, timeout_s=2, memory_bytes=300_000_000) as (_, ray):
        bad = [sleep(b) for b in (sleeping.CRASH, sleeping.HANG, sleeping.HUGE)]
        found = run_all(ray, [*bad, sleep(10)])
    stages = [d.outcome.stage for d in found if isinstance(d.outcome, Failure)]
    assert stages == ["crash", "timeout", "memory"]
    assert "SIGSEGV" in found[0].outcome.message
    assert found[3].outcome == jobs.PlanRan()


def test_a_cancelled_job_ends_and_its_worker_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    with sleepers(nodes, tmp_path, workers=3) as (_, ray):
        hanging = [ray.submit(sleep(sleeping.HANG)) for _ in range(4)]
        time.sleep(0.5)
        for handle in hanging:
            ray.cancel(handle)
        ended = []
        while len(ended) < 4:
            ended += ray.wait(10)
        assert {d.outcome.stage for d in ended if isinstance(d.outcome, Failure)} == {"cancelled"}
        assert outcomes(run_all(ray, [sleep(5)] * 6)) == {jobs.PlanRan()}


def test_a_killed_worker_costs_its_job_a_retry(nodes: Nodes, tmp_path: Path) -> None:
    with sleepers(nodes, tmp_path, workers=3) as (cluster, ray):
        thread, found = in_background(ray, [sleep()] * 9)
        time.sleep(0.3)
        (victim,) = nodes.actors(1)
        os.kill(victim, signal.SIGKILL)
        thread.join(60)
        assert outcomes(found) == {jobs.PlanRan()}
        cluster.wait_for_workers(3, timeout_s=30)  # another one has taken its place
        assert victim not in nodes.actors(1)


def test_a_job_that_loses_two_workers_has_failed(nodes: Nodes, tmp_path: Path) -> None:
    with sleepers(nodes, tmp_path, workers=3) as (_, ray):
        thread, found = in_background(ray, [sleep(sleeping.HANG)])

        def busy() -> list[int]:
            return [n for n in range(3) for _ in nodes.actors(n)]

        killed = 0
        while killed < 2 and thread.is_alive():
            time.sleep(1.0)
            for node in range(3):  # whoever has it
                for pid in nodes.actors(node):
                    os.kill(pid, signal.SIGKILL)
            killed += 1
            wait_until(busy)
        thread.join(60)
    (done,) = found
    assert done.outcome.stage == LOST
    assert "was lost" in done.outcome.message


def test_a_node_that_joins_is_used_and_one_that_dies_is_done_without(
    nodes: Nodes, tmp_path: Path
) -> None:
    with sleepers(nodes, tmp_path, workers=3) as (cluster, ray):
        thread, found = in_background(ray, [sleep()] * 30)
        added = nodes.add()
        cluster.wait_for_workers(4, timeout_s=30)
        wait_until(lambda: nodes.actors(added))
        time.sleep(2 * SLEEP / 1000)
        nodes.kill(added)
        thread.join(90)
        assert outcomes(found) == {jobs.PlanRan()}
        assert len(found) == 30
        assert len({d.node["name"] for d in found}) == 4, "the new node has run some"


def test_a_lost_object_is_sent_again(nodes: Nodes, tmp_path: Path) -> None:
    with (
        ready(tmp_path) as (setup, files, plan),
        RayCluster(ClusterSettings(nodes.address), worker="actors:LosingWorker") as cluster,
        contextlib.closing(cluster.executor(setup, files)) as executor,
    ):
        (done,) = run_all(executor, [jobs.TryPlan(plan, 1)])
    assert done.outcome == jobs.PlanRan()


def test_a_paused_head_is_waited_for(own_nodes: Nodes, tmp_path: Path) -> None:
    own_nodes.add(cpus=0)
    own_nodes.add()
    own_nodes.add()
    with sleepers(own_nodes, tmp_path, workers=2) as (_, ray):
        thread, found = in_background(ray, [sleep(2000)] * 40)
        time.sleep(1)
        go_on = own_nodes.pause(0)
        try:
            time.sleep(30)
        finally:
            go_on()
        thread.join(120)
        assert outcomes(found) == {jobs.PlanRan()}
        assert len(found) == 40


def test_a_head_that_is_gone_ends_the_run_with_one_line(
    own_nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")
    own_nodes.add(cpus=0)
    own_nodes.add()
    with sleepers(own_nodes, tmp_path, workers=1) as (_, ray):
        thread, found = in_background(ray, [sleep(sleeping.HANG)])
        time.sleep(1)
        own_nodes.kill(0)
        thread.join(90)
        (error,) = found
    assert isinstance(error, DeviceError)
    assert "\n" not in str(error)
    assert str(error).startswith(f"the Ray cluster at {own_nodes.address} is gone")
    assert "--executor local" in str(error)


def test_an_address_where_nobody_listens_is_one_line(tmp_path: Path) -> None:
    with (
        ready(tmp_path) as (setup, files, _),
        RayCluster(ClusterSettings("127.0.0.1:1")) as cluster,
        pytest.raises(DeviceError, match=r"Ray cluster at 127\.0\.0\.1:1 cannot be reached"),
    ):
        cluster.executor(setup, files)

"""The pool without processes gives what the real one gives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto.errors import ConfigError
from seqto.execution.local.pool import Pool
from seqto.testing.fakes import InlinePool

POOLS = [Pool, InlinePool]
Json = dict[str, Any]


def _pool(kind: Any, target: str, setup: Json | None = None, **settings: Any) -> Any:
    return kind(f"worker_targets:{target}", setup or {}, **settings)


def test_jobs_run_in_this_process() -> None:
    with _pool(InlinePool, "echo") as pool:
        (ticket,) = pool.map([{}])
    assert ticket.result["pid"] == os.getpid()


@pytest.mark.parametrize("kind", POOLS)
def test_results_messages_and_replies(kind: Any) -> None:
    heard: list[Any] = []
    with _pool(kind, "echo", {"a": (1, 2)}, size=2) as pool:
        jobs = [{"i": i, "arrays": [[[2, 3], "<f4"]]} for i in range(3)]
        tickets = pool.map(jobs, lambda _, arrays: heard.append(arrays[0]))
        assert pool.wait() == []
    assert [t.result["job"] for t in tickets] == jobs
    assert {str(t.result["setup"]) for t in tickets} == {"{'a': [1, 2]}"}  # as JSON leaves it
    assert [a.tolist() for a in heard] == [np.arange(6.0).reshape(2, 3).tolist()] * 3
    with _pool(kind, "count") as pool:
        tickets = pool.map([{"n": 3}, {"n": 5}], lambda said, _: {"value": said["number"]})
    assert [t.result for t in tickets] == [{"total": 3, "sent": 3}, {"total": 10, "sent": 5}]


@pytest.mark.parametrize("kind", POOLS)
def test_a_job_is_stopped_before_and_while_it_runs(kind: Any) -> None:
    with _pool(kind, "count") as pool:

        def stop_at_ten(said: Json, _: Any) -> Json | None:
            if said["number"] == 9:
                pool.stop(ticket)
                return None
            return {"value": 1}

        ticket = pool.submit({"n": 10**9}, stop_at_ten)
        early = pool.submit({"n": 10**9}, lambda *_: {"value": 1})
        pool.stop(early)
        while not (ticket.done and early.done):
            pool.wait()
    assert ticket.result == {"total": 9, "sent": 10}
    assert early.result["sent"] <= 1


@pytest.mark.parametrize("kind", POOLS)
def test_what_a_job_raises_is_its_failure_and_a_bug_is_raised(kind: Any) -> None:
    bad = {"what": "raise", "type": "DeviceError", "message": "no kernel"}
    bad["fields"] = {"stage": "load", "ops": ["Conv"]}  # type: ignore[assignment]
    with _pool(kind, "misbehave") as pool:
        first, second = pool.map([bad, {"what": "nothing"}])
        assert (first.result, second.result) == (None, {"what": "nothing"})
        assert (first.failure.stage, first.failure.message) == ("load", "no kernel")
        assert list(first.failure.ops) == ["Conv"]
        with pytest.raises(RuntimeError, match="a job of worker_targets:misbehave failed"):
            pool.map([{"what": "raise", "type": "KeyError", "message": "x"}])
        with pytest.raises(RuntimeError, match="not JSON serializable"):
            pool.map([{"what": "unsendable"}])


@pytest.mark.parametrize("kind", POOLS)
def test_a_setup_that_fails_raises_its_error(kind: Any, tmp_path: Path) -> None:
    setup = {"tally": str(tmp_path / "t"), "type": "ConfigError", "message": "no such board"}
    with (
        _pool(kind, "fails_to_set_up", setup) as pool,
        pytest.raises(ConfigError, match=r"setting up .*: no such board"),
    ):
        pool.map([{}])


@pytest.mark.parametrize("kind", POOLS)
def test_what_is_cancelled_is_forgotten(kind: Any) -> None:
    with _pool(kind, "echo") as pool:
        pool.submit({"i": 1})
        pool.submit({"i": 2})
        pool.cancel()
        (ticket,) = pool.map([{"i": 3}])
        assert pool.wait() == []
    assert ticket.result["job"] == {"i": 3}
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit({})


def test_a_job_that_waits_for_nobody_is_said_not_waited_for() -> None:
    with _pool(InlinePool, "count") as pool, pytest.raises(RuntimeError, match="nobody sends"):
        pool.map([{"n": 1}])

"""How wall time was spent: phases add up, exclusive jobs are not idle time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from seqto.assembly.plan import Plan
from seqto.execution.jobs import PlanRan, TryPlan
from seqto.study import meter
from seqto.study.meter import PROBES, START, TRIALS, Meter, MeteredExecutor
from seqto.testing.executors import FakeExecutor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(meter.time, "monotonic", lambda: now[0])
    return now


def test_phases_add_up_to_the_wall_time(clock: list[float]) -> None:
    found = Meter(90.0)
    found.enter(TRIALS)
    clock[0] = 104.0
    with found.during(PROBES):
        clock[0] = 105.0
    clock[0] = 107.0
    phases = found.to_json(2)["phases"]
    assert {name: p["wall_s"] for name, p in phases.items()} == {START: 10, TRIALS: 6, PROBES: 1}


def test_what_runs_alone_is_neither_busy_nor_idle(clock: list[float]) -> None:
    found = Meter(90.0)
    found.add(START, 4.0, alone=True)
    found.add(START, 9.0, alone=False)
    told = found.to_json(2)
    assert told["idle_share"] == pytest.approx(1 - 9 / 12)
    assert told["phases"][START] == {"wall_s": 10.0, "busy_s": 9.0, "exclusive_s": 4.0}


def test_jobs_count_for_the_phase_in_which_they_were_submitted(tmp_path: Path) -> None:
    def answer(_job: Any) -> Any:
        return PlanRan()

    counted = Meter(time.monotonic())
    executor = MeteredExecutor(FakeExecutor(answer, folder=tmp_path), counted)
    with counted.during(PROBES):
        handle = executor.submit(TryPlan(Plan(), 1))
    assert [done.handle for done in executor.wait()] == [handle]
    assert PROBES in counted.phases
    executor.close()


def test_what_was_begun_ahead_is_kept_until_it_is_collected(tmp_path: Path) -> None:
    counted = Meter(time.monotonic())
    executor = MeteredExecutor(FakeExecutor(lambda _job: PlanRan(), folder=tmp_path), counted)
    ahead = executor.begin([TryPlan(Plan(), 1), TryPlan(Plan(), 2)], phase=PROBES)
    waited = executor.submit(TryPlan(Plan(), 3))
    assert [done.handle for done in executor.wait()] == [waited], "others' jobs are not seen"
    assert executor.wait() == []
    assert [done.handle for done in executor.collect(ahead[::-1])] == ahead[::-1]
    assert counted.phases[PROBES].busy_s == pytest.approx(0.02)


def test_collecting_waits_for_what_is_under_way(tmp_path: Path) -> None:
    counted = Meter(time.monotonic())
    executor = MeteredExecutor(FakeExecutor(lambda _job: PlanRan(), folder=tmp_path), counted)
    ahead = executor.begin([TryPlan(Plan(), size) for size in (1, 2, 3)], phase=PROBES)
    assert [done.handle for done in executor.collect(ahead)] == ahead
    assert executor.collect([]) == []

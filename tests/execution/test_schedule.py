"""Which job of a cluster runs next, and where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from seqto.execution.ray.schedule import Schedule, Task, WorkerSlot


def schedule(*workers: WorkerSlot, **settings: object) -> Schedule:
    made = Schedule(**settings)  # type: ignore[arg-type]
    made.workers = {w.name: w for w in workers}
    return made


def started(plan: Schedule) -> list[tuple[int, str]]:
    """Return (job, worker) of all that can start now."""
    found = []
    while (chosen := plan.next()) is not None:
        found.append((chosen[0].number, chosen[1].name))
    return found


def test_runs_share_the_workers() -> None:
    plan = schedule(*(WorkerSlot(f"w{i}", "h") for i in range(4)))
    for number in range(10):
        plan.put(Task(number, "big"))
    for number in (20, 21):
        plan.put(Task(number, "small"))
    assert sorted(number for number, _ in started(plan)) == [0, 1, 20, 21]


def test_what_must_be_alone_waits_for_its_host_and_closes_it() -> None:
    a, b, c = WorkerSlot("a", "one"), WorkerSlot("b", "one"), WorkerSlot("c", "two")
    plan = schedule(a, b, c, driver_host="two")
    plan.put(Task(1, "r"))
    assert started(plan) == [(1, "a")]
    plan.put(Task(2, "r", alone=True))
    for number in (3, 4):
        plan.put(Task(number, "r"))
    assert started(plan) == [(3, "c")], "host one is reserved, though one of its workers is idle"
    plan.finish(a)
    assert started(plan) == [(2, "a")]
    plan.finish(c)
    assert started(plan) == [(4, "c")]
    plan.put(Task(5, "r"))
    assert started(plan) == [], "nothing else runs on host one"
    plan.finish(a)
    assert len(started(plan)) == 1


def test_a_run_is_timed_on_one_host_while_it_is_there() -> None:
    a, b = WorkerSlot("a", "one"), WorkerSlot("b", "two")
    plan = schedule(a, b)
    plan.put(Task(1, "r", alone=True))
    ((_, first),) = started(plan)
    plan.finish(plan.workers[first])
    plan.put(Task(2, "other"))
    started(plan)
    plan.put(Task(3, "r", alone=True))
    busy = [w for w in plan.workers.values() if w.task]
    assert started(plan) == ([] if busy[0].name == first else [(3, first)])
    plan.remove(first)
    for worker in plan.workers.values():
        plan.finish(worker)
    assert [number for number, _ in started(plan)] == [3]


def test_device_jobs_need_the_device_and_others_leave_it_free() -> None:
    plan = schedule(WorkerSlot("phone", "h", has_device=True), WorkerSlot("cpu", "h2"))
    plan.needs_resource = True
    plan.put(Task(1, "r", device=False))
    plan.put(Task(2, "r"))
    plan.put(Task(3, "r"))
    assert started(plan) == [(1, "cpu"), (2, "phone")]
    assert plan.stranded() == []
    plan.remove("phone")
    assert [t.number for t in plan.stranded()] == [3]


def test_other_cpus_measure_no_time() -> None:
    plan = schedule(WorkerSlot("old", "h", times=False))
    plan.put(Task(1, "r", alone=True))
    plan.put(Task(2, "r"))
    assert started(plan) == [(2, "old")]
    assert [t.number for t in plan.stranded()] == [1]


def test_a_job_is_not_given_to_a_worker_that_it_was_lost_on() -> None:
    plan = schedule(WorkerSlot("a", "h"), WorkerSlot("b", "h"))
    plan.put(Task(1, "r", avoid=frozenset({"a"})))
    assert started(plan) == [(1, "b")]


def test_cancelling_frees_what_was_reserved() -> None:
    a, b = WorkerSlot("a", "h"), WorkerSlot("b", "h")
    plan = schedule(a, b)
    plan.put(Task(1, "r"))
    started(plan)
    plan.put(Task(2, "r", alone=True))
    assert started(plan) == []
    cancelled = plan.cancel(2)
    assert isinstance(cancelled, Task)
    assert plan.cancel(1) is a
    plan.put(Task(3, "r"))
    assert started(plan) == [(3, "b")]


STEPS = st.lists(st.tuples(st.sampled_from("abcfgx"), st.integers(0, 5)), max_size=60)


@given(steps=STEPS)
def test_exclusive_hosts_and_no_lost_jobs_whatever_happens(
    steps: list[tuple[str, int]],
) -> None:
    """Two workers on each of three hosts; jobs of two runs come, end, and lose their workers."""
    plan = schedule(*(WorkerSlot(f"w{i}", f"h{i // 2}") for i in range(6)))
    put, ended, number = set(), set(), 0
    for step, which in steps:
        worker = plan.workers.get(f"w{which}")
        if step in "abc":
            number += 1
            put.add(number)
            plan.put(Task(number, "r" if which % 2 else "s", alone=step == "c"))
        elif step in "fg" and worker is not None and worker.task is not None:
            ended.add(worker.task.number)
            plan.finish(worker)
        elif step == "x" and worker is not None and len(plan.workers) > 1:
            task = plan.remove(worker.name)
            if task is not None:
                plan.put(task, first=True)
        started(plan)
        running = [w for w in plan.workers.values() if w.task]
        for lonely in [w for w in running if w.task and w.task.alone]:
            assert [w.name for w in running if w.host == lonely.host] == [lonely.name]
    for _ in range(2 * number + 2):
        for worker in plan.workers.values():
            if worker.task is not None:
                ended.add(worker.task.number)
                plan.finish(worker)
        started(plan)
    assert ended == put

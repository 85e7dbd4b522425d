from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from seqto.errors import DeviceError, ModelError
from seqto.execution.local.pool import Pool

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = open_files()
    yield
    assert psutil.Process().children(recursive=True) == []
    # by identity, not by number: garbage of an earlier test may close its files in between
    assert open_files() - before == Counter()


def open_files() -> Counter[str]:
    """Return what this process has open; pipes and sockets have a number of their own."""
    found: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found[os.readlink(f"/proc/self/fd/{entry}")] += 1
    return found


def _pool(target: str, setup: Json | None = None, **settings: Any) -> Pool:
    return Pool(f"worker_targets:{target}", setup or {}, **settings)


def _bad(what: str, **fields: Any) -> Json:
    return {"what": what, **fields}


def _soon(is_so: Callable[[], bool], *, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def _gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_jobs_setup_and_results_travel_as_json() -> None:
    with _pool("echo", {"threads": 1, "name": "größe"}) as pool:
        [ticket] = pool.map([{"layer": "a/模型", "n": [1, 2.5, None]}])
    assert ticket.done
    assert ticket.failure is None
    assert ticket.result is not None
    assert ticket.result["job"] == ticket.job == {"layer": "a/模型", "n": [1, 2.5, None]}
    assert ticket.result["setup"] == {"threads": 1, "name": "größe"}
    assert not ticket.result["numpy"], "a worker loads nothing heavy by itself"


def test_messages_are_kept_in_the_jobs_note() -> None:
    with _pool("count", size=2) as pool:
        tickets = pool.map([{"n": 3}, {"n": 50}])
    assert [t.result for t in tickets] == [{"sent": 3}, {"sent": 50}]
    assert [t.note for t in tickets] == [{"number": 2}, {"number": 49}]


def test_what_a_job_has_told_is_known_after_it_has_died() -> None:
    with _pool("misbehave") as pool:
        [ticket] = pool.map([_bad("signal", name="SIGKILL", tells={"size_bytes": 7})])
    assert ticket.failure is not None
    assert ticket.note == {"size_bytes": 7}


def test_a_job_that_is_asked_to_stop_returns_what_it_has() -> None:
    with _pool("count") as pool:
        ticket = pool.submit({"n": 10**9})
        while ticket.note.get("number", 0) < 9:
            assert pool.wait(0.01) == []
        pool.stop(ticket)
        assert pool.wait() == [ticket]
        assert ticket.result is not None
        assert 10 <= ticket.result["sent"] < 10**9
        never_begun = pool.submit({"n": 10**9})
        after = pool.submit({"n": 2})
        pool.stop(never_begun)
        while not after.done:
            pool.wait()
        assert never_begun.result is not None
        assert never_begun.result["sent"] < 10**9
        assert after.result == {"sent": 2}, "a stop that comes late does not reach the next job"


def test_a_job_that_is_cancelled_ends_alone() -> None:
    with _pool("misbehave", size=2) as pool:
        hanging, fine, queued = (pool.submit(_bad(w)) for w in ("hang", "fine", "fine"))
        pool.cancel(queued)
        assert pool.wait() == [fine]
        pool.cancel(hanging)
        [after] = pool.map([_bad("fine")])
        assert pool.wait() == []
    assert after.result == {"what": "fine"}
    assert not hanging.done
    assert not queued.done


def test_large_jobs_messages_and_results_flow_both_ways_without_deadlock() -> None:
    with _pool("flood", size=2, timeout_s=20) as pool:
        tickets = pool.map([{"text": "x" * 20_000_000, "times": 2}] * 2)
    assert [len((t.result or {})["text"]) for t in tickets] == [20_000_000] * 2
    assert [len(t.note["text"]) for t in tickets] == [20_000_000] * 2


def test_results_come_in_the_order_of_the_jobs_and_as_they_are_done(tmp_path: Path) -> None:
    go = tmp_path / "go"
    jobs: list[Json] = [{"i": 0, "until": str(go)}, {"i": 1}, {"i": 2}, {"i": 3}]
    done = []
    with _pool("echo", size=2, timeout_s=60) as pool:
        for ticket in pool.run(jobs):
            done.append(ticket)
            if len(done) == 3:  # all but the one that waits
                go.touch()
        assert [t.job["i"] for t in done] == [1, 2, 3, 0]
        assert [t.job["i"] for t in pool.map(jobs)] == [0, 1, 2, 3]
    assert done[-1].seconds > 0
    assert len({(t.result or {})["pid"] for t in done}) == 2


def test_waiting_ends_in_time_and_at_once_when_nothing_is_under_way(tmp_path: Path) -> None:
    with _pool("echo") as pool:
        assert pool.wait() == []
        ticket = pool.submit({"until": str(tmp_path / "go")})
        assert pool.wait(0.1) == []  # the job does not end before it
        assert pool.wait(0) == []
        (tmp_path / "go").touch()
        assert pool.wait() == [ticket]


def test_a_segfault_ends_one_job_and_says_what_was_last_heard() -> None:
    with _pool("misbehave") as pool:
        good, bad, after = pool.map([_bad("fine"), _bad("segfault"), _bad("fine")])
    assert good.result == after.result == {"what": "fine"}
    assert bad.result is None
    assert bad.failure is not None
    assert bad.failure.stage == "crash"
    assert bad.failure.message == "worker died with SIGSEGV; last output: [native] about to fall"


def test_every_other_death_is_a_crash_too() -> None:
    deaths = {
        "worker died with SIGABRT; no output": _bad("signal", name="SIGABRT"),
        "worker died with SIGKILL (out of memory?); no output": _bad("signal", name="SIGKILL"),
        "worker exited with code 3; no output": _bad("exit", code=3),
        "worker exited with code 0; no output": _bad("exit", code=0),
        "exited with code 1; last output: eno": _bad("raise", type="SystemExit", message="enough"),
    }
    with _pool("misbehave", size=2) as pool:
        *bad, after = pool.map([*deaths.values(), _bad("fine")])
    assert after.result == {"what": "fine"}
    for message, ticket in zip(deaths, bad, strict=True):
        assert ticket.failure is not None
        assert ticket.failure.stage == "crash"
        assert message in ticket.failure.message


@pytest.mark.parametrize("what", ["hang", "hold the GIL"])
def test_a_silent_worker_is_killed_after_its_timeout(what: str) -> None:
    with _pool("misbehave", timeout_s=1.5) as pool:
        bad, after = pool.map([_bad(what), _bad("fine")])
    assert after.result == {"what": "fine"}
    assert bad.failure is not None
    assert bad.failure.stage == "timeout"
    assert "no sign of life for 1.5 s" in bad.failure.message
    assert 1.5 <= bad.seconds < 60  # the job itself takes 600


def test_time_in_which_main_does_not_listen_is_not_the_workers_silence() -> None:
    with _pool("count", size=2, timeout_s=2.0) as pool:
        pool.map([{"n": 0}] * 2)  # both workers are up
        tickets = [pool.submit({"n": 1}) for _ in range(2)]
        time.sleep(2.2)
        while not all(t.done for t in tickets):
            pool.wait()
    assert [t.result for t in tickets] == [{"sent": 1}] * 2


def test_a_worker_above_the_memory_cap_is_killed() -> None:
    with _pool("misbehave", memory_bytes=250_000_000, timeout_s=20) as pool:
        small, bad, after = pool.map([_bad("fine"), _bad("eat", bytes=400_000_000), _bad("fine")])
    assert small.result == after.result == {"what": "fine"}
    assert bad.failure is not None
    assert bad.failure.stage == "memory"
    assert "above the cap of 250 MB" in bad.failure.message


def test_errors_with_a_message_for_the_user_become_failures() -> None:
    blame = {"stage": "compile", "ops": ["ConvInteger"], "layers": ["a/b"]}
    cases: list[tuple[str, Json, tuple[str, tuple[str, ...], tuple[str, ...]]]] = [
        ("DeviceError", blame, ("compile", ("ConvInteger",), ("a/b",))),
        ("DeviceError", {}, ("run", (), ())),
        ("PlanError", {}, ("plan", (), ())),
        ("ModelError", {}, ("run", (), ())),
        ("MemoryError", {}, ("memory", (), ())),
    ]
    jobs = [_bad("raise", type=name, message="no\nway", fields=f) for name, f, _ in cases]
    with _pool("misbehave") as pool:
        *bad, after = pool.map([*jobs, _bad("fine")])
    assert after.result == {"what": "fine"}
    for (_, _, expected), ticket in zip(cases, bad, strict=True):
        assert ticket.failure is not None
        assert ticket.failure.message == "no\nway"
        assert (ticket.failure.stage, ticket.failure.ops, ticket.failure.layers) == expected


def test_any_other_exception_is_a_bug_and_is_raised_with_its_traceback() -> None:
    with _pool("misbehave") as pool:
        with pytest.raises(RuntimeError, match=r"(?s)worker_targets\.py.*ZeroDivisionError: oops"):
            pool.map([_bad("raise", type="ZeroDivisionError", message="oops")])
        with pytest.raises(RuntimeError, match=r"object is not JSON serializable"):
            pool.map([_bad("unsendable")])


@pytest.mark.parametrize(
    ("setup", "kind", "message"),
    [
        ({"type": "ModelError", "message": "not ONNX"}, ModelError, r"setting up .*: not ONNX"),
        ({"message": "lost"}, RuntimeError, r"(?s)Traceback.*KeyError: 'lost'"),
        ({"signal": int(signal.SIGSEGV)}, DeviceError, r"worker died with SIGSEGV"),
    ],
)
def test_a_failing_setup_is_raised_once_and_not_tried_again(
    tmp_path: Path, setup: Json, kind: type[Exception], message: str
) -> None:
    tally = tmp_path / "tally"
    with (
        _pool("fails_to_set_up", {**setup, "tally": str(tally)}) as pool,
        pytest.raises(kind, match=message),
    ):
        pool.map([{}, {}])
    assert tally.read_text() == "x"


def test_a_setup_that_takes_too_long_is_an_error() -> None:
    with (
        _pool("hangs_in_setup", setup_timeout_s=1.0) as pool,
        pytest.raises(DeviceError, match=r"setting up .*no sign of life for 1 s"),
    ):
        pool.map([{}])


def test_a_worker_that_died_between_two_jobs_is_replaced() -> None:
    pids = []
    with _pool("echo") as pool:
        for _ in range(3):
            [ticket] = pool.map([{}])
            assert ticket.result is not None
            pids.append(ticket.result["pid"])
            os.kill(pids[-1], signal.SIGKILL)
            assert _soon(lambda: _gone(pids[-1]))
    assert len(set(pids)) == 3


def test_noise_on_stdout_and_stderr_neither_blocks_nor_corrupts() -> None:
    with _pool("misbehave", timeout_s=10) as pool:
        tickets = pool.map([_bad("noise", lines=20_000), _bad("noise", lines=3), _bad("fine")])
    assert [t.result for t in tickets] == [{"what": "noise"}] * 2 + [{"what": "fine"}]


def test_the_last_output_is_short_and_not_those_of_an_earlier_job() -> None:
    with _pool("misbehave") as pool:
        _, bad = pool.map([_bad("noise", lines=500), _bad("exit", code=9)])
        assert bad.failure is not None
        assert bad.failure.message == "worker exited with code 9; no output"


def test_what_a_worker_started_goes_with_it() -> None:
    with _pool("misbehave") as pool:
        child, ended = pool.map([_bad("child"), _bad("exit", code=1)])
        assert ended.failure is not None
        assert _soon(lambda: _gone((child.result or {})["pid"]))
        left = pool.map([_bad("child")])[0].result
    assert _soon(lambda: _gone((left or {})["pid"]))


def test_a_death_is_seen_even_when_a_child_holds_the_channel_open() -> None:
    with _pool("misbehave", timeout_s=30) as pool:
        [ticket] = pool.map([_bad("child, then die")])
    assert ticket.failure is not None
    assert "SIGABRT" in ticket.failure.message
    assert _soon(lambda: _gone(ticket.note["pid"]))


def test_closing_kills_what_is_busy() -> None:
    with _pool("misbehave", size=2) as pool:
        pool.submit(_bad("hang"))
        pool.submit(_bad("fine"))
        pool.wait()
        began = time.monotonic()
    assert time.monotonic() - began < 60  # the job itself takes 600
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(_bad("fine"))


def test_a_ctrl_c_in_the_terminal_is_mains_alone() -> None:
    with _pool("echo") as pool:
        pid = ((pool.map([{}])[0].result) or {})["pid"]
        assert os.getsid(pid) == pid != os.getsid(0)
        assert os.getpgid(pid) == pid


@pytest.mark.parametrize("what", ["hang", "hold the GIL", "child"])
def test_workers_and_their_children_are_gone_soon_after_main_is_killed(what: str) -> None:
    code = (
        "import sys, time, psutil; from seqto.execution.local.pool import Pool\n"
        "pool = Pool('worker_targets:misbehave', {}, size=2)\n"
        f"pool.submit({{'what': 'child'}}); pool.submit({{'what': {what!r}}})\n"
        "pool.wait(); pool.wait(0.3)\n"
        "print(*[p.pid for p in psutil.Process().children(recursive=True)], flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as main:
        assert main.stdout is not None
        pids = [int(word) for word in main.stdout.readline().split()]
        assert len(pids) >= 5, "two workers, two sentries, at least one child"
        main.kill()
    assert _soon(lambda: all(_gone(pid) for pid in pids))


# ------------------------------------------------------------------------------------- launchers


def test_workers_start_through_a_launcher() -> None:
    launcher = ("env", "SEQTO_LAUNCHED_AS=emulated")
    with Pool("worker_targets:environment", {}, launcher=launcher) as pool:
        (ticket,) = pool.map([{"name": "SEQTO_LAUNCHED_AS"}])
    assert ticket.result == {"value": "emulated"}


def test_a_launcher_that_stays_in_between_is_ended_with_its_worker(tmp_path: Path) -> None:
    """A shell that waits for the worker, in place of becoming it."""
    launcher = ("sh", "-c", '"$@"; code=$?; exit $code', "launcher")
    with Pool("worker_targets:echo", {}, launcher=launcher) as pool:
        (ticket,) = pool.map([{"x": 1}])
    assert ticket.result is not None
    assert not psutil.pid_exists(ticket.result["pid"])


def test_a_launcher_that_fails_says_what_it_wrote() -> None:
    launcher = ("sh", "-c", "echo no such board >&2; exit 7")
    with (
        Pool("worker_targets:echo", {}, launcher=launcher) as pool,
        pytest.raises(DeviceError, match="no such board"),
    ):
        pool.map([{}])

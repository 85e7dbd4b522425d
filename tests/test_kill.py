"""kill -9 at many moments, then the same command: the same trials, plans, front and report."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import runs

KILLER = (str(Path(__file__).parent / "killing.py"),)


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text())


def words(config: Path, out: Path, *more: str) -> list[str | Path]:
    return ["tune", "--config", config, "--out", out, "-q", *more]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # a fixed batch of 1: how samples are batched is measured, and would differ between two runs
    return runs.write_config(tmp_path_factory.mktemp("kill"), batch=1)


@pytest.fixture(scope="module")
def whole(config: Path) -> Any:
    """The report of a run that nothing disturbed."""
    out = config.parent / "whole"
    finished = runs.command(
        "0", *words(config, out, "--set", "search.stop_loss=-1"), program=KILLER
    )
    assert finished.returncode == 0, finished.stderr
    return report_of(out)


def assert_same(got: Any, want: Any) -> None:
    assert runs.essence(got) == runs.essence(want)
    assert got["front"] == want["front"]
    assert runs.picks(got) == runs.picks(want)
    assert runs.figures(got) == runs.figures(want)


@pytest.mark.parametrize("every", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 7))])
def test_killed_after_every_few_records_it_ends_as_if_nothing_had_happened(
    config: Path, whole: Any, tmp_path: Path, every: int
) -> None:
    command = words(config, tmp_path / "out", "--set", "search.stop_loss=-1")
    for _ in range(20):
        finished = runs.command(str(every), *command, program=KILLER)
        if finished.returncode == 0:
            break
        assert finished.returncode == -signal.SIGKILL, finished.stderr
    else:
        pytest.fail("it never came to its end")
    assert_same(report_of(tmp_path / "out"), whole)


@pytest.mark.slow
@pytest.mark.parametrize("record", range(1, 24))
def test_killed_after_any_record_it_goes_on(
    config: Path, whole: Any, tmp_path: Path, record: int
) -> None:
    command = words(config, tmp_path / "out", "--set", "search.stop_loss=-1")
    runs.command(str(record), *command, program=KILLER)
    finished = runs.command("0", *command, program=KILLER)
    assert finished.returncode == 0, finished.stderr
    assert_same(report_of(tmp_path / "out"), whole)


@pytest.mark.parametrize(
    "seed", [1, 2, *(pytest.param(s, marks=pytest.mark.slow) for s in range(3, 9))]
)
def test_killed_at_any_moment_it_goes_on_and_leaves_no_process(
    config: Path, whole: Any, tmp_path: Path, seed: int
) -> None:
    """Real signals after random delays: between records, in calibration, in the first imports."""
    rng = random.Random(seed)
    out = tmp_path / "out"
    command = [str(w) for w in words(config, out, "--set", "search.stop_loss=-1")]
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "seqto", *command],
            env=runs.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(rng.uniform(0.3, 3.0))
        children = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _gone, alive = psutil.wait_procs(children, timeout=60)
        assert not alive
    finished = runs.command("0", *command, program=KILLER)
    assert finished.returncode == 0, finished.stderr
    assert_same(report_of(out), whole)


def test_killed_within_a_batch_of_trials_it_keeps_their_numbers(
    config: Path, whole: Any, tmp_path: Path
) -> None:
    """A later trial of a batch may be done first: what is left must not take its number."""
    out = tmp_path / "out"
    command = words(config, out, "--set", "search.stop_loss=-1")
    runs.command("8", *command, program=KILLER)
    journal = out / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    trials = [i for i, line in enumerate(lines) if b'"event":"trial"' in line]
    assert trials, "killed too early to say anything"
    by_number = {t["number"]: t for t in whole["trials"]}
    # as if number 2 of the first batch had been the fastest, and the only one recorded
    donor = list(runs.read_events(config.parent / "whole" / "journal.jsonl"))
    second = next(e for e in donor if e["event"] == "trial" and e["trial"]["number"] == 2)
    head = [line for i, line in enumerate(lines) if i < trials[0]]
    journal.write_bytes(b"".join(head) + json.dumps(second).encode() + b"\n")
    finished = runs.command("0", *command, program=KILLER)
    assert finished.returncode == 0, finished.stderr
    got = report_of(out)
    assert [t["number"] for t in got["trials"]] == sorted(by_number)
    assert_same(got, whole)


def test_a_journal_that_ends_in_a_torn_line_goes_on(
    config: Path, whole: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    command = words(config, out, "--set", "search.stop_loss=-1")
    runs.command("9", *command, program=KILLER)
    journal = out / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    finished = runs.command("0", *command, program=KILLER)
    assert finished.returncode == 0, finished.stderr
    assert_same(report_of(out), whole)


@pytest.mark.slow
@pytest.mark.parametrize("every", [5, 17])
def test_frontier_killed_after_every_few_records_ends_the_same(
    config: Path, tmp_path: Path, every: int
) -> None:
    more = ["--strategy", "frontier", "--max-trials", "14"]
    finished = runs.command(*words(config, tmp_path / "whole", *more))
    assert finished.returncode == 0, finished.stderr
    want = report_of(tmp_path / "whole")
    for _ in range(60):
        finished = runs.command(str(every), *words(config, tmp_path / "out", *more), program=KILLER)
        if finished.returncode == 0:
            break
        assert finished.returncode == -signal.SIGKILL, finished.stderr
    assert_same(report_of(tmp_path / "out"), want)

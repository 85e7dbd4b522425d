"""The same command again: what goes on, what is refused, Ctrl-C."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import nets
import runs
from finished_run import Done, finished_run, seqto


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return finished_run(tmp_path_factory.mktemp("done"))


# ----------------------------------------------------------------------------- again and further


@pytest.mark.usefixtures("inline")
def test_the_same_command_again_runs_nothing(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    before = [e for e in runs.read_events(run / "journal.jsonl") if e["event"] != "end"]
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q")
    assert code == 0
    assert [e for e in runs.read_events(run / "journal.jsonl") if e["event"] != "end"] == before


@pytest.mark.usefixtures("inline")
def test_a_larger_budget_goes_on_with_what_is_there(done: Done, tmp_path: Path) -> None:
    run = tmp_path / "run"
    seqto("tune", "--config", done.config, "--out", run, "-q", "--max-trials", "2")
    few = json.loads((run / "report.json").read_text())
    assert few["counts"]["trials"] == 2
    assert few["status"] == "budget"
    seqto("tune", "--config", done.config, "--out", run, "-q", "--jobs", "1")
    all_of_them = json.loads((run / "report.json").read_text())
    assert all_of_them["status"] == "done"
    assert runs.essence(all_of_them) == runs.essence(done.report)
    recorded = [e for e in runs.read_events(run / "journal.jsonl") if e["event"] == "trial"]
    assert len(recorded) == len(all_of_them["trials"])


@pytest.mark.usefixtures("inline")
def test_max_minutes_ends_in_time_and_still_reports(done: Done, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--max-minutes", "0.0001", "--set", "search.stop_loss=-1"]
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q", *options)
    assert code == 0
    report = json.loads((run / "report.json").read_text())
    assert report["status"] == "budget"
    assert report["counts"]["trials"] < done.report["counts"]["trials"]
    assert report["baseline"]["size_bytes"] > 0


@pytest.mark.parametrize(
    ("option", "named"),
    [
        (["--set", "quantize.weight=u8"], "quantize.weight: 's8' → 'u8'"),
        (["--seed", "9"], "search.seed: 0 → 9"),
        (["--exclude", "/net/Conv_0"], "quantize.exclude"),
        (["--strategy", "frontier"], "search.strategy"),
        (["--set", "data.evaluation=50"], "data.evaluation: 60 → 50"),
    ],
)
def test_changed_settings_are_refused_with_what_changed(
    done: Done, tmp_path: Path, option: list[str], named: str
) -> None:
    run = done.copy(tmp_path)
    before = (run / "journal.jsonl").read_bytes()
    code, _, error = seqto("tune", "--config", done.config, "--out", run, "-q", *option)
    assert code == 2
    assert named in error
    assert "another --out folder" in error
    assert (run / "journal.jsonl").read_bytes() == before


def moved(done: Done, folder: Path) -> Path:
    """Return the inputs in another folder: paths may change, contents may not."""
    shutil.copytree(done.config.parent, folder, ignore=shutil.ignore_patterns("out"))
    return folder / "tune.toml"


def test_a_changed_model_is_refused(done: Done, tmp_path: Path) -> None:
    run, config = done.copy(tmp_path), moved(done, tmp_path / "elsewhere")
    nets.save(nets.residual(seed=5), config.parent / "net.onnx")
    code, _, error = seqto("tune", "--config", config, "--out", run, "-q")
    assert code == 2
    assert "model: sha256" in error


def test_changed_data_are_refused(done: Done, tmp_path: Path) -> None:
    run, config = done.copy(tmp_path), moved(done, tmp_path / "elsewhere")
    nets.save_samples(config.parent / "samples.npz", 110, model=nets.residual(), seed=8)
    code, _, error = seqto("tune", "--config", config, "--out", run, "-q")
    assert code == 2
    assert "data have changed" in error


@pytest.mark.usefixtures("inline")
def test_the_same_inputs_at_another_place_go_on(done: Done, tmp_path: Path) -> None:
    run, config = done.copy(tmp_path), moved(done, tmp_path / "elsewhere")
    code, _, error = seqto("tune", "--config", config, "--out", run, "-q")
    assert (code, error) == (0, "")


def test_a_folder_that_another_process_writes_to_is_refused(done: Done, tmp_path: Path) -> None:
    from seqto.record.journal import Journal

    run = done.copy(tmp_path)
    with Journal.open(run / "journal.jsonl"):
        code, _, error = seqto("tune", "--config", done.config, "--out", run, "-q")
    assert code == 2
    assert "another seqto process" in error


# ------------------------------------------------------------------------------------- Ctrl-C


# Ctrl-C at the moment in which the first trial is printed, however busy the machine is
INTERRUPTED = """
import os, signal, sys
from seqto.cli.main import main

signal.signal(signal.SIGINT, signal.default_int_handler)
write = sys.stdout.write

def write_and_interrupt(text):
    write(text)
    if '"event":"trial"' in text.replace(" ", ""):
        os.kill(os.getpid(), signal.SIGINT)

sys.stdout.write = write_and_interrupt
raise SystemExit(main(sys.argv[1:]))
"""


def test_ctrl_c_ends_with_130_and_a_report_of_what_there_is(done: Done, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["tune", "--config", str(done.config), "--out", str(run), "--json"]
    finished = runs.command(*words, program=("-c", INTERRUPTED))
    assert finished.returncode == 130, finished.stderr
    assert "Traceback" not in finished.stderr
    assert "interrupted" in finished.stderr
    report = json.loads((run / "report.json").read_text())
    assert report["status"] == "interrupted"
    assert report["counts"]["trials"] >= 1
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q")
    assert code == 0
    again = json.loads((run / "report.json").read_text())
    assert again["status"] == "done"
    assert runs.essence(again) == runs.essence(done.report)

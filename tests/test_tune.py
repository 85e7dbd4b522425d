"""Whole runs on a small net: artifacts, export, report, gates."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

import nets
import runs
from finished_run import Done, finished_run, seqto
from seqto.devices import saturation
from seqto.devices.ort import Ort
from seqto.model.files import sha256_of_file


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return finished_run(tmp_path_factory.mktemp("done"))


# ------------------------------------------------------------------------------- what is left


def test_a_run_leaves_all_that_was_promised(done: Done) -> None:
    assert done.code == 0
    for name in ("journal.jsonl", "report.json", "report.html"):
        assert (done.out / name).is_file(), name
    for plot in ("layer_errors.png", "objectives.png", "front.png"):
        assert (done.out / "plots" / plot).stat().st_size > 1000
    assert not (done.out / "cache").exists()
    assert str(done.out) in done.printed.replace("\n", "")


def test_memory_and_time_to_load_of_what_is_recommended_are_measured(done: Done) -> None:
    report = done.report
    chosen = set(report["recommended"].values())
    timed = [t for t in report["trials"] if t["number"] in chosen]
    for latency in [report["baseline"]["latency_ms"], *(t["latency_ms"] for t in timed)]:
        assert latency["peak_memory_bytes"] > 0
        assert latency["load_ms"] > 0
    events = runs.read_events(done.out / "journal.jsonl")
    assert {e["number"] for e in events if e["event"] == "footprint"} == chosen


def test_a_worker_has_tried_whether_int8_products_are_exact(done: Done) -> None:
    assert done.report["int8_products"] == saturation.probe(Ort())
    events = [e["event"] for e in runs.read_events(done.out / "journal.jsonl")]
    assert events.count("int8_products") == 1


def test_stepwise_goes_from_fully_quantized_until_nothing_is_lost(done: Done) -> None:
    trials = done.report["trials"]
    assert trials[0]["note"] == "fully quantized"
    counts = [len(t["excluded"]) for t in trials]
    assert counts == sorted(counts)
    assert trials[0]["loss"]["value"] > 0  # uneven channels under one scale do hurt
    assert min(t["loss"]["value"] for t in trials) == 0.0
    assert all(t["error"] is None for t in trials)


def test_every_candidate_saw_the_same_samples(done: Done) -> None:
    complete = [t for t in done.report["trials"] if not t["stopped_early"]]
    assert {t["loss"]["samples"] for t in complete} == {60}
    assert done.report["data"]["splits"] == {"calibration": 12, "evaluation": 60, "report": 30}


def test_recommended_trials_are_confirmed_on_samples_that_no_search_saw(done: Done) -> None:
    report = done.report
    assert {"balanced", "loss", "size"} <= set(report["recommended"])
    for number in report["recommended"].values():
        trial = next(t for t in report["trials"] if t["number"] == number)
        assert trial["report_split"]["loss"]["samples"] == 30
        assert trial["latency_ms"]["ratio"] > 0
        assert (done.out / "models" / f"trial-{number}.onnx").is_file()


def test_the_saved_models_are_what_was_measured(done: Done) -> None:
    for path in (done.out / "models").glob("*.onnx"):
        number = int(path.stem.removeprefix("trial-"))
        trial = next(t for t in done.report["trials"] if t["number"] == number)
        assert sha256_of_file(path) == trial["sha256"]
        assert path.stat().st_size == trial["size_bytes"]


def test_the_loss_is_what_onnxruntime_gives_for_the_saved_model(done: Done, tmp_path: Path) -> None:
    """From the outside: run float and trial 0 over all samples that evaluation can be from."""
    seqto("export", done.out, "--trial", "0", "-o", tmp_path / "q.onnx")
    x = np.load(done.config.parent / "samples.npz")["x"]
    net, quantized = onnx.load(str(done.config.parent / "net.onnx")), tmp_path / "q.onnx"
    want = np.array([nets.run(net, {"x": row[None]})[0].argmax() for row in x])
    got = np.array([nets.run(quantized.read_bytes(), {"x": row[None]})[0].argmax() for row in x])
    loss = done.report["trials"][0]["loss"]
    assert loss["low"] - 0.1 <= float((want != got).mean()) <= loss["high"] + 0.1


# -------------------------------------------------------------------------- export and report


@pytest.mark.parametrize("choice", [["--trial", "1"], ["--pick", "size"], ["--pick", "loss"], []])
def test_export_rebuilds_a_trial_bit_for_bit(done: Done, choice: list[str], tmp_path: Path) -> None:
    words = ("export", done.out, *choice, "-o", tmp_path / "new" / "m.onnx")
    code, printed, _ = seqto(*words)
    assert code == 0
    number = int(printed.split()[1].rstrip(":"))
    trial = next(t for t in done.report["trials"] if t["number"] == number)
    assert sha256_of_file(tmp_path / "new" / "m.onnx") == trial["sha256"]


def test_export_says_how_many_bytes_are_notes_beyond_the_measured_file(
    done: Done, tmp_path: Path
) -> None:
    code, printed, _ = seqto(
        "export", done.out, "--trial", "1", "--notes", "-o", tmp_path / "m.onnx"
    )
    assert code == 0
    measured = next(t for t in done.report["trials"] if t["number"] == 1)["size_bytes"]
    notes = (tmp_path / "m.onnx").stat().st_size - measured
    assert notes > 0
    assert f"{notes:,} of them are notes" in printed


def test_export_of_what_is_not_there_says_what_is(done: Done, tmp_path: Path) -> None:
    code, _, error = seqto("export", done.out, "--trial", "99", "-o", tmp_path / "m.onnx")
    assert code == 2
    assert "no trial 99" in error
    code, _, error = seqto("export", done.out, "--pick", "beauty", "-o", tmp_path / "m.onnx")
    assert code == 2
    assert "balanced" in error


def test_export_notices_a_changed_run_folder(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    base = run / "variants" / "base" / "model.onnx"
    proto = onnx.load(str(base))
    values = np.frombuffer(proto.graph.initializer[0].raw_data, dtype=np.float32) * 2
    proto.graph.initializer[0].raw_data = values.astype(np.float32).tobytes()
    base.write_bytes(proto.SerializeToString())
    code, _, error = seqto("export", run, "--trial", "0", "-o", tmp_path / "m.onnx")
    assert code == 2
    assert "sha256" in error
    assert not (tmp_path / "m.onnx").exists()


def test_a_report_can_be_made_again_from_the_folder_alone(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    before = json.loads((run / "report.json").read_text())
    for path in (run / "report.json", run / "report.html"):
        path.unlink()
    shutil.rmtree(run / "plots")
    shutil.rmtree(run / "models")
    code, _, _ = seqto("report", run)
    assert code == 0
    assert json.loads((run / "report.json").read_text()) == before
    assert (run / "plots" / "front.png").is_file()
    assert list((run / "models").glob("*.onnx"))


def test_a_report_needs_nothing_but_the_journal(done: Done, tmp_path: Path) -> None:
    """Models need the prepared one; that it is gone is said in one line, and the rest is there."""
    (tmp_path / "run").mkdir()
    run = tmp_path / "run"
    shutil.copy(done.out / "journal.jsonl", run)
    code, printed, error = seqto("report", run)
    assert code == 0, error
    assert json.loads((run / "report.json").read_text()) == done.report
    for name in ("report.html", "front.csv", "plots/front.png"):
        assert (run / name).is_file(), name
    assert error.count("\n") == 1, error
    assert "variants" in error
    assert "recommended" in printed


# --------------------------------------------------------------------------------------- gates


@pytest.mark.usefixtures("inline")
def test_the_gate_opens_when_a_trial_loses_little_enough(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q", "--max-loss", "0.01")
    assert code == 0


@pytest.mark.usefixtures("inline")
def test_the_gate_stays_shut_when_none_does(done: Done, tmp_path: Path) -> None:
    run = tmp_path / "run"
    # without a report split, of whose 30 answers none changes
    options = ["--max-trials", "1", "--max-loss", "0.0", "--set", "data.report=0"]
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q", *options)
    assert code == 3
    assert list((run / "models").glob("*.onnx")), "the best effort is saved all the same"

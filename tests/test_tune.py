"""Whole runs on a small net: artifacts, budgets, gates, refusals, failing candidates."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

import nets
import runs
from seqto import Result, tune
from seqto.assembly.plan import Plan
from seqto.cli.main import main
from seqto.devices import saturation
from seqto.devices.ort import Ort
from seqto.errors import ConfigError, JournalError
from seqto.model.files import sha256_of_file
from seqto.search.strategy import Ask, Need
from seqto.tasks.task import Answers, portable_form
from seqto.transforms.variants import variant_of


def seqto(*words: str | Path) -> tuple[int, str, str]:
    """The command in this process: exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(w) for w in words])
    return code, out.getvalue(), err.getvalue()


@dataclasses.dataclass(frozen=True)
class Done:
    """A finished run that tests look at and copy, but never change."""

    config: Path
    out: Path
    code: int
    printed: str

    def copy(self, folder: Path) -> Path:
        shutil.copytree(self.out, folder / "run")
        return folder / "run"

    @property
    def report(self) -> Any:
        return json.loads((self.out / "report.json").read_text())


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("done")
    # a fixed batch of 1: how samples are batched is measured, and would differ between two runs
    config = runs.write_config(folder, batch=1)
    code, printed, _ = seqto("tune", "--config", config, "--out", folder / "out", "-q")
    return Done(config, folder / "out", code, printed)


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
    code, printed, _ = seqto("export", done.out, *choice, "-o", tmp_path / "new" / "m.onnx")
    assert code == 0
    number = int(printed.split()[1].rstrip(":"))
    trial = next(t for t in done.report["trials"] if t["number"] == number)
    assert sha256_of_file(tmp_path / "new" / "m.onnx") == trial["sha256"]


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
    """The inputs in another folder: paths may change, contents may not."""
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


# --------------------------------------------------------------------------------------- gates


@pytest.mark.usefixtures("inline")
def test_the_gate_opens_when_a_trial_loses_little_enough(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q", "--max-loss", "0.01")
    assert code == 0


@pytest.mark.usefixtures("inline")
def test_the_gate_stays_shut_when_none_does(done: Done, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--max-trials", "1", "--max-loss", "0.0"]
    code, _, _ = seqto("tune", "--config", done.config, "--out", run, "-q", *options)
    assert code == 3
    assert list((run / "models").glob("*.onnx")), "the best effort is saved all the same"


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


# ------------------------------------------------------------------------- candidates that fail

DEVICE = '''
import os
from dataclasses import dataclass
from seqto.devices.ort import Ort
from seqto.errors import DeviceError

@dataclass(frozen=True)
class Shaky:
    """ORT, but quantized models with a Clip abort the process, and some do not load."""
    how: str = "abort"
    name: str = "shaky"

    def open(self, model, *, threads=0):
        if not isinstance(model, bytes):
            model = model.read_bytes()
        quantized = model.count(b"DequantizeLinear")
        if self.how == "abort" and 0 < quantized <= 12:
            os.abort()
        if self.how == "refuse" and 0 < quantized <= 12:
            raise DeviceError("no kernel for it", stage="load", ops=("DequantizeLinear",))
        if self.how == "pads" and b"Pad" in model:
            raise DeviceError("pads are not supported", stage="import", ops=("Pad",))
        return Ort().open(model, threads=threads)

    def refuses(self, layer, scheme):
        return None

    def describe(self):
        return {"kind": "shaky", "name": self.name}
'''


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package with an entry point, as an installed plug-in has it."""
    folder = tmp_path / "site"
    info = folder / "shaky-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shaky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[seqto.devices]\nshaky = shaky_device:Shaky\n")
    (folder / "shaky_device.py").write_text(DEVICE)
    monkeypatch.syspath_prepend(str(folder))
    yield
    sys.modules.pop("shaky_device", None)


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(("how", "stage"), [("abort", "crash"), ("refuse", "load")])
def test_a_candidate_that_fails_is_a_recorded_trial_and_the_run_goes_on(
    done: Done, tmp_path: Path, request: pytest.FixtureRequest, how: str, stage: str
) -> None:
    if how == "refuse":  # an abort ends a process, and must not end this one
        request.getfixturevalue("inline")
    run = tmp_path / "run"
    words = ["tune", "--config", done.config, "--out", run, "-q", "--device", "shaky"]
    words += ["--set", f"device.how={how}", "--set", "search.stop_loss=-1"]
    code, _, said = seqto(*words)
    assert code == 0, said
    report = json.loads((run / "report.json").read_text())
    failed = [t for t in report["trials"] if t["error"]]
    assert failed
    assert {t["error"]["stage"] for t in failed} == {stage}
    assert report["status"] == "done"
    assert len(failed) < len(report["trials"])
    assert not {t["number"] for t in failed} & set(report["front"])
    if how == "abort":
        assert "SIGABRT" in failed[0]["error"]["message"]
    code, _, said = seqto(*words)
    assert code == 0, said
    assert runs.figures(json.loads((run / "report.json").read_text())) == runs.figures(report)


@pytest.mark.usefixtures("plugin", "inline")
def test_a_float_model_that_runs_only_when_prepared_is_no_end(done: Done, tmp_path: Path) -> None:
    model = nets.save(nets.residual(uneven=True, padded=True), tmp_path / "padded.onnx")
    run = tmp_path / "run"
    words = ["tune", "--config", done.config, "--out", run, "-q", "--device", "shaky"]
    words += ["--set", "device.how=pads", "--set", f"model.path={model}", "--max-trials", "2"]
    for _ in range(2):  # the second call replays the first one's finding
        code, _, said = seqto(*words)
        assert code == 0, said
        report = json.loads((run / "report.json").read_text())
        (found,) = [f["message"] for f in report["findings"] if f["kind"] == "float model"]
        assert "pads are not supported" in found
        assert "prepared" in found
        assert [t["error"] for t in report["trials"]] == [None, None]
        assert report["baseline"]["latency_ms"]


def test_an_unknown_device_is_named_with_near_ones(done: Done, tmp_path: Path) -> None:
    words = ["--out", tmp_path / "run", "--device", "shakey"]
    code, _, error = seqto("tune", "--config", done.config, *words)
    assert code == 2
    assert "unknown device 'shakey'" in error


# -------------------------------------------------------------------------------- from Python


@pytest.mark.usefixtures("inline")
def test_tune_returns_what_the_report_says(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    events: list[str] = []
    result = tune(config=done.config, out=run, listener=lambda e: events.append(e.tag))
    assert isinstance(result, Result)
    assert result.report == json.loads((run / "report.json").read_text())
    assert [t.number for t in result.trials] == [t["number"] for t in result.report["trials"]]
    assert set(result.front) == set(result.report["front"])
    assert result.recommended["size"] in result.front
    assert events == ["end"]


@pytest.mark.usefixtures("inline")
def test_the_trials_of_a_result_follow_their_numbers_whichever_was_done_first(
    done: Done, tmp_path: Path
) -> None:
    from seqto.api import write_outputs
    from seqto.record.events import from_json
    from seqto.record.replay import replay

    run = done.copy(tmp_path)
    events = runs.read_events(run / "journal.jsonl")
    trials = [e for e in events if e["event"] == "trial"]
    others = [e for e in events if e["event"] != "trial"]
    shuffled = [others[0], *reversed(trials), *others[1:]]
    result = write_outputs(run, replay(map(from_json, shuffled)))
    assert [t.number for t in result.trials] == sorted(t["trial"]["number"] for t in trials)


@dataclasses.dataclass(frozen=True)
class Sign:
    """A user's own idea of a right answer, in ten lines: the sign of the first score."""

    signal_bytes: ClassVar[int] = 4096
    named: Any = str  # no JSON: the task stays in the main process

    def decode(self, outputs: Any) -> Answers:
        return Answers({"sign": outputs[0][:, 0] > 0})

    def distance(self, reference: Answers, answers: Answers) -> Any:
        return np.where(reference.values["sign"] == answers.values["sign"], 0.0, 1.0)

    def signal(self, outputs: Any) -> Any:
        return outputs[0]

    def scores(self, answers: Answers, labels: Any) -> dict[str, float]:
        return {"accuracy": float(np.mean(answers.values["sign"] == (labels == 1)))}


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("named", [str, "JSON"], ids=["judged in main", "judged in workers"])
def test_own_task_and_any_iterable_of_samples(named: Any, tmp_path: Path) -> None:
    task = Sign(named)
    assert (portable_form(task) is None) == (named is str)
    model = nets.save(nets.residual(uneven=True), tmp_path / "net.onnx")
    x = nets.pictures(70)
    first = nets.run(nets.residual(uneven=True), {"x": x})[0][:, 0]
    result = tune(
        model,
        out=tmp_path / "run",
        data=((row, int(score > 0)) for row, score in zip(x, first, strict=True)),
        task=task,
        data__calibration=10,
        data__evaluation=40,
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        search__max_trials=3,
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert len(result.trials) == 3
    assert result.report["baseline"]["accuracy"] == 1.0
    loss = result.trials[0].loss
    assert loss is not None
    assert loss.samples == 40
    assert result.report["data"]["kind"] == "iterable"


@pytest.mark.usefixtures("inline")
def test_two_inputs_are_fed_by_name(tmp_path: Path) -> None:
    model = nets.save(nets.two_inputs(), tmp_path / "net.onnx")
    rng = np.random.default_rng(0)
    items = [{"a": a, "b": rng.standard_normal(6).astype(np.float32)} for a in nets.pictures(40)]
    result = tune(
        model,
        out=tmp_path / "run",
        data=items,
        data__calibration=8,
        data__evaluation=20,
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        search__max_trials=2,
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert [t.error for t in result.trials] == [None, None]
    assert result.report["baseline"]["accuracy"] is None


@pytest.mark.usefixtures("inline")
def test_dynamic_mode_and_random_data(tmp_path: Path) -> None:
    """Data-free, and marked so."""
    model = nets.save(nets.dense(), tmp_path / "net.onnx")
    result = tune(
        model,
        out=tmp_path / "run",
        data__random=40,
        data__calibration=10,
        data__evaluation=20,
        quantize__mode="dynamic",
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        analysis__diagnose=False,
        device__latency_s=0.01,
    )
    assert result.report["data"]["kind"] == "random"
    assert any("random" in w for w in result.report["warnings"])
    assert str(result.trials[0].plan.scheme_of("/net/Gemm_3")).startswith("dynamic")


def test_what_is_wrong_is_raised_not_printed(tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ConfigError, match="no model is given"):
        tune(out=tmp_path)
    with pytest.raises(ConfigError, match=r"search\.strateggy"):
        tune("x.onnx", out=tmp_path, search__strateggy="stepwise")
    assert capsys.readouterr() == ("", "")


def test_a_folder_that_is_no_run_folder_is_refused(done: Done, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text('{"event":"trial"}\n')
    with pytest.raises(JournalError, match="no run of seqto"):
        tune(config=done.config, out=tmp_path)


@pytest.mark.usefixtures("inline")
def test_what_is_chosen_for_its_time_has_been_timed_twice(tmp_path: Path) -> None:
    """And the treatment that nobody chose is not rounded for the output: that takes long."""
    path = runs.write_config(tmp_path)
    result = tune(
        config=path,
        out=tmp_path / "run",
        search__strategy="frontier",
        search__objectives=["loss", "size", "latency"],
        search__max_trials=14,
    )
    events = runs.read_events(tmp_path / "run" / "journal.jsonl")
    timed = Counter(e["number"] for e in events if e["event"] == "latency")
    assert result.recommended
    assert all(timed[number] >= 2 for number in result.recommended.values())
    pooled = {t.number: t.latency.runs for t in result.trials if t.latency}
    assert all(pooled[n] >= 20 for n in result.recommended.values())  # both timings are in it
    treatments = {t.plan.transforms for t in result.trials if t.plan.rounds_for_output}
    made = {p.parent.name for p in (tmp_path / "run" / "variants").glob("*/rounded.json")}
    assert made == {"base", *(variant_of(t) for t in treatments)}


@dataclasses.dataclass
class TimedPair:
    """Asks for two plans with their times, and remembers what it was told."""

    seen: list[float] = dataclasses.field(default_factory=list)
    needs = frozenset[Need]()

    def search(self, space: Any, *, seed: int) -> Any:
        names = [x.name for x in space.layers if x.weight]
        plans = tuple(Plan.of({n: "fp16"}) for n in names[:2])
        trials = yield Ask(plans, latency=True)
        self.seen += [t.latency.ratio for t in trials]


@pytest.mark.usefixtures("inline")
def test_a_resumed_search_is_told_the_times_of_the_first_one(tmp_path: Path) -> None:
    """The chosen are timed again at the end; on replay that would send the search another way."""
    path = runs.write_config(tmp_path)
    asked: dict[str, Any] = {"search__objectives": ["loss", "size", "latency"]}
    first, again = TimedPair(), TimedPair()
    for strategy in (first, again):
        tune(config=path, out=tmp_path / "run", strategy=strategy, **asked)
    assert len(first.seen) == 2
    assert again.seen == first.seen
    events = runs.read_events(tmp_path / "run" / "journal.jsonl")
    assert len([e for e in events if e["event"] == "latency"]) > 2

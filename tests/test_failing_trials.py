"""Candidates that crash or are refused are recorded trials; the run goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nets
import runs
from finished_run import Done, finished_run, seqto


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return finished_run(tmp_path_factory.mktemp("done"))


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

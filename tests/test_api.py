"""The public functions, one per command: what they return and what they write."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import onnx
import pytest

import nets
import runs
import seqto
from seqto import api
from seqto.errors import ConfigError

pytestmark = pytest.mark.usefixtures("inline")


def test_a_run_is_exported_compared_and_reported(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path / "in"), tmp_path / "run"
    result = seqto.tune(config=config, out=run, search__max_trials=2)
    saved = seqto.export(run, tmp_path / "q.onnx", pick="balanced")
    content = (tmp_path / "q.onnx").read_bytes()
    assert saved.trial == result.recommended["balanced"]
    assert (saved.size_bytes, saved.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert seqto.export(run, tmp_path / "q1.onnx", trial=1).trial == 1
    assert seqto.compare(run, run)["worse"] == []
    assert api.read_report(run) == json.loads((run / "report.json").read_text())
    (run / "report.json").unlink()
    assert api.write_report(run).recommended == result.recommended
    assert (run / "report.json").is_file()


def test_exported_nodes_say_how_their_layer_is_kept(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path / "in"), tmp_path / "run"
    result = seqto.tune(config=config, out=run, search__max_trials=2)
    seqto.export(run, tmp_path / "noted.onnx", trial=1, notes=True)
    exact = seqto.export(run, tmp_path / "exact.onnx", trial=1)
    assert exact.sha256 == result.trials[1].sha256
    noted, bare = (onnx.load(tmp_path / f"{n}.onnx") for n in ("noted", "exact"))
    schemes = {name: scheme.code for name, scheme in result.trials[1].plan.schemes}
    notes = {
        node.name: entry.value
        for node in noted.graph.node
        for entry in node.metadata_props
        if entry.key == "seqto.scheme"
    }
    want = {n: schemes.get(la.name, "fp32") for la in result.layers for n in la.nodes}
    there = {node.name for node in bare.graph.node}
    assert notes == {name: code for name, code in want.items() if name in there}
    assert len(set(notes.values())) > 1
    for node in noted.graph.node:
        del node.metadata_props[:]
    assert noted == bare  # nothing else is another
    onnx.checker.check_model(noted)


def test_a_trial_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path / "in"), tmp_path / "run"
    seqto.tune(config=config, out=run, search__max_trials=1)
    with pytest.raises(ConfigError, match="no trial 7"):
        seqto.export(run, tmp_path / "q.onnx", trial=7)
    assert not (tmp_path / "q.onnx").exists()


def test_a_model_is_analyzed_and_diagnosed_in_a_folder_that_is_no_run(tmp_path: Path) -> None:
    config, out = runs.write_config(tmp_path / "in"), tmp_path / "out"
    report = seqto.analyze(config=config, out=out)
    assert json.loads((out / "analysis.json").read_text())["model"] == report["model"]
    findings = seqto.diagnose(config=config, out=out)
    assert json.loads((out / "diagnosis.json").read_text())["findings"] == findings
    assert not (out / "journal.jsonl").exists()


def test_a_model_is_quantized_without_data_where_nothing_is_calibrated(tmp_path: Path) -> None:
    model = nets.save(nets.residual(uneven=True), tmp_path / "net.onnx")
    saved = seqto.quantize(model, tmp_path / "q.onnx", quantize__mode="weight")
    assert saved.trial is None
    assert saved.layers > 0
    assert saved.size_bytes == (tmp_path / "q.onnx").stat().st_size
    with pytest.raises(ConfigError, match="samples to calibrate on"):
        seqto.quantize(model, tmp_path / "s.onnx")


def test_several_models_for_one_call_are_refused_with_the_command_that_takes_them(
    tmp_path: Path,
) -> None:
    for name in ("a", "b"):
        nets.save(nets.residual(uneven=True), tmp_path / f"{name}.onnx")
    with pytest.raises(ConfigError, match="tune_models, which takes several"):
        seqto.tune(tmp_path, out=tmp_path / "run", data__random=9)


def test_a_folder_that_is_no_run_has_no_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no run folder"):
        api.read_report(tmp_path)

"""`seqto check` without a run, `seqto apply` on another checkpoint, goals of a whole run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import runs
import seqto
from seqto import api
from seqto.cli.main import main
from seqto.errors import ConfigError, ModelError

pytestmark = pytest.mark.usefixtures("inline")


def retrained(source: Path, target: Path) -> Path:
    """Return the same graph with weights that moved by a hundredth of their spread."""
    model = onnx.load(source)
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim > 1:
            moved = values + 0.01 * values.std() * rng.standard_normal(values.shape)
            tensor.CopyFrom(onnx.numpy_helper.from_array(moved.astype(np.float32), tensor.name))
    onnx.save(model, target)
    return target


def test_a_file_is_measured_beside_its_float_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = runs.write_config(tmp_path)
    float_model = str(tmp_path / "net.onnx")
    small = tmp_path / "q.onnx"
    seqto.quantize(float_model, small, quantize__mode="weight")
    found = seqto.check(small, against=float_model, config=config)
    assert found.measurement.loss.samples == 110  # all there are
    assert found.size_bytes == small.stat().st_size
    assert found.latency.float_median is not None
    words = ["check", str(small), "--against", float_model, "--config", str(config)]
    assert main([*words, "--json", "--max-size", "1B"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["missed"] == [{"setting": "max_size", "value": found.size_bytes, "limit": 1.0}]
    assert main([*words, "--within", "100%"]) == 0
    assert "in the same rounds" in capsys.readouterr().out


def test_the_float_model_is_as_good_as_itself(tmp_path: Path) -> None:
    config = runs.write_config(tmp_path)
    same = seqto.check(tmp_path / "net.onnx", against=tmp_path / "net.onnx", config=config)
    assert same.measurement.loss.value == 0


def test_files_with_other_inputs_are_not_compared(tmp_path: Path) -> None:
    config = runs.write_config(tmp_path)
    model = onnx.load(tmp_path / "net.onnx")
    model.graph.output[0].name = "other"
    for node in model.graph.node:
        node.output[:] = ["other" if name == "y" else name for name in node.output]
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ConfigError, match="not two forms of one model"):
        seqto.check(tmp_path / "other.onnx", against=tmp_path / "net.onnx", config=config)


@pytest.mark.parametrize("declared", [True, False])
def test_files_whose_outputs_have_other_sizes_are_not_compared(
    tmp_path: Path, declared: bool
) -> None:
    config = runs.write_config(tmp_path)
    model = onnx.load(tmp_path / "net.onnx")
    (gemm,) = [n for n in model.graph.node if n.op_type == "Gemm"]
    constants = {t.name: t for t in model.graph.initializer}
    transposed = any(a.name == "transB" and a.i for a in gemm.attribute)
    for name, axis in ((gemm.input[1], 0 if transposed else 1), (gemm.input[2], 0)):
        fewer = np.delete(onnx.numpy_helper.to_array(constants[name]), 0, axis=axis)
        constants[name].CopyFrom(onnx.numpy_helper.from_array(fewer, name))
    shape = model.graph.output[0].type.tensor_type.shape
    shape.dim[1].dim_value -= 1
    if not declared:
        shape.dim[1].dim_param = "classes"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ConfigError, match="two forms of one model"):
        seqto.check(tmp_path / "other.onnx", against=tmp_path / "net.onnx", config=config)


def test_a_runs_plan_is_put_on_another_checkpoint(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path / "in"), tmp_path / "run"
    result = seqto.tune(config=config, out=run, search__max_trials=3)
    new = retrained(tmp_path / "in" / "net.onnx", tmp_path / "new.onnx")
    done = seqto.apply(run, new, tmp_path / "q.onnx", trial=1)
    assert done.saved.trial == 1
    assert (tmp_path / "q.onnx").stat().st_size == done.saved.size_bytes
    assert done.trial["plan"] == result.report["trials"][1]["plan"]
    assert done.trial["report_split"]["loss"] is not None  # measured on samples, held-out ones too
    # the weights are the new model's
    names = {t.name for t in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert names
    old = tmp_path / "old.onnx"
    seqto.export(run, old, trial=1)
    assert old.read_bytes() != (tmp_path / "q.onnx").read_bytes()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("seqto-")] == []


def test_another_graph_is_refused_with_what_differs(tmp_path: Path) -> None:
    config, run = runs.write_config(tmp_path / "in"), tmp_path / "run"
    seqto.tune(config=config, out=run, search__max_trials=1)
    model = onnx.load(tmp_path / "in" / "net.onnx")
    model.graph.node[0].name = "renamed"
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ModelError, match="it lacks layer '/net/Conv_0'"):
        seqto.apply(run, tmp_path / "other.onnx", tmp_path / "q.onnx")
    assert not (tmp_path / "q.onnx").exists()


def test_a_goal_that_is_met_comes_first_and_one_that_is_not_exits_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = runs.write_config(tmp_path / "in"), tmp_path / "run"
    words = ["tune", "--config", str(config), "--out", str(run), "--quiet", "--max-trials", "3"]
    assert main([*words, "--want", "smallest", "--within", "100%"]) == 0
    assert "Your goal is met: the smallest file" in " ".join(capsys.readouterr().out.split())
    report = json.loads((run / "report.json").read_text())
    assert report["goal"]["trial"] == report["picks"][0]["trial"] == report["recommended"]["goal"]
    assert seqto.export(run, tmp_path / "q.onnx").trial == report["goal"]["trial"]
    assert main([*words, "--max-size", "100B"]) == 3  # resumed with another goal
    said = " ".join(capsys.readouterr().err.split())
    assert "No trial meets your goal" in said
    assert "Nearest is trial" in said
    assert "instead of at most 0.1 kB" in said


def test_a_config_to_begin_with_can_be_tuned_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.write_config(tmp_path)
    words = ["init", str(tmp_path / "net.onnx"), "-o", str(tmp_path / "new.toml")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "7 layers, 4 with weights" in said
    text = (tmp_path / "new.toml").read_text()
    assert 'kind = "classification"' in text
    assert "# input" in text
    assert main(["tune", "--config", str(tmp_path / "new.toml"), "--out", "x", "--dry-run"]) == 0
    assert main(words) == 2  # what is there is left as it is
    assert "left as it is" in capsys.readouterr().err
    assert (tmp_path / "new.toml").read_text() == text
    (tmp_path / "link.toml").symlink_to("nowhere")
    assert main([*words[:2], "-o", str(tmp_path / "link.toml")]) == 2
    assert (tmp_path / "link.toml").is_symlink()


def test_a_config_for_given_data_names_them(tmp_path: Path) -> None:
    runs.write_config(tmp_path)
    described = api.init(
        tmp_path / "net.onnx", tmp_path / "own.toml", data=("arrays", str(tmp_path / "samples.npz"))
    )
    assert described.samples["there"] == 110

"""Models and data of odd shapes and names: they run, or are refused in one line."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from seqto.cli.main import main

FEW = {"calibration": 4, "evaluation": 8, "report": 8}
SHORT = [
    *("--strategy", "stepwise", "--max-trials", "1", "--jobs", "1", "--quiet"),
    *("--objectives", "loss", "size", "--set", "analysis.diagnose=false"),
    *(word for name, count in FEW.items() for word in ("--set", f"data.{name}={count}")),
]

pytestmark = pytest.mark.usefixtures("inline")


def save(
    path: Path,
    *,
    channels: int = 4,
    classes: int = 5,
    batch: int | str = "N",
    side: int = 8,
    output: str = "y",
) -> Path:
    """x (batch×3×side×side) ─ Conv ─ GlobalAveragePool ─ Flatten ─ Gemm ─ y (batch×classes)."""
    rng = np.random.default_rng(0)
    shapes = {"cw": (channels, 3, 3, 3), "gw": (channels, classes)}
    weights = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "cw"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["p"], "pool"),
        helper.make_node("Flatten", ["p"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "gw"], ["y"], "gemm"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 3, side, side])
    shape = [batch, classes] if output == "y" else shapes[output]
    graph = helper.make_graph(
        nodes,
        "odd",
        [given],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    return path


def tune(model: Path, data: str | Path, *more: str) -> int:
    words = ["tune", str(model), "--data", str(data), "--out", str(model.parent / "run")]
    return main([*words, *SHORT, *more])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"classes": 0}, "'y' has no values"),
        ({"channels": 0}, "does not run on the first samples"),
        ({"output": "gw"}, "'gw' depends on no layer with weights"),
        ({"side": 2**62}, "more than this machine's memory holds"),
    ],
)
def test_a_model_that_cannot_be_tuned_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: dict[str, int], message: str
) -> None:
    model = save(tmp_path / "odd.onnx", **shape)  # type: ignore[arg-type]
    assert tune(model, "random:24") == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize("strategy", ["stepwise", "frontier"])
def test_a_search_in_which_every_layer_is_excluded_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strategy: str, more: tuple[str, ...]
) -> None:
    """The output, which stands among the layers, is no layer that could be quantized alone."""
    model = save(tmp_path / "m.onnx")
    words = ("--exclude", "conv", "pool", "flat", "gemm", "--strategy", strategy, *more)
    assert tune(model, "random:24", *words) == 2
    assert "every layer is excluded" in capsys.readouterr().err


def test_fewer_calibration_samples_than_the_fixed_batch_are_enough(tmp_path: Path) -> None:
    assert tune(save(tmp_path / "fixed.onnx", batch=8), "random:24") == 0


def test_a_link_to_nowhere_is_not_suggested_as_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").symlink_to("gone.onnx")
    assert tune(tmp_path / "m.onnx", "random:24") == 2
    printed = capsys.readouterr().err
    assert "is a link to 'gone.onnx', which does not exist" in printed
    assert "did you mean" not in printed


def test_labels_beside_random_data_are_not_dropped_in_silence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(save(tmp_path / "m.onnx"), "random:24", "--labels", "/nope.csv") == 2
    assert "data.labels is set, but not taken by data source 'random'" in capsys.readouterr().err


def test_pictures_whose_names_are_not_utf8_are_used_and_reported(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for number in range(24):
        pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        name = tmp_path / "pictures" / os.fsdecode(b"caf\xe9-%d.png" % number)
        try:
            Image.fromarray(pixels).save(name)
        except OSError:
            pytest.skip("this file system takes UTF-8 names only")
    model = save(tmp_path / "m.onnx")
    assert tune(model, tmp_path / "pictures", "--preset", "raw") == 0
    assert main(["report", str(tmp_path / "run")]) == 0

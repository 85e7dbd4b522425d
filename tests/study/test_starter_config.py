"""`seqto init` with a folder of pictures: its config fits the model's input as it is."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import nets
import picture_nets
from net_builder import Net
from picture_files import write_pictures
from seqto import api

pytestmark = pytest.mark.usefixtures("inline")


def level_detector() -> Any:
    """Return raw heads of strides 8 and 16 on 32 × 64: two boxes a cell."""
    net = Net(seed=21)
    x = net.add("Relu", [net.conv("x", (3, 8), strides=[2, 2])])
    x = net.add("Relu", [net.conv(x, (8, 8), strides=[2, 2])])
    outputs = {}
    for stride, cells in ((8, 32), (16, 8)):
        x = net.add("Relu", [net.conv(x, (8, 8), strides=[2, 2])])
        for name, width in (("score", 1), ("bbox", 4)):
            head = net.conv(x, (8, 2 * width), kernel=1, scale=4.0)
            moved = net.add("Transpose", [head], perm=[0, 2, 3, 1])
            shape = net.constant(np.array([0, 2 * cells, width], np.int64))
            last = net.add("Reshape", [moved, shape])
            kind = "Sigmoid" if name == "score" else "Relu"
            net.add(kind, [last], output=f"{name}_{stride}")
            outputs[f"{name}_{stride}"] = [1, 2 * cells, width]
    return net.model({"x": [1, 3, 32, 64]}, outputs)


def nhwc_bytes() -> Any:
    """Return a net of whole numbers of 0 to 255, channels last, any height and width."""
    net = Net(seed=22)
    net.add("Cast", ["x"], output="f", to=onnx.TensorProto.FLOAT)
    x = net.conv(net.add("Transpose", ["f"], perm=[0, 3, 1, 2]), (3, 8), scale=0.01)
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    net.add("Identity", [net.gemm(x, (8, 5))], output="y")
    model = net.model({"x": ["N", "H", "W", 3]}, {"y": ["N", 5]})
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    return model


def open_yolo() -> Any:
    """Return a detector of any size, as its exporter notes it."""
    model = picture_nets.detector()
    for value in (model.graph.input[0], model.graph.output[0]):
        for side in value.type.tensor_type.shape.dim[2:]:
            side.dim_param = "any"
    for key, text in (("task", "detect"), ("imgsz", "[32, 32]")):
        model.metadata_props.add(key=key, value=text)
    return model


@pytest.mark.parametrize(
    ("model", "wanted"),
    [
        (picture_nets.detector(), {"letterbox": 32, "std": [255.0]}),
        (level_detector(), {"letterbox": [32, 64], "mean": [127.5]}),
        (open_yolo(), {"letterbox": 32}),
        (picture_nets.segmenter(), {"stretch": 32}),
        (nets.residual(), {"stretch": nets.SIDE}),
        (nhwc_bytes(), {"layout": "NHWC", "crop": 224}),
    ],
    ids=["detector", "levels", "open size", "segmenter", "classifier", "channels last"],
)
def test_a_config_for_a_folder_of_pictures_fits_the_models_input(
    model: Any, wanted: dict[str, Any], tmp_path: Path
) -> None:
    """What `init` writes is tuned as it is: pictures of any size become the input's."""
    nets.save(model, tmp_path / "net.onnx")
    write_pictures(tmp_path / "pictures", 12)
    described = api.init(
        tmp_path / "net.onnx", tmp_path / "own.toml", data=("images", str(tmp_path / "pictures"))
    )
    assert described.samples["there"] == 12
    assert described.all_outputs == (len(model.graph.output) > 1)
    assert ("judged outputs: all" in str(described)) == described.all_outputs
    table = tomllib.loads((tmp_path / "own.toml").read_text())["data"]["preprocess"]
    assert {key: table[key] for key in wanted} == wanted


def test_an_exporters_task_is_said_by_init_too(tmp_path: Path) -> None:
    nets.save(open_yolo(), tmp_path / "net.onnx")
    write_pictures(tmp_path / "pictures", 12)
    data = ("images", str(tmp_path / "pictures"))
    api.init(tmp_path / "net.onnx", tmp_path / "own.toml", data=data)
    assert tomllib.loads((tmp_path / "own.toml").read_text())["task"]["kind"] == "detection"

"""Kernels that add u8 × s8 products in 16 bits: what is measured, diagnosed and recommended there.

`scripts/test-avx2` runs the tests marked avx2 with such kernels on any x86-64 Linux machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nets
import runs
from net_builder import Net
from seqto import tune
from seqto.data.splits import split_rows
from seqto.devices import saturation
from seqto.devices.ort import Ort

pytestmark = pytest.mark.avx2

PRODUCTS = saturation.probe(Ort())
saturating = pytest.mark.skipif(
    PRODUCTS["result"] != saturation.SATURATES,
    reason="int8 products are exact here; scripts/test-avx2 runs this test",
)
ROWS, CALIBRATION, EVALUATION = 300, 40, 200
MEAN = 0.75  # of a sample's values
INTEGERS = ("static-s8-u8-channel-bias-float", "static-p8-u8-channel-bias-float")


def test_the_probe_agrees_with_a_plain_sum_of_products() -> None:
    """MatMulInteger hands out the sum itself, without scales."""
    info = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.full((64, 32), 127, np.int8), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "sum",
        [info("x", TensorProto.UINT8, [8, 64])],
        [info("y", TensorProto.INT32, [8, 32])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (found,) = nets.run(model, {"x": np.full((8, 64), 255, np.uint8)})
    exact = bool((found == 64 * 255 * 127).all())
    assert PRODUCTS["operators"]["MatMul"] == ("exact" if exact else "saturates")


@pytest.mark.skipif("SEQTO_MUST_SATURATE" not in os.environ, reason="set by scripts/test-avx2")
def test_this_run_has_the_kernels_that_it_is_for() -> None:
    assert PRODUCTS["operators"] == {"MatMul": "saturates", "Conv": "saturates"}


def hot_net() -> onnx.ModelProto:
    """Return weights of one sign behind positive inputs: each pair of products is above 2¹⁵."""
    net = Net()
    rng = np.random.default_rng(3)
    hot = (rng.choice([0.5, 1.0], (16, 16, 1, 1)) * rng.uniform(0.95, 1.0)).astype(np.float32)
    x = net.add("Conv", ["x", net.constant(hot), net.constant(np.zeros(16, np.float32))])
    x = net.add("Relu", [x])
    x = net.add("GlobalAveragePool", [x])
    x = net.add("Flatten", [x])
    # classes that see differences between channels only, around what a mean sample gives
    classes = rng.standard_normal((16, 10)).astype(np.float32)
    classes -= classes.mean(axis=0)
    bias = -(hot[:, :, 0, 0] @ np.full(16, MEAN, np.float32)) @ classes
    net.add("Gemm", [x, net.constant(classes), net.constant(bias)], output="y")
    return net.model({"x": ["N", 16, 6, 6]}, {"y": ["N", 10]})


def samples() -> Any:
    rng = np.random.default_rng(4)
    strength = rng.choice([0.5, 1.0], (ROWS, 16, 1, 1)) * rng.uniform(0.95, 1.0, (ROWS, 16, 1, 1))
    return np.broadcast_to(strength, (ROWS, 16, 6, 6)).astype(np.float32)


def loss(model: Any, x: Any, *, exact: bool = False) -> float:
    want = nets.run(hot_net(), {"x": x})[0].argmax(axis=1)
    got = nets.run(model, {"x": x}, exact=exact)[0].argmax(axis=1)
    return float((want != got).mean())


@saturating
@pytest.mark.slow
def test_the_recommended_model_is_right_on_these_kernels(tmp_path: Path) -> None:
    model = nets.save(hot_net(), tmp_path / "net.onnx")
    x = samples()
    np.savez(tmp_path / "x.npz", x=x)
    result = tune(
        model,
        out=tmp_path / "run",
        data=tmp_path / "x.npz",
        data__calibration=CALIBRATION,
        data__evaluation=EVALUATION,
        quantize__per_channel=True,
        quantize__activation="u8",
        search__strategy="frontier",
        search__objectives=["loss", "size"],
        search__max_trials=12,
        search__tolerance=0.05,
        search__menu=[*INTEGERS, "static-u8"],
        device__latency_s=0.01,
    )
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["int8_products"]["result"] == "saturates"  # found by a worker
    rows = split_rows(ROWS, calibration=CALIBRATION, evaluation=EVALUATION, report=None, seed=0)
    number = result.recommended["small"]
    trial = next(t for t in report["trials"] if t["number"] == number)
    assert "static-p8" in str(trial["plan"])
    chosen = (tmp_path / "run" / "models" / f"trial-{number}.onnx").read_bytes()
    assert trial["loss"]["value"] == loss(chosen, x[rows["evaluation"]])
    plain = tmp_path / "plain.onnx"
    words = ["export", model, "--data", tmp_path / "x.npz", "-o", plain]
    words += ["--set", "quantize.per_channel=true", "--set", "quantize.activation=u8"]
    done = runs.command(*words)
    assert done.returncode == 0, done.stderr
    unseen = x[rows["report"]]
    assert loss(plain.read_bytes(), unseen, exact=True) < 0.1
    assert loss(plain.read_bytes(), unseen) > 0.3
    assert loss(chosen, unseen) < 0.1
    named = [f for f in report["findings"] if f["figures"].get("cause") == "saturation"]
    assert named[0]["figures"]["int8_products"] == "saturates"

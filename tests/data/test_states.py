"""Inputs without an axis of samples: constants, and states that an output feeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import endless_nets
import nets
import seqto
from net_builder import Net
from seqto.data.arrays import Arrays
from seqto.data.states import WithStates
from seqto.errors import ConfigError, ModelError
from seqto.model.inputs import input_specs

pytestmark = pytest.mark.usefixtures("inline")


def recurrent(*, batch: Any = 1, rate: bool = True) -> Any:
    """x (1 × 6) and state (2 × 1 × 6) → y (1 × 4) and the next state; rate scales x.

    x ─ MatMul ─ + ─ Tanh ─ h ─ MatMul ─ y
    state[0] ── MatMul ┘    └ next = [h, state[0]]
    """
    net = Net(seed=31)
    x = net.add("Mul", ["x", net.add("Cast", ["rate"], to=1)]) if rate else "x"
    first = net.constant(np.array(0, np.int64))
    old = net.add("Gather", ["state", first], axis=0)
    both = [net.add("MatMul", [x, net.weight(6, 6)]), net.add("MatMul", [old, net.weight(6, 6)])]
    h = net.add("Tanh", [net.add("Add", both)])
    axes = net.constant(np.array([0], np.int64))
    rows = [net.add("Unsqueeze", [value, axes]) for value in (h, old)]
    net.add("Concat", rows, axis=0, output="next")
    net.add("MatMul", [h, net.weight(6, 4)], output="y")
    inputs = {"x": [batch, 6], "state": [2, batch, 6]} | ({"rate": []} if rate else {})
    model = net.model(inputs, {"y": [batch, 4], "next": [2, batch, 6]})
    for value in model.graph.input:
        if value.name == "rate":
            value.type.tensor_type.elem_type = onnx.TensorProto.INT64
            value.type.tensor_type.shape.SetInParent()
    return model


def save(folder: Path, model: Any, **more: Any) -> Path:
    nets.save(model, folder / "net.onnx")
    rng = np.random.default_rng(1)
    np.savez(folder / "samples.npz", x=rng.standard_normal((40, 6)).astype(np.float32), **more)
    return folder / "net.onnx"


FEW = {
    "data__calibration": 8,
    "data__evaluation": 16,
    "data__report": 16,
    "analysis__samples": 2,
    "search__strategy": "stepwise",
    "search__objectives": ["loss", "size"],
    "search__max_trials": 3,
    "search__jobs": 1,
}


@pytest.mark.parametrize("batch", [1, "n"])
def test_a_state_has_no_axis_of_samples(batch: Any) -> None:
    specs = {s.name: s for s in input_specs(recurrent(batch=batch))}
    assert specs["x"].shape == (1, 6)
    assert not specs["x"].whole
    assert specs["state"].shape == (1, 2, None if batch == "n" else 1, 6)
    assert specs["state"].whole
    assert specs["rate"].shape == (1,)
    assert specs["rate"].whole


def test_a_run_with_states_that_an_output_feeds(tmp_path: Path) -> None:
    path = save(tmp_path, recurrent())
    result = seqto.tune(
        path,
        out=tmp_path / "run",
        data__arrays=str(tmp_path / "samples.npz"),
        data__constants={"rate": 2},
        data__states={"state": "next"},
        **FEW,
    )
    report = result.report
    assert report["counts"]["failed"] == 0
    assert report["trials"][0]["loss"]["samples"] == 16
    said = " ".join(f["message"] for f in report["findings"])
    assert "Inputs that samples do not bring: rate = 2, state = next" in said


def test_states_of_a_model_that_never_ends_are_not_waited_for(tmp_path: Path) -> None:
    model = recurrent(rate=False)
    (last,) = [n for n in model.graph.node if "y" in n.output]
    last.output[0] = "before"
    model.graph.node.append(endless_nets.endless_loop("before", "y"))
    model.graph.initializer.extend(endless_nets.endless_constants())
    path = save(tmp_path, model)
    with pytest.raises(ModelError, match=r"net.onnx does not answer within 2 s on one sample"):
        seqto.tune(
            path,
            out=tmp_path / "run",
            data__arrays=str(tmp_path / "samples.npz"),
            data__states={"state": "next"},
            device__timeout_s=2,
            **FEW,
        )


def test_zeros_stand_for_a_state_that_nobody_gives(tmp_path: Path) -> None:
    path = save(tmp_path, recurrent(rate=False))
    result = seqto.tune(
        path, out=tmp_path / "run", data__arrays=str(tmp_path / "samples.npz"), **FEW
    )
    said = " ".join(f["message"] for f in result.report["findings"])
    assert "state = 0" in said


def test_states_follow_the_order_of_the_data(tmp_path: Path) -> None:
    path = save(tmp_path, recurrent())
    specs = input_specs(onnx.load(path))
    source = Arrays(tmp_path / "samples.npz")
    data = WithStates(source, specs, path, {"rate": 2}, {"state": "next"})
    state = np.zeros((2, 1, 6), np.float32)
    rows = np.load(tmp_path / "samples.npz")["x"]
    late = data.read(5).inputs["state"]  # read first: the stream is run up to it
    for index in range(6):
        np.testing.assert_array_equal(data.read(index).inputs["state"], state)
        feeds = {"x": rows[index : index + 1], "state": state, "rate": np.array(2)}
        _, state = nets.run(onnx.load(path), feeds)
    np.testing.assert_array_equal(data.read(5).inputs["state"], late)
    assert np.abs(late).max() > 0


def test_samples_that_bring_their_states_win(tmp_path: Path) -> None:
    own = np.full((40, 2, 1, 6), 0.5, np.float32)
    path = save(tmp_path, recurrent(rate=False), state=own)
    specs = input_specs(onnx.load(path))
    data = WithStates(Arrays(tmp_path / "samples.npz"), specs, path)
    np.testing.assert_array_equal(data.read(3).inputs["state"], own[3])
    assert data.identity()["fed"] == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"input 'rate' is a single number .* \[data\.constants\] rate = …"),
        ({"data.constants": {"rat": 1}}, r"no input of the model; did you mean 'rate'"),
        ({"data.constants": {"rate": [1, 2]}}, r"data\.constants\.rate = \[1, 2\] does not fit"),
        (
            {"data.constants": {"rate": 1}, "data.states": {"state": "nxt"}},
            r"the output 'nxt', which the model does not have; did you mean 'next'",
        ),
    ],
)
def test_what_does_not_fit_is_said(settings: dict, words: str, tmp_path: Path) -> None:
    path = save(tmp_path, recurrent())
    few = {key.replace("__", "."): value for key, value in FEW.items()}
    given = {**few, "data.arrays": str(tmp_path / "samples.npz"), **settings}
    with pytest.raises(ConfigError, match=words):
        seqto.tune(path, out=tmp_path / "run", settings=given)

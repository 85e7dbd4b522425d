"""What follows from constants alone is computed when a model is opened: under a time limit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import endless_nets
import nets
import text_nets
from seqto.cli.main import main
from seqto.errors import ModelError
from seqto.execution.local.fold import optimize_in_worker
from seqto.model.constant_nodes import may_take_long
from seqto.model.files import to_bytes
from seqto.model.prepare import prepare


@pytest.mark.parametrize(
    "words", [["tune", "--data", "random:24", "--out", "run"], ["export", "-o", "made.onnx"]]
)
def test_constants_that_take_long_are_ended(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
) -> None:
    onnx.save(endless_nets.heavy_constants(), tmp_path / "heavy.onnx")
    monkeypatch.chdir(tmp_path)
    limit = ["--mode", "weight", "--set", "device.timeout_s=2"]
    assert main([words[0], "heavy.onnx", *words[1:], *limit]) == 2
    error = capsys.readouterr().err
    assert "not computed within 2 s" in error
    assert error.count("\n") == 1


def test_ordinary_models_are_folded_here() -> None:
    for net in (nets.residual(), text_nets.classifier(), _filled(1000)):
        assert not may_take_long(net)
    assert may_take_long(_filled(20_000))
    assert may_take_long(endless_nets.heavy_constants())
    assert may_take_long(endless_nets.endless())


def test_a_worker_folds_as_this_process_does() -> None:
    net = endless_nets.heavy_constants(products=2, side=8)
    assert may_take_long(net)
    apart = prepare(net, optimize=optimize_in_worker(60.0))
    assert to_bytes(apart.proto) == to_bytes(prepare(net).proto)


def test_a_model_that_a_worker_cannot_open_is_named() -> None:
    net = endless_nets.heavy_constants(products=2, side=8)
    net.graph.node[1].op_type = "Nonsense"
    with pytest.raises(ModelError, match=r"heavy does not load in ONNX Runtime: .*Nonsense"):
        prepare(net, name="heavy", optimize=optimize_in_worker(60.0))


def _filled(side: int) -> Any:
    """Return a model that adds the mean of a filled matrix."""
    net = endless_nets.heavy_constants(products=0, side=side)
    mean = next(n for n in net.graph.node if n.name == "mean")
    mean.CopyFrom(helper.make_node("Gather", ["k0", "zero"], ["number"], name="mean"))
    zero = np.zeros(3, np.int64)
    net.graph.initializer.append(onnx.numpy_helper.from_array(zero, "zero"))
    return net

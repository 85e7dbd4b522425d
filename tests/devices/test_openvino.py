"""Another ONNX Runtime provider for real: OpenVINO's CPU device, in an environment of its own.

onnxruntime-openvino takes the place of onnxruntime, so the two cannot share one
(scripts/test-openvino makes it).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.devices.available import usable_devices
from seqto.devices.ort import Ort
from seqto.devices.ort_profile import attribute_times, node_owners
from seqto.errors import DeviceError
from seqto.model.prepare import prepare

PROVIDER = "OpenVINOExecutionProvider"
pytestmark = [
    pytest.mark.openvino,
    pytest.mark.skipif(
        PROVIDER not in onnxruntime.get_available_providers(),
        reason="needs onnxruntime-openvino: scripts/test-openvino",
    ),
]
PLANS = {
    "float": lambda _: None,
    "static": lambda x: "static-s8-u8-channel" if x.weight else "static-u8",
    "weight-only": lambda x: "weight-s8-channel" if x.weight else None,
}


def feeds(seed: int) -> dict[str, Any]:
    (spec,) = prepare(nets.residual()).inputs
    size = [1, *(d or 4 for d in spec.shape[1:])]
    return {spec.name: np.random.default_rng(seed).standard_normal(size).astype(np.float32)}


@pytest.fixture(scope="module")
def assembler() -> Assembler:
    prepared = prepare(nets.residual())
    found = calibrate(prepared, lambda: (feeds(i) for i in range(6)))
    return Assembler(prepared, found.statistics)


@pytest.mark.parametrize("name", PLANS)
def test_answers_are_those_of_exact_arithmetic(assembler: Assembler, name: str) -> None:
    codes = {x.name: PLANS[name](x) for x in assembler.prepared.layers}
    model = assembler.assemble(Plan.of({k: c for k, c in codes.items() if c})).data
    exact = Ort(optimize=False).open(model, threads=1).run(feeds(9))[0]
    found = Ort(provider="openvino").open(model, threads=0).run(feeds(9))[0]
    # its int8 kernels round in other places: a few steps of the output's grid
    allowed = 0.2 if name == "static" else 1e-5
    assert np.linalg.norm(found - exact) <= allowed * np.linalg.norm(exact)


def test_every_layer_is_said_to_run_there(assembler: Assembler) -> None:
    model = assembler.assemble(Plan()).data
    rows = Ort(provider="openvino").profile(model, feeds(9), runs=2)
    placed = attribute_times(rows, node_owners(assembler))["placement"]
    weighted = {x.name for x in assembler.prepared.layers if x.weight}
    assert weighted <= set(placed)
    assert set(placed.values()) == {PROVIDER}


def test_what_it_cannot_run_is_an_error_and_no_silent_fallback() -> None:
    text = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.STRING, [3]) for n in ("x", "y")]
    node = onnx.helper.make_node("StringNormalizer", ["x"], ["y"], case_change_action="UPPER")
    graph = onnx.helper.make_graph([node], "g", text[:1], text[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    with pytest.raises(DeviceError) as caught:
        Ort(provider="openvino").open(model.SerializeToString(), threads=1)
    assert caught.value.stage == "load"


def test_it_is_listed_as_usable() -> None:
    assert ("ort (provider = 'openvino')", True) in [row[:2] for row in usable_devices()]


def test_a_whole_run_on_it_says_where_the_layers_ran(tmp_path: Path) -> None:
    from seqto.api import run_tune
    from seqto.demo.run import demo_setup

    few = {f"data.{split}": 40 for split in ("calibration", "evaluation", "report")}
    few |= {"device.provider": "openvino", "device.latency_s": 0.05, "search.jobs": 1}
    few |= {"search.strategy": "stepwise", "search.max_trials": 3, "analysis.diagnose": False}
    report = run_tune(demo_setup(tmp_path / "run", few)).report
    assert [t["error"] for t in report["trials"]] == [None] * 3
    assert set(report["placement"]["providers"]) == {PROVIDER}

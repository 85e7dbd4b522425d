from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nets
from seqto.assembly import rounded_weights
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.calibration.gram import columns_of
from seqto.calibration.statistics import Statistics
from seqto.errors import PlanError
from seqto.model.prepare import prepare
from seqto.records import Layer
from seqto.schemes.integers import Quantized, quantize, rescaled
from seqto.schemes.multiples import HIGH, LARGEST, LOW, divide
from seqto.schemes.output_rounding import Rounder
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import B4, S4, S7

LAYER = Layer("l", "Conv", ("l",), ("x",), "y", 1, weight="w")


def halves(rows: Any) -> Any:
    return np.stack([rows[::2].T @ rows[::2], rows[1::2].T @ rows[1::2]])


def test_the_error_of_four_bits_is_about_halved_at_a_thirtieth_more_bytes() -> None:
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(96, 96))
    seen, unseen = (rng.normal(size=(600, 96)) @ mixing for _ in range(2))
    weight = (
        rng.normal(size=(24, 96)) * np.exp(rng.normal(size=(24, 6)) * 0.3).repeat(16, 1)
    ).astype(np.float32)
    found = Rounder(LAYER, weight, halves(seen), axis=0).round(S4, B4)
    error = {
        to: float(np.square(unseen @ (weight - q.restore()).T).sum()) for to, q in found.items()
    }
    assert error[B4] < 0.65 * error[S4]


@given(
    st.integers(0, 1000),
    st.integers(1, 5),
    st.integers(1, 50),
    st.sampled_from([0, 1]),
    st.floats(1e-6, 1e4),
)
@settings(max_examples=40, deadline=None)
def test_every_block_is_a_multiple_of_four_bit_numbers(
    seed: int, outputs: int, inputs: int, axis: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(outputs, inputs)) * size).astype(np.float32)
    q = quantize(values if axis == 0 else values.T, B4, axis=axis)
    rows = q.data if axis == 0 else q.data.T
    numbers, multipliers = divide(rows, size=B4.multiples)
    assert LOW <= numbers.min() <= numbers.max() <= HIGH
    assert 1 <= multipliers.min() <= multipliers.max() <= LARGEST
    product = (numbers.astype(int) * multipliers).reshape(outputs, -1)[:, :inputs]
    np.testing.assert_array_equal(product, rows)
    assert np.abs(rows.astype(int)).max() <= S7.symmetric_high, "no sum of two products saturates"
    raised = rescaled(q.restore(), q, q.scale * np.float32(1.7), B4)
    divide(raised.data if axis == 0 else raised.data.T, size=B4.multiples)


def test_what_is_no_multiple_is_refused() -> None:
    with pytest.raises(ValueError, match="no multiple"):
        divide(np.array([[8, 63]], np.int8), size=16)


@pytest.mark.parametrize("net", [nets.residual, nets.dense, nets.scaled], ids=lambda n: n.__name__)
@pytest.mark.parametrize(
    "code", ["weight-b4-channel", "static-b4-u8-channel-bias-float", "dynamic-b4-channel"]
)
def test_a_session_multiplies_what_the_file_holds(net: Any, code: str) -> None:
    """With the same integers as plain int8, the answers are the same."""
    prepared = prepare(net())
    feeds = {k: v for k, v in nets.samples_for(prepared.proto, 4).items() if k != "labels"}
    statistics = calibrate(prepared, lambda: [feeds]).statistics
    assembler = Assembler(prepared, statistics)
    layers = [x for x in prepared.layers if x.weight and not x.depthwise]
    if code.startswith("dynamic"):
        layers = [x for x in layers if x.op_type in ("Gemm", "MatMul")]
    made = assembler.assemble(Plan.of({x.name: code for x in layers}))
    proto = onnx.load_from_string(made.data)
    assert any(t.data_type == onnx.TensorProto.UINT4 for t in proto.graph.initializer)
    assert "Cast" not in loaded_ops(made.data, prepared), "all is folded at load"
    # the same integers, stored as int8
    scheme = Scheme.parse(code)
    restored = {x.name: scheme.restored_weight(x, assembler) for x in layers}  # type: ignore[attr-defined]
    exact = onnx.ModelProto()
    exact.CopyFrom(prepared.proto)
    for tensor in exact.graph.initializer:
        for layer in layers:
            if tensor.name == layer.weight:
                tensor.CopyFrom(onnx.numpy_helper.from_array(restored[layer.name], tensor.name))
    want, got = (nets.run(m, feeds)[0] for m in (exact, made.data))
    tolerance = 1e-5 if code.startswith("weight") else 0.1
    assert np.abs(want - got).max() < tolerance * np.abs(want).max()


def loaded_ops(data: bytes, prepared: Any) -> set[str]:
    """Return ops of the loaded model that the float model does not have."""
    import tempfile
    from pathlib import Path

    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.optimized_model_filepath = str(Path(folder) / "loaded.onnx")
        ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        found = {n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node}
    return found - {n.op_type for n in prepared.proto.graph.node}


def test_rounded_multiples_are_kept_and_read_back(tmp_path: Any) -> None:
    import json

    prepared = prepare(nets.residual())
    layers = [x for x in prepared.layers if columns_of(x, prepared)]
    made = rounded_weights.round_layers(
        prepared,
        lambda: [{"x": nets.pictures(1, seed=i)} for i in range(6)],
        layers,
        ("b4",),
        constants=Assembler(prepared, Statistics({}, {})),
    )
    rows = rounded_weights.save(made, tmp_path / "rounded-0.npy")
    (tmp_path / rounded_weights.INDEX_FILE).write_text(json.dumps(rows))
    assembler = Assembler(prepared, Statistics({}, {}), rounded=rounded_weights.load(tmp_path))
    plan = Plan.of({x.name: "weight-b4-channel-round-output" for x in layers})
    assert assembler.assemble(plan).size_bytes > 0
    for key, q in made.items():
        assert isinstance(q, Quantized)
        np.testing.assert_array_equal(assembler.rounded[key].restore(), q.restore())


def test_one_scale_for_a_tensor_is_refused() -> None:
    with pytest.raises(PlanError, match="use channel"):
        Scheme.parse("weight-b4-tensor")

"""The layer analysis: higher is worse, and the worst comes first."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from onnxruntime.quantization import qdq_loss_debug

import nets
import stock
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.diagnosis.layer_errors import decibel, layer_errors, rank
from seqto.model.prepare import prepare
from seqto.schemes.types import S8
from seqto.search.choices import default_schemes


def feeds(count: int) -> list[dict[str, Any]]:
    x = nets.pictures(count)
    return [{"x": x[i : i + 1]} for i in range(count)]


def assembler_for(proto: Any) -> Assembler:
    prepared = prepare(proto)
    return Assembler(prepared, calibrate(prepared, lambda: feeds(8)).statistics)


def full(assembler: Assembler, **changes: Any) -> Plan:
    kept = {"mode": "static", "weight": S8, "activation": S8, "per_channel": False}
    return Plan.of(default_schemes(assembler.prepared.layers, **{**kept, **changes}))


def spoiled() -> Any:
    """residual, with weights of the middle Conv that one scale cannot hold."""
    proto = nets.residual()
    weights = {t.name: t for t in proto.graph.initializer}
    victim = next(n for n in proto.graph.node if n.name == "/net/Conv_4")
    values = numpy_helper.to_array(weights[victim.input[1]]).copy()
    values[0] *= 4000.0  # one channel takes the whole range …
    values[0, 1:] = 0.0
    weights[victim.input[1]].CopyFrom(numpy_helper.from_array(values, victim.input[1]))
    return proto


def test_the_layer_made_bad_on_purpose_comes_first() -> None:
    """The sign trap: sorted by dB, highest first, it would come last."""
    assembler = assembler_for(spoiled())
    ranking = rank(layer_errors(assembler, full(assembler), feeds(6), exact=True))
    by_weights = [r for r in ranking if r.layer in ("/net/Conv_0", "/net/Conv_2", "/net/Conv_4")]
    assert by_weights[0].layer == "/net/Conv_4"
    assert by_weights[0].xmodel_sqnr_db == min(r.xmodel_sqnr_db for r in by_weights)
    assert [r.rank for r in ranking] == list(range(len(ranking)))


def test_qdq_err_is_what_numpy_says() -> None:
    assembler = assembler_for(nets.residual())
    rows = {r["layer"]: r for r in layer_errors(assembler, full(assembler), feeds(5))}
    layer = assembler.prepared.layer("/net/Conv_0")
    model = onnx.ModelProto()
    model.CopyFrom(assembler.prepared.proto)
    model.graph.output.add().name = layer.output
    low, high = assembler.statistics.range_of(layer.output, "minmax")
    scale = (high - min(low, 0.0)) / 255.0
    zero = round(-128 - min(low, 0.0) / scale)
    noise = signal = 0.0
    for feed in feeds(5):
        x = nets.run(model, feed)[-1].astype(np.float64)
        q = np.clip(np.round(x / scale) + zero, -128, 127)
        noise += float((((q - zero) * scale - x) ** 2).sum())
        signal += float((x**2).sum())
    assert rows["/net/Conv_0"]["qdq_err"] == pytest.approx(math.sqrt(noise / signal), rel=1e-3)


def test_every_layer_that_is_quantized_has_a_row_and_no_other() -> None:
    assembler = assembler_for(nets.residual())
    plan = full(assembler).replace({"/net/Conv_2": "fp32"})
    rows = layer_errors(assembler, plan, feeds(2))
    names = [x.name for x in assembler.prepared.layers if x.nodes and x.name != "/net/Conv_2"]
    assert [r["layer"] for r in rows] == names
    assert all(r["xmodel_err"] > 0 for r in rows)


def test_a_plan_of_the_output_alone_has_no_rows() -> None:
    """A session that is asked for no output gives all of them."""
    assembler = assembler_for(nets.residual())
    outputs = {n: s for n, s in full(assembler).schemes if n.startswith("output:")}
    assert outputs
    assert layer_errors(assembler, Plan.of(outputs), feeds(2)) == []


def test_the_output_layer_is_never_ranked() -> None:
    assembler = assembler_for(nets.residual())
    rows = layer_errors(assembler, full(assembler), feeds(2))
    assert "output:y" not in {r["layer"] for r in rows}


@pytest.mark.parametrize(
    ("mode", "granularity"), [("weight", "channel"), ("dynamic", "channel"), ("dynamic", "tensor")]
)
def test_layers_without_quantized_outputs_have_the_error_of_their_weights(
    mode: str, granularity: str
) -> None:
    assembler = assembler_for(nets.residual())
    plan = full(assembler, mode=mode, per_channel=granularity == "channel")
    rows = layer_errors(assembler, plan, feeds(2))
    assert {r["layer"] for r in rows} == {x.name for x in assembler.prepared.layers if x.weight}
    assert all(0 < r["qdq_err"] < 0.05 for r in rows)


def test_the_decibels_are_those_of_onnxruntimes_debug_tool(tmp_path: Path) -> None:
    """SQNR in dB is -20 log10 of the relative error, sample by sample."""
    assembler = assembler_for(nets.residual())
    (feed,) = feeds(1)
    x = nets.run(assembler.prepared.proto, feed)[0]
    y = nets.run(assembler.assemble(full(assembler)).data, feed)[0]
    theirs = qdq_loss_debug.compute_signal_to_quantization_noice_ratio(x, y)
    ours = decibel(float(np.linalg.norm(x - y) / np.linalg.norm(x)))
    assert ours == pytest.approx(float(theirs), abs=1e-3)


def test_the_weights_error_is_that_of_onnxruntimes_debug_tool(tmp_path: Path) -> None:
    assembler = assembler_for(nets.residual())
    prepared = assembler.prepared
    theirs = stock.static(
        prepared.proto, tmp_path, feeds(8), weight="s8", activation="s8", per_channel=False
    )
    float_path, stock_path = tmp_path / "f.onnx", tmp_path / "q.onnx"
    onnx.save_model(prepared.proto, str(float_path))
    onnx.save_model(theirs, str(stock_path))
    weights = {x.weight: x for x in prepared.layers if x.weight}
    matched = qdq_loss_debug.create_weight_matching(str(float_path), str(stock_path))
    plan = full(assembler, mode="weight")
    rows = {r["layer"]: r["qdq_err"] for r in layer_errors(assembler, plan, feeds(1))}
    seen = 0
    for name, pair in matched.items():
        if name in weights:
            db = qdq_loss_debug.compute_signal_to_quantization_noice_ratio(
                pair["float"], pair["dequantized"]
            )
            assert decibel(rows[weights[name].name]) == pytest.approx(float(db), abs=0.01)
            seen += 1
    assert seen == len(weights)


# -------------------------------------------------------------------------------------- ranking

rows_of_errors = st.lists(
    st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=12
).map(
    lambda pairs: [
        {"layer": f"l{i}", "qdq_err": a, "xmodel_err": b} for i, (a, b) in enumerate(pairs)
    ]
)


@given(rows_of_errors, st.floats(0, 1))
def test_the_ranking_is_sorted_by_error_and_complete(rows: list[Any], weight: float) -> None:
    ranking = rank(rows, qdq_weight=weight, xmodel_weight=1 - weight)
    errors = [r.error for r in ranking]
    assert errors == sorted(errors, reverse=True)
    assert sorted(r.layer for r in ranking) == sorted(r["layer"] for r in rows)
    assert all(0.0 <= e <= 1.0 + 1e-9 for e in errors)


@given(rows_of_errors)
def test_decibels_fall_as_errors_rise(rows: list[Any]) -> None:
    for r in rank(rows):
        assert r.qdq_sqnr_db == decibel(r.qdq_err)
    ordered = sorted(r["qdq_err"] for r in rows)
    values = [decibel(e) for e in ordered]
    assert values == sorted(values, reverse=True)


def test_weights_choose_between_the_two_errors() -> None:
    rows = [
        {"layer": "a", "qdq_err": 1.0, "xmodel_err": 0.0},
        {"layer": "b", "qdq_err": 0.0, "xmodel_err": 1.0},
    ]
    assert rank(rows, qdq_weight=0.9, xmodel_weight=0.1)[0].layer == "a"
    assert rank(rows, qdq_weight=0.1, xmodel_weight=0.9)[0].layer == "b"
    assert [r.error for r in rank(rows)] == [0.5, 0.5]

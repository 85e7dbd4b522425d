"""Weights of five and six bits: two tensors in the file, int8 or float when a session loads."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.errors import PlanError
from seqto.model.prepare import prepare
from seqto.schemes.scheme import Scheme, unfit
from seqto.schemes.stored_planes import add_planes, divide_planes, low_numbers
from seqto.schemes.types import S5, S6, IntType

NARROW = pytest.mark.parametrize("weight", [S5, S6], ids=str)


def folded(data: NDArray[np.int8], weight: IntType, *, integer: bool) -> NDArray[Any]:
    """Return what ONNX Runtime makes of the stored planes."""
    import onnxruntime as ort

    items: list[Any] = []
    nodes: list[Any] = []
    add_planes(items, nodes, "w", data, weight, integer=integer)
    kind = onnx.TensorProto.INT8 if integer else onnx.TensorProto.FLOAT
    output = onnx.helper.make_tensor_value_info("w", kind, list(data.shape))
    graph = onnx.helper.make_graph(nodes, "g", [], [output], items)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    model.ir_version = 10
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: NDArray[Any] = session.run(None, {})[0]
    return result


@NARROW
@given(numbers=st.lists(st.integers(-16, 15), min_size=4, max_size=64))
def test_planes_hold_every_number(weight: IntType, numbers: list[int]) -> None:
    data = np.array(numbers[: len(numbers) // 4 * 4], np.int8)
    if weight is S6:
        data = data * 2
    upper, packed = divide_planes(data, weight)
    assert upper.min() >= -8
    assert upper.max() <= 7
    assert packed.max() <= 15
    lower = low_numbers(weight)[packed].reshape(-1)
    np.testing.assert_array_equal(upper * 2.0 ** (weight.bits - 4) + lower, data)


@NARROW
@pytest.mark.parametrize("integer", [True, False])
def test_a_session_makes_the_integers_again(weight: IntType, integer: bool) -> None:
    every = np.arange(weight.low, weight.high + 1, dtype=np.int8)
    data = np.tile(every, 3).reshape(2, -1, 4)
    restored = folded(data, weight, integer=integer)
    assert restored.dtype == (np.int8 if integer else np.float32)
    np.testing.assert_array_equal(restored, data)


def assembler_of(model: Any) -> Assembler:
    prepared = prepare(model)
    rng = np.random.default_rng(0)
    (spec,) = prepared.inputs
    shape = [1, *(side or 4 for side in spec.shape[1:])]
    feeds = [{spec.name: rng.standard_normal(shape).astype(np.float32)} for _ in range(4)]
    return Assembler(prepared, calibrate(prepared, lambda: feeds).statistics)


@pytest.fixture(scope="module")
def residual() -> Assembler:
    return assembler_of(nets.residual())


@NARROW
@pytest.mark.parametrize("code", ["weight-{}-channel", "static-{}-u8-channel-bias-float"])
def test_nothing_of_the_planes_is_left_in_the_loaded_graph(
    residual: Assembler, weight: IntType, code: str, tmp_path: Path
) -> None:
    import onnxruntime as ort

    weighted = [x.name for x in residual.prepared.layers if x.weight]
    scheme = Scheme.parse(code.format(weight))
    assembled = residual.assemble(Plan.of(dict.fromkeys(weighted, scheme)))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    ort.InferenceSession(assembled.data, options, providers=["CPUExecutionProvider"])
    loaded = onnx.load(str(tmp_path / "loaded.onnx"))
    assert not {"Gather", "Cast"} & {n.op_type for n in loaded.graph.node}
    assert not assembled.may_saturate


def test_fewer_bits_take_fewer_bytes_and_do_more_damage(residual: Assembler) -> None:
    layer = max((x for x in residual.prepared.layers if x.weight), key=lambda x: x.parameters)
    values = residual.weight(layer)
    sizes, errors = [], []
    for code in ("weight-s8-channel", "weight-s6-channel", "weight-s5-channel"):
        scheme = Scheme.parse(code)
        sizes.append(residual.assemble(Plan.of({layer.name: scheme})).size_bytes)
        errors.append(float(np.square(scheme.restored_weight(layer, residual) - values).sum()))
    assert errors == sorted(errors)
    assert errors[2] > 2 * errors[1] > 4 * errors[0]
    assert layer.parameters < 4096 or sizes == sorted(sizes, reverse=True)


def test_one_scale_for_a_whole_tensor_is_refused() -> None:
    with pytest.raises(PlanError, match="5 bits for a whole tensor are too few"):
        Scheme.parse("weight-s5-tensor")


def test_a_layer_with_an_odd_number_of_weights_keeps_other_types(residual: Assembler) -> None:
    layer = next(x for x in residual.prepared.layers if x.weight)
    odd = dataclasses.replace(layer, weight_shape=(3, 3, 3, 3))
    assert unfit(odd, Scheme.parse("weight-s6-channel")) == "81 numbers are no multiple of 2"
    assert unfit(odd, Scheme.parse("static-s5-u8-channel")) == "81 numbers are no multiple of 4"
    assert unfit(odd, Scheme.parse("weight-s8-channel")) is None

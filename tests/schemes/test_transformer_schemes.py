"""Transformers and recurrent nets: every weight has a choice, and what is written runs as meant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

import token_nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.calibration.gram import columns_of
from seqto.calibration.statistics import Statistics
from seqto.model.layers import list_layers
from seqto.model.prepare import Prepared, prepare
from seqto.schemes.scheme import FP32, Scheme, unfit
from seqto.transforms.smooth import Smooth

NETS = ("encoder", "decoder", "recurrent")


def prepared_net(name: str) -> tuple[Any, Prepared, Assembler]:
    model = getattr(token_nets, name)()
    prepared = prepare(model)
    return model, prepared, Assembler(prepared, Statistics({}, {}))


def uniform(prepared: Prepared, *codes: str) -> Plan:
    """Return every layer with weights under the first of the codes that fits it."""
    chosen = {}
    for layer in prepared.layers:
        schemes = [Scheme.parse(code) for code in codes]
        fitting = [s for s in schemes if layer.weight and not unfit(layer, s)]
        if fitting:
            chosen[layer.name] = fitting[0]
    return Plan.of(chosen)


def answer(model: bytes, feeds: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(None, feeds)[0]
    return found


def loaded_ops(model: bytes, folder: Path) -> Counter[str]:
    """Return op types of the graph as ONNX Runtime runs it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(folder / "loaded.onnx")
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return Counter(n.op_type for n in onnx.load(folder / "loaded.onnx").graph.node)


def error(one: NDArray[Any], other: NDArray[Any]) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@pytest.mark.parametrize("name", NETS)
def test_no_large_float_constant_is_without_a_choice(name: str) -> None:
    _, prepared, _ = prepared_net(name)
    owned = {x for layer in prepared.layers for x in (layer.weight, layer.bias, layer.table)}
    constants = {t.name: len(t.raw_data) for t in prepared.proto.graph.initializer}
    total = sum(constants.values())
    left = {n: size / total for n, size in constants.items() if n not in owned}
    assert not {n: share for n, share in left.items() if share > 0.02}


def test_layers_are_named_after_nodes_and_inputs() -> None:
    names = {x.name: x.op_type for x in prepared_net("encoder")[1].layers if x.storage}
    assert names == {"/words/Gather": "Gather", "/places/Slice:data": "Constant"}
    names = {x.name: x.op_type for x in prepared_net("recurrent")[1].layers if x.storage}
    assert names["/encoder/GRU:W"] == names["/encoder/GRU:R"] == "Constant"


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(
    ("codes", "limit"),
    [
        (("fp32",), 1e-6),
        (("fp16",), 2e-3),
        (("weight-s8-channel",), 0.03),
        (("weight-s4-block32", "weight-s8-channel"), 0.3),
        (("weight-s5-block64", "weight-s8-channel"), 0.15),
        (("weight-s6-block64", "weight-s8-channel"), 0.08),
        (("dynamic-s8-channel", "weight-s8-channel"), 0.05),
        (("dynamic-p8-channel", "weight-s8-channel"), 0.08),
        (("dynamic-s4-channel", "weight-s8-channel"), 0.5),
        (("nbit-s8-channel", "weight-s8-channel"), 0.04),
        (("nbit-s6-channel", "weight-s6-channel"), 0.1),
        (("nbit-s5-channel", "weight-s5-channel"), 0.2),
        (("nbit-s6-block64", "weight-s6-channel"), 0.08),
        (("nbit-s5-block64", "weight-s5-channel"), 0.15),
        (("nbit-s4-block32", "weight-s4-block32"), 0.3),
        (("nbit-u4-block64", "nbit-s4-block64", "weight-s4-block64"), 0.35),
        (("nbit-s4-block32-level0", "nbit-s4-block32", "weight-s8-channel"), 0.3),
        (("nbit-s8-channel-level4", "nbit-s8-channel", "weight-s8-channel"), 0.04),
    ],
)
def test_what_is_written_computes_what_the_scheme_says(
    name: str, codes: tuple[str, ...], limit: float
) -> None:
    model, prepared, assembler = prepared_net(name)
    feeds = token_nets.tokens(model)
    plan = uniform(prepared, *codes)
    made = assembler.assemble(plan)
    onnx.checker.check_model(onnx.load_from_string(made.data))
    want = answer(model.SerializeToString(), feeds)
    assert error(answer(made.data, feeds), want) <= limit
    priced = sum(assembler.bytes_of(x, plan.scheme_of(x.name)) for x in prepared.layers if x.weight)
    assert abs(made.size_bytes - priced) < 0.5 * made.size_bytes  # names and nodes are the rest


@pytest.mark.parametrize(
    "codes",
    [
        ("weight-s8-channel",),
        ("weight-s4-block32",),
        ("dynamic-s8-channel", "weight-s8-channel"),
        ("nbit-s4-block32", "weight-s4-block32"),
    ],
)
@pytest.mark.parametrize("name", NETS)
def test_restored_weights_are_those_that_the_file_computes_with(
    name: str, codes: tuple[str, ...]
) -> None:
    """The float model with restored weights answers as the file does, but for activations."""
    model, prepared, assembler = prepared_net(name)
    plan = uniform(prepared, *codes)
    copy = onnx.ModelProto()
    copy.CopyFrom(prepared.proto)
    constants = {t.name: t for t in copy.graph.initializer}
    for layer in prepared.layers:
        scheme = plan.scheme_of(layer.name)
        if scheme == FP32 or not layer.weight:
            continue
        restored = scheme.restored_weight(layer, assembler)
        for tensor, values in ((layer.weight, restored), (layer.table, restored.T)):
            if tensor:
                fresh = onnx.numpy_helper.from_array(np.ascontiguousarray(values), tensor)
                constants[tensor].CopyFrom(fresh)
    feeds = token_nets.tokens(model)
    want = answer(copy.SerializeToString(), feeds)
    got = answer(assembler.assemble(plan).data, feeds)
    # scales by channel are stored in half precision; those of blocks are chosen so that they can
    assert error(got, want) <= {"weight-s8-channel": 3e-3, "weight-s4-block32": 2e-5}.get(
        codes[0], 0.03
    )


def test_a_tied_table_is_stored_once_under_every_scheme() -> None:
    _, prepared, assembler = prepared_net("decoder")
    (head,) = [x for x in prepared.layers if x.table]
    assert (head.name, head.table_reader) == ("node_head", "node_embedding")
    numbers = token_nets.VOCABULARY * token_nets.WIDTH
    for code, size in (
        ("fp32", 4.0),
        ("fp16", 2.0),
        ("weight-s8-channel", 1.0),
        ("weight-s4-block32", 0.5),
        ("dynamic-s8-channel", 1.0),
        ("nbit-s8-channel", 1.0),
        ("nbit-s6-channel", 0.5),  # of the upper bits; the lower ones are another tensor
        ("nbit-s4-block32", 0.5),
    ):
        made = onnx.load_from_string(assembler.assemble(Plan.of({head.name: code})).data)
        table = [
            t for t in made.graph.initializer if int(np.prod(t.dims, dtype=np.int64)) == numbers
        ]
        assert len(table) == 1, code
        assert len(table[0].raw_data) == size * numbers, code
    assert "embedding" in str(unfit(head, Scheme.parse("static-s8-u8-channel")))


@pytest.mark.parametrize(
    ("codes", "ops"),
    [
        (("dynamic-s8-channel", "weight-s8-channel"), {"MatMul": 2}),
        (("nbit-s8-channel", "weight-s8-channel"), {"MatMulNBits": 4}),
        (("nbit-s6-channel", "weight-s6-channel"), {"MatMulNBits": 4}),
        (("nbit-s5-channel", "weight-s5-channel"), {"MatMulNBits": 4}),
        (("nbit-s6-block64", "weight-s6-channel"), {"MatMulNBits": 4}),
        (("nbit-s5-block64", "weight-s5-channel"), {"MatMulNBits": 4}),
        (("nbit-s4-block32", "weight-s4-block32"), {"MatMulNBits": 4}),
    ],
)
def test_kernels_are_the_fast_ones_and_norms_stay_fused(
    codes: tuple[str, ...], ops: dict[str, int], tmp_path: Path
) -> None:
    _, prepared, assembler = prepared_net("encoder")  # q, k and v are one product
    found = loaded_ops(assembler.assemble(uniform(prepared, *codes)).data, tmp_path)
    assert found["LayerNormalization"] == 2
    assert found["Gelu"] + found["BiasGelu"] == 1
    assert found["DequantizeLinear"] == 0
    if codes[0].startswith("dynamic"):
        assert found["DynamicQuantizeMatMul"] == 4
        assert not found["DynamicQuantizeLinear"] + found["MatMulIntegerToFloat"]
    else:
        assert found["MatMulNBits"] == ops["MatMulNBits"]


def test_storage_is_all_that_a_constant_can_choose() -> None:
    _, prepared, _ = prepared_net("recurrent")
    for layer in (x for x in prepared.layers if x.storage):
        for code in ("static-s8-u8-channel", "dynamic-s8-channel", "nbit-s8-channel"):
            assert "fp16 or weight" in str(unfit(layer, Scheme.parse(code)))
        assert unfit(layer, Scheme.parse("weight-s8-channel")) is None


def test_a_mask_that_half_precision_cannot_hold_is_no_layer() -> None:
    model = token_nets.encoder()
    mask = np.zeros((1, 1, 16, 64), np.float32)
    mask[..., 32:] = token_nets.MASKED
    model.graph.initializer.append(onnx.numpy_helper.from_array(mask, "mask_table"))
    node = onnx.helper.make_node("ReduceSum", ["mask_table"], ["s"], name="/mask/ReduceSum")
    model.graph.node.append(node)
    model.graph.output.append(onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, None))
    assert not [x for x in prepare(model).layers if x.name.startswith("/mask")]


@pytest.mark.parametrize("name", NETS)
def test_transforms_and_rounding_leave_tables_alone(name: str) -> None:
    model, prepared, _ = prepared_net(name)
    matrices = [x for x in prepared.layers if columns_of(x, prepared) is not None]
    assert not [x for x in matrices if x.storage]
    found = calibrate(prepared, lambda: [token_nets.tokens(model)])
    changed = list_layers(Smooth(0.5).apply(prepared, found.peaks).proto)
    assert [x.name for x in changed] == [x.name for x in prepared.layers]
    assert [x.table for x in changed] == [x.table for x in prepared.layers]


@pytest.mark.parametrize("code", ["weight-s8-channel", "weight-s4-block32"])
def test_a_static_reader_of_a_quantized_table_has_tensors_of_its_own(code: str) -> None:
    model, prepared, _ = prepared_net("encoder")
    statistics = calibrate(prepared, lambda: [token_nets.tokens(model)]).statistics
    assembler = Assembler(prepared, statistics)
    table = next(x for x in prepared.layers if x.op_type == "Gather")
    reader = next(x for x in prepared.layers if table.output in x.inputs)
    plan = Plan.of({table.name: Scheme.parse(code), reader.name: Scheme.parse("static-u8")})
    proto = onnx.load_from_string(assembler.assemble(plan).data)
    made = [o for node in proto.graph.node for o in node.output]
    made += [t.name for t in proto.graph.initializer]
    assert len(made) == len(set(made))
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    session.run(None, dict(token_nets.tokens(model)))

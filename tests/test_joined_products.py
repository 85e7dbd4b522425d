"""Products that read one tensor are written as one, with the same answers."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import token_nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.joined_products import in_order
from seqto.assembly.node_notes import SCHEME_KEY, with_node_notes
from seqto.assembly.plan import Plan
from seqto.calibration.statistics import Statistics
from seqto.devices.ort import Ort
from seqto.devices.ort_profile import attribute_times, node_owners
from seqto.model.prepare import Prepared, prepare
from seqto.schemes.scheme import Scheme, unfit

QKV = ("/q/MatMul", "/k/MatMul", "/v/MatMul")
FORMS = (
    "dynamic-s8-channel",
    "dynamic-p8-channel",
    "dynamic-b4-channel",
    "nbit-s8-channel",
    "nbit-s6-block64",
    "nbit-s5-block64",
    "nbit-u4-block32",
    "nbit-s4-block32",
)
OTHERS = ("fp32", "fp16", "weight-s8-channel", "dynamic-s8-tensor")


def assemblers(net: str = "encoder") -> tuple[Prepared, Assembler, Assembler]:
    """Return the prepared net, its assembler, and one as an earlier version had prepared it."""
    prepared = prepare(getattr(token_nets, net)())
    proto = copy.deepcopy(prepared.proto)
    proto.producer_version = ""
    older = dataclasses.replace(prepared, proto=proto)
    nothing = Statistics({}, {})
    return prepared, Assembler(prepared, nothing), Assembler(older, nothing)


def plan_of(prepared: Prepared, codes: dict[str, str]) -> Plan:
    fitting = {
        x.name: codes[x.name]
        for x in prepared.layers
        if x.name in codes and not unfit(x, Scheme.parse(codes[x.name]))
    }
    return Plan.of(fitting)


def answers(model: bytes) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    feeds = {"ids": rng.integers(0, token_nets.VOCABULARY, (2, 9))}
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    if len(session.get_inputs()) > 1:
        feeds["mask"] = np.ones((2, 9), np.int64)
    found: NDArray[np.float32] = session.run(None, feeds)[0]
    return found


def products(model: bytes) -> list[str]:
    nodes = onnx.load_from_string(model).graph.node
    named = [n.name for n in nodes if n.op_type in ("MatMul", "MatMulInteger")]
    return [n for n in named if set(n.split("+")) & set(QKV)]


@pytest.mark.parametrize("net", ["encoder", "decoder", "classifier"])
@pytest.mark.parametrize("code", FORMS)
def test_queries_keys_and_values_are_one_product(net: str, code: str) -> None:
    prepared, assembler, older = assemblers(net)
    plan = plan_of(prepared, dict.fromkeys(QKV, code))
    joined, apart = assembler.assemble(plan), older.assemble(plan)
    (name,) = products(joined.data)
    assert sorted(name.split("+")) == sorted(QKV)
    assert sorted(products(apart.data)) == sorted(QKV)
    assert np.array_equal(answers(joined.data), answers(apart.data))
    assert joined.size_bytes < apart.size_bytes + 100
    nodes = onnx.load_from_string(joined.data).graph.node
    assert len([n for n in nodes if n.op_type == "Split"]) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from((*FORMS, *OTHERS)), min_size=6, max_size=6), st.booleans())
def test_answers_stay_whatever_schemes_the_layers_have(codes: list[str], tied: bool) -> None:
    prepared, assembler, older = assemblers("decoder" if tied else "encoder")
    names = [x.name for x in prepared.layers if x.weight and not x.storage and not x.table]
    plan = plan_of(prepared, dict(zip(names, codes, strict=False)))
    joined = assembler.assemble(plan).data
    onnx.checker.check_model(onnx.load_from_string(joined))
    assert np.array_equal(answers(joined), answers(older.assemble(plan).data))


def test_layers_in_different_forms_stay_apart() -> None:
    prepared, assembler, _ = assemblers()
    for other in ("nbit-s6-block64", "fp32", "weight-s8-channel", "dynamic-s8-tensor"):
        codes = dict(zip(QKV, ("dynamic-s8-channel", "dynamic-b4-channel", other), strict=True))
        names = products(assembler.assemble(plan_of(prepared, codes)).data)
        assert sorted(map(len, (n.split("+") for n in names))) == [1, 2]
        assert QKV[2] in names


def test_what_an_earlier_version_has_prepared_is_rebuilt_as_it_was() -> None:
    prepared, assembler, older = assemblers()
    plan = plan_of(prepared, dict.fromkeys(QKV, "dynamic-s8-channel"))
    assert prepared.preparation == 2
    assert older.prepared.preparation == 1
    assert assembler.assemble(plan).sha256 != older.assemble(plan).sha256


def test_the_time_of_a_joined_product_is_that_of_its_layers() -> None:
    prepared, assembler, _ = assemblers()
    for code in ("dynamic-s8-channel", "nbit-s6-block64"):
        plan = plan_of(prepared, dict.fromkeys((*QKV, "/o/MatMul"), code))
        model = assembler.assemble(plan).data
        ids = np.ones((1, 9), np.int64)
        rows = Ort().profile(model, {"ids": ids, "mask": ids}, runs=3)
        times = attribute_times(rows, node_owners(assembler))["layers_ms"]
        shares = [times[name] for name in QKV]
        assert min(shares) > 0
        assert max(shares) < 2 * min(shares), "each has a third of the joined product's"
        assert times["/o/MatMul"] > 0


def test_notes_name_the_schemes_of_a_joined_product() -> None:
    prepared, assembler, _ = assemblers()
    codes = dict(
        zip(QKV, ("dynamic-s8-channel", "dynamic-b4-channel", "dynamic-s8-channel"), strict=True)
    )
    plan = plan_of(prepared, codes)
    noted = with_node_notes(assembler.assemble(plan).data, plan, prepared.layers)
    nodes = onnx.load_from_string(noted).graph.node
    (node,) = [n for n in nodes if "+" in n.name]
    (note,) = [p.value for p in node.metadata_props if p.key == SCHEME_KEY]
    assert sorted(note.split(", ")) == ["dynamic-b4-channel", "dynamic-s8-channel"]


def test_nodes_are_sorted_as_little_as_needed() -> None:
    make = onnx.helper.make_node
    nodes = [make("Relu", ["x"], ["a"]), make("Add", ["a", "c"], ["b"]), make("Abs", ["x"], ["c"])]
    assert [n.op_type for n in in_order(nodes)] == ["Relu", "Abs", "Add"]
    assert in_order(nodes[::2]) == nodes[::2]


def test_equal_weights_of_several_blocks_are_stored_once_when_joined() -> None:
    """Blocks that share their weights read one joined matrix."""
    model = twice_the_same_block()
    prepared = prepare(model)
    assembler = Assembler(prepared, Statistics({}, {}))
    weighted = [x.name for x in prepared.layers if x.weight and not x.storage]
    plan = plan_of(prepared, dict.fromkeys(weighted, "dynamic-s8-channel"))
    proto = onnx.load_from_string(assembler.assemble(plan).data)
    shapes = Counter(tuple(t.dims) for t in proto.graph.initializer if len(t.dims) == 2)
    assert shapes[16, 32] == 1


def twice_the_same_block() -> Any:
    helper, rng = onnx.helper, np.random.default_rng(0)
    constants = [
        onnx.numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32), name)
        for name in ("one", "two")
    ]
    nodes = []
    x = "x"
    for i in range(2):
        for name in ("one", "two"):
            nodes.append(helper.make_node("MatMul", [x, name], [f"{name}{i}"], name=f"/{name}{i}"))
        nodes.append(helper.make_node("Tanh", [f"one{i}"], [f"t{i}"], name=f"/tanh{i}"))
        x = "y" if i else "between"
        nodes.append(helper.make_node("Mul", [f"t{i}", f"two{i}"], [x], name=f"/mul{i}"))
    value = helper.make_tensor_value_info
    shape = ["batch", 16]
    graph = helper.make_graph(
        nodes, "net", [value("x", 1, shape)], [value("y", 1, shape)], constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

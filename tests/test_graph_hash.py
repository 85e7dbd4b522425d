"""The hash of a graph: what changes its time changes the hash, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from seqto.devices.ort import Ort
from seqto.model.graph_hash import graph_hash


def model(
    op: str = "Relu",
    *,
    names: str = "",
    shape: tuple[int, int] = (4, 3),
    seed: int = 0,
    alpha: float = 1.0,
) -> bytes:
    """Return two branches of x: x·w → op, and Gemm; their sum is the output."""
    rng = np.random.default_rng(seed)
    w, v = f"w{names}", f"v{names}"
    nodes = [
        helper.make_node("MatMul", ["x", w], [f"a{names}"], name=f"first{names}"),
        helper.make_node("Gemm", ["x", v], [f"c{names}"], alpha=alpha),
        helper.make_node(op, [f"a{names}"], [f"b{names}"]),
        helper.make_node("Add", [f"b{names}", f"c{names}"], ["y"]),
    ]
    if names:
        nodes = [nodes[1], nodes[0], *nodes[2:]]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, shape[1]])]
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), w),
        numpy_helper.from_array(rng.standard_normal((4, shape[1])).astype(np.float32), v),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights[:: -1 if names else 1])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 10
    data: bytes = made.SerializeToString()
    return data


def test_names_order_and_weights_do_not_count() -> None:
    assert graph_hash(model()) == graph_hash(model(names="_other", seed=7))


def test_operators_shapes_and_attributes_count() -> None:
    changed = [model("Sigmoid"), model(shape=(4, 5)), model(alpha=2.0)]
    assert len({graph_hash(model()), *map(graph_hash, changed)}) == 4


def test_the_type_of_a_weight_counts() -> None:
    proto = ModelProto.FromString(model())
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((4, 3), np.int8), "w"))
    assert graph_hash(proto.SerializeToString()) != graph_hash(model())


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        graph_hash(b"\xff\xff\xff")


def test_weights_that_fold_to_float_give_the_graph_of_the_float_model() -> None:
    proto = ModelProto.FromString(model())
    half = numpy_helper.from_array(np.ones((4, 3), np.float16), "half")
    proto.graph.initializer.append(half)
    del proto.graph.initializer[0]
    proto.graph.node.insert(0, helper.make_node("Cast", ["half"], ["w"], to=TensorProto.FLOAT))
    device = Ort()
    session, folded = device.open_with_graph(proto.SerializeToString(), threads=1)
    assert session.run({"x": np.ones((1, 4), np.float32)})[0].shape == (1, 3)
    assert folded == device.open_with_graph(model(), threads=1)[1] != ""
    assert folded != device.open_with_graph(model("Sigmoid"), threads=1)[1]
    assert device.open_with_graph(model(names="_other"), threads=1)[1] == folded


def test_a_device_that_does_not_optimize_tells_no_graph() -> None:
    assert Ort(optimize=False).open_with_graph(model(), threads=1)[1] == ""

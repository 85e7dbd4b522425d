"""Tensors whose type shape inference does not find: they are not taken for float."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.model.layers import list_layers, untyped_nodes


def behind_a_custom_op() -> onnx.ModelProto:
    """x ─ Custom ─┬─ MaxPool ─ Add(with itself)
    └─ Conv ─ Relu ─ Transpose ─ y"""
    weight = np.ones((4, 3, 3, 3), np.float32)
    nodes = [
        helper.make_node("Custom", ["x"], ["c"], "custom", domain="mine"),
        helper.make_node("MaxPool", ["c"], ["m"], "pool", kernel_shape=[2, 2]),
        helper.make_node("Add", ["m", "m"], ["z"], "add"),
        helper.make_node("Conv", ["c", "w"], ["a"], "conv"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Transpose", ["b"], ["y"], "transpose"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("z", TensorProto.INT8, None),
        ],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("mine", 1)]
    return helper.make_model(graph, opset_imports=opsets)


def test_a_tensor_of_unknown_type_is_no_layers_output() -> None:
    proto = behind_a_custom_op()
    assert [x.name for x in list_layers(proto)] == ["conv", "transpose", "output:y"]


def test_nodes_that_are_left_out_for_it_are_named() -> None:
    assert untyped_nodes(behind_a_custom_op()) == ["pool"]

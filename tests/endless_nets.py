"""Models that never end: a Loop of 2^62 turns, and constants that take long to compute."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper


def endless() -> Any:
    """x ──▶ Loop of 2^62 turns ──▶ MatMul ──▶ y."""
    graph = helper.make_graph(
        [endless_loop("x", "z"), helper.make_node("MatMul", ["z", "m"], ["y"], name="fc")],
        "endless",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [*endless_constants(), numpy_helper.from_array(np.ones((4, 3), np.float32), "m")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def endless_loop(value: str, result: str) -> Any:
    """Return a Loop of 2^62 turns, which adds 1 to a tensor of floats in each."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["loop_go"], ["loop_on"]),
            helper.make_node("Add", ["loop_v", "loop_one"], ["loop_w"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("loop_turn", TensorProto.INT64, []),
            helper.make_tensor_value_info("loop_go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("loop_v", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("loop_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("loop_w", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(np.ones(1, np.float32), "loop_one")],
    )
    return helper.make_node("Loop", ["turns", "yes", value], [result], body=body)


def endless_constants() -> list[Any]:
    """Return the constants that an endless loop reads: its turns, and `yes`."""
    return [
        numpy_helper.from_array(np.array(2**62), "turns"),
        numpy_helper.from_array(np.array(True), "yes"),
    ]


def heavy_constants(*, products: int = 400, side: int = 4000) -> Any:
    """x ──▶ MatMul ──▶ Add(a number) ──▶ y; the number is that of many products of constants."""
    filled = helper.make_tensor("value", TensorProto.FLOAT, [1], [1e-4])
    nodes = [helper.make_node("ConstantOfShape", ["sides"], ["k0"], value=filled)]
    nodes += [
        helper.make_node("MatMul", [f"k{i}", "k0"], [f"k{i + 1}"], name=f"product{i}")
        for i in range(products)
    ]
    nodes += [
        helper.make_node("ReduceMean", [f"k{products}"], ["number"], name="mean", keepdims=0),
        helper.make_node("MatMul", ["x", "m"], ["z"], name="fc"),
        helper.make_node("Add", ["z", "number"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "heavy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])],
        [
            numpy_helper.from_array(np.array([side, side]), "sides"),
            numpy_helper.from_array(np.ones((4, 3), np.float32), "m"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

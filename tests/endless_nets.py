"""Models that never end: a Loop of 2^62 turns, for tests of time limits."""

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

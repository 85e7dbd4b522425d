"""Small models in every form that a plan may give them, and their answers in exact arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(7)
WEIGHT = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)
SCALE = (np.abs(WEIGHT).reshape(4, -1).max(axis=1) / 127).astype(np.float32)
CODES = np.round(WEIGHT / SCALE[:, None, None, None]).astype(np.int8)
MATRIX = RNG.standard_normal((12, 5)).astype(np.float32)
MATRIX_SCALE = (np.abs(MATRIX).max(axis=0) / 127).astype(np.float32)
MATRIX_CODES = np.round(MATRIX / MATRIX_SCALE).astype(np.int8)
PICTURE = (3, 8, 8)


def build(nodes: list[Any], constants: dict[str, Any], *, shape: tuple[int | str, ...]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def conv(data: str, out: str) -> Any:
    return helper.make_node("Conv", [data, "w", "b"], [out], kernel_shape=[3, 3], pads=[1] * 4)


def pictures(count: int) -> dict[str, Any]:
    values = np.random.default_rng(count).standard_normal((count, *PICTURE))
    return {"x": values.astype(np.float32)}


def float_model(batch: int | str = "N") -> bytes:
    """x → Conv → Relu → y"""
    nodes = [conv("x", "c"), helper.make_node("Relu", ["c"], ["y"])]
    return build(nodes, {"w": WEIGHT, "b": BIAS}, shape=(batch, *PICTURE))


def static_model() -> bytes:
    """x → Q → DQ → Conv(DQ(w), b) → Q → DQ → y, per channel"""
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]),
        node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", ["q", "sw", "zw"], ["w"], axis=0),
        conv("xd", "c"),
        node("QuantizeLinear", ["c", "sy", "zx"], ["yq"]),
        node("DequantizeLinear", ["yq", "sy", "zx"], ["y"]),
    ]
    constants = {
        "sx": np.float32(8 / 255),
        "zx": np.array(128, np.uint8),
        "q": CODES,
        "sw": SCALE,
        "zw": np.zeros(4, np.int8),
        "b": BIAS,
        "sy": np.float32(40 / 255),
    }
    return build(nodes, constants, shape=("N", *PICTURE))


def weight_only_model() -> bytes:
    """x → Conv(Cast(int8) · scale, b) → y"""
    nodes = [
        helper.make_node("Cast", ["q"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["w"]),
        conv("x", "y"),
    ]
    constants = {"q": CODES, "s": SCALE[:, None, None, None], "b": BIAS}
    return build(nodes, constants, shape=("N", *PICTURE))


def fp16_model() -> bytes:
    """x → Conv(Cast(float16), b) → y"""
    nodes = [helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT), conv("x", "y")]
    constants = {"h": WEIGHT.astype(np.float16), "b": BIAS}
    return build(nodes, constants, shape=("N", *PICTURE))


def dynamic_model(op: str = "MatMulInteger") -> bytes:
    """x → DynamicQuantizeLinear → MatMulInteger → Cast → · scales → y"""
    node = helper.make_node
    matrix = op == "MatMulInteger"
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
        node(op, ["xq", "q", "xz"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["xs", "s"], ["xss"]),
        node("Mul", ["f", "xss"], ["y"]),
    ]
    constants = {
        "q": MATRIX_CODES if matrix else CODES,
        "s": MATRIX_SCALE if matrix else np.float32(0.01),
    }
    return build(nodes, constants, shape=(2, 12) if matrix else (1, *PICTURE))


def exact(model: bytes, feeds: dict[str, Any]) -> list[Any]:
    """Return ONNX Runtime without graph optimizations: quantization simulated in float."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def exact_dynamic(x: Any) -> Any:
    """In whole numbers: ONNX Runtime's own MatMulInteger saturates on CPUs without VNNI."""
    low, high = min(x.min(), np.float32(0)), max(x.max(), np.float32(0))
    scale = np.float32((high - low) / np.float32(255))
    zero = np.clip(np.round(-low / scale), 0, 255)
    codes = np.clip(np.round(x / scale) + zero, 0, 255) - zero
    product = codes.astype(np.int64) @ MATRIX_CODES.astype(np.int64)
    return product.astype(np.float32) * (scale * MATRIX_SCALE)

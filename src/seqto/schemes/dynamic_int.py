"""int8 dynamic: the activation is quantized while the model runs, no calibration needed.

DynamicQuantizeLinear → MatMulInteger or ConvInteger → Cast → Mul by both scales → Add bias.
A Gemm becomes a MatMul, its weights transposed once, here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seqto.model.layers import attribute
from seqto.records import Layer
from seqto.schemes.integers import Floats, Quantized, quantize
from seqto.schemes.part import Constants, tensor
from seqto.schemes.scheme import Scheme


def size_of(layer: Layer, scheme: Scheme, constants: Constants) -> int:
    count = constants.weight(layer).size
    bias = constants.bias(layer)
    channels = constants.weight(layer).shape[constants.channel_axis(layer)]
    scales = channels if scheme.granularity == "channel" else 1
    return count + 5 * scales + (0 if bias is None else 4 * bias.size) + 400


def emit(
    node: Any, layer: Layer, scheme: Scheme, constants: Constants, *, source: str
) -> tuple[list[Any], list[Any]]:
    """Nodes and initializers that stand in for the layer's own node."""
    import onnx

    make = onnx.helper.make_node
    w, output = layer.weight or "", node.output[0]
    is_conv = node.op_type == "Conv"
    values, bias, swapped = _matrix(node, layer, constants)
    axis = None
    if scheme.granularity == "channel":
        axis = 0 if is_conv else values.ndim - 1
    q = quantize(values, scheme.weight, axis=axis)
    items = _constants(w, q, is_conv=is_conv)
    views = [source + "D", source + "S", source + "Z"]
    nodes = [make("DynamicQuantizeLinear", [source], views)]
    data = views[0]
    if swapped:  # Gemm with transA: rare, but legal
        nodes.append(make("Transpose", [data], [source + "T"], perm=[1, 0]))
        data = source + "T"
    op = "ConvInteger" if is_conv else "MatMulInteger"
    product = make(op, [data, w + "q", views[2], w + "z"], [output + "i"], name=node.name)
    if is_conv:
        product.attribute.extend(node.attribute)
    nodes += [
        product,
        make("Cast", [output + "i"], [output + "f"], to=onnx.TensorProto.FLOAT),
        make("Mul", [views[1], w + "s"], [output + "X"]),
        make("Mul", [output + "f", output + "X"], [output if bias is None else output + "m"]),
    ]
    if bias is not None:
        shape = (1, -1, *([1] * (values.ndim - 2))) if is_conv else (-1,)
        items.append(tensor(w + "b", bias.reshape(shape)))
        nodes.append(make("Add", [output + "m", w + "b"], [output]))
    return nodes, items


def _matrix(node: Any, layer: Layer, constants: Constants) -> tuple[Floats, Floats | None, bool]:
    """The weight as the integer op wants it, the bias, and whether the input is transposed."""
    values, bias = constants.weight(layer), constants.bias(layer)
    if node.op_type != "Gemm":
        return values, bias, False
    if attribute(node, "transB"):
        values = np.ascontiguousarray(values.T)
    values = (values * np.float32(attribute(node, "alpha", 1.0))).astype(np.float32)
    if bias is not None:
        bias = (bias * np.float32(attribute(node, "beta", 1.0))).astype(np.float32)
    return values, bias, bool(attribute(node, "transA"))


def _constants(w: str, q: Quantized, *, is_conv: bool) -> list[Any]:
    scale = q.scale
    if q.axis is not None and is_conv:
        scale = scale.reshape(1, -1, *([1] * (q.data.ndim - 2)))
    zero = q.zero_point if q.axis is None or not is_conv else q.zero_point[:1].reshape(())
    return [tensor(w + "q", q.data), tensor(w + "s", scale), tensor(w + "z", zero)]

"""A second, slow and plain way to compute what a plan means, layer by layer.

It shares only the rounding formulas with the assembler (those are compared with the stock
quantizer elsewhere). A static layer reads each input rounded in its own activation type and
rounds its output; a float layer reads what is there; a pool or a data-moving layer keeps the
scale of what it reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import nets
from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.model.layers import OUTPUT_OP, SAME_SCALE_OPS
from seqto.model.prepare import upgrade
from seqto.records import Layer
from seqto.schemes import integers
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import IntType

Array = NDArray[Any]


@dataclass(frozen=True)
class Value:
    """A tensor, and the grid on which a static producer has rounded it."""

    array: Array
    activation: IntType | None = None
    method: str = ""
    scale: Any = None
    zero: Any = None


def compute(made: Assembler, plan: Plan, feeds: Mapping[str, Array]) -> list[Array]:
    schemes = plan.as_dict()
    # at the plan's opset: newer kernels sum in another order, which the rounding would show
    proto = upgrade(made.prepared.proto, made.opset_for(schemes), name="the reference")
    prepared = dataclasses.replace(made.prepared, proto=proto)
    assembler = Assembler(prepared, made.statistics, rounded=made.rounded)
    values = {name: Value(np.asarray(array)) for name, array in feeds.items()}
    layers = {x.nodes[0]: x for x in prepared.layers if x.nodes}
    inner = {n for x in prepared.layers for n in x.nodes[1:]}
    kept_float = {
        x.inputs[0]
        for x in prepared.layers
        if x.op_type == OUTPUT_OP and schemes.get(x.name, FP32).is_float
    }
    for node in prepared.proto.graph.node:
        if node.name in inner:
            continue
        if node.name not in layers:
            values.update(_plain(assembler, node, values))
            continue
        layer = layers[node.name]
        scheme = schemes.get(layer.name, FP32)
        values[layer.output] = _layer(assembler, layer, scheme, values, float_end=kept_float)
    for layer in prepared.layers:
        scheme = schemes.get(layer.name, FP32)
        if layer.op_type == OUTPUT_OP and not scheme.is_float:
            value = values[layer.output]
            if not value.activation:
                values[layer.output] = _rounded(assembler, layer.output, value.array, scheme)
    return [values[name].array for name in prepared.outputs]


def _layer(
    assembler: Assembler,
    layer: Layer,
    scheme: Scheme,
    values: Mapping[str, Value],
    *,
    float_end: set[str],
) -> Value:
    static = isinstance(scheme, StaticInt)
    if layer.op_type in SAME_SCALE_OPS and not values[layer.inputs[0]].activation:
        static = False  # what only moves floats is left float, as stock leaves it
    read = {
        x: _read(assembler, x, values[x], scheme) if static else values[x] for x in layer.inputs
    }
    constants = _constants(assembler, layer, scheme, read[layer.inputs[0]])
    nodes = [n for n in assembler.prepared.proto.graph.node if n.name in layer.nodes]
    others = {n: v.array for n, v in values.items()}
    feeds = {**others, **{x: v.array for x, v in read.items()}}
    result = _run(assembler, nodes, feeds, constants, layer.output)
    if not static or layer.output in float_end:
        return Value(result)
    if layer.op_type in SAME_SCALE_OPS:
        first = read[layer.inputs[0]]
        kept = _qdq(result, first.scale, first.zero, first.activation)
        return Value(kept, scheme.activation, scheme.ranges, first.scale, first.zero)
    return _rounded(assembler, layer.output, result, scheme)


def _read(assembler: Assembler, name: str, value: Value, scheme: Scheme) -> Value:
    if value.activation == scheme.activation:
        return value
    method = value.method or scheme.ranges
    return _rounded(assembler, name, value.array, StaticInt(None, scheme.activation, ranges=method))


def _rounded(assembler: Assembler, name: str, array: Array, scheme: Scheme) -> Value:
    method = scheme.ranges
    low, high = assembler.statistics.range_of(name, method)
    scale, zero = integers.affine(
        np.float32(low), np.float32(high), scheme.activation, symmetric=False
    )
    made = _qdq(array, scale, zero, scheme.activation)
    return Value(made, scheme.activation, method, scale, zero)


def _qdq(array: Array, scale: Any, zero: Any, activation: IntType) -> Array:
    data = integers.round_to(array, scale, zero, activation)
    return integers.Quantized(data, scale, zero, None).restore()


def _constants(
    assembler: Assembler, layer: Layer, scheme: Scheme, first: Value
) -> dict[str, Array]:
    if layer.weight is None or scheme.kind == "fp32":
        return {}
    if scheme.kind == "fp16":
        return {layer.weight: assembler.weight(layer).astype(np.float16).astype(np.float32)}
    q = scheme.quantized_weight(layer, assembler)
    found = {layer.weight: q.restore()}
    bias = assembler.bias(layer)
    if isinstance(scheme, StaticInt) and bias is not None and not scheme.float_bias:
        step = np.asarray(np.float32(first.scale) * q.scale, dtype=np.float32)
        data, _ = integers.quantize_bias(bias, step)
        found[layer.bias or ""] = (data.astype(np.float32) * step).astype(np.float32)
    return found


def _plain(assembler: Assembler, node: Any, values: Mapping[str, Value]) -> dict[str, Value]:
    feeds = {n: v.array for n, v in values.items()}
    return {o: Value(_run(assembler, [node], feeds, {}, o)) for o in node.output}


def _run(
    assembler: Assembler,
    nodes: list[Any],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array],
    output: str,
) -> Array:
    """Return the nodes alone, in a model of their own, without graph optimization."""
    proto = assembler.prepared.proto
    made = {o for n in nodes for o in n.output}
    read = {x for n in nodes for x in n.input if x} - made
    weights = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer} | dict(constants)
    used = {x: feeds[x] for x in read if x not in weights}
    inputs = [
        helper.make_tensor_value_info(
            x, helper.np_dtype_to_tensor_dtype(np.asarray(a).dtype), list(a.shape)
        )
        for x, a in used.items()
    ]
    graph = helper.make_graph(
        nodes,
        "part",
        inputs,
        [onnx.ValueInfoProto(name=output)],
        [numpy_helper.from_array(np.asarray(weights[x]), x) for x in read if x in weights],
    )
    model = helper.make_model(graph, opset_imports=proto.opset_import)
    model.ir_version = proto.ir_version
    return nets.run(model, used, exact=True)[0]

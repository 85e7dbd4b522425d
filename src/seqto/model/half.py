"""Models in half precision: made float32 inside, with the inputs and outputs that they had.

CPUs compute half precision in float32 between casts, and what is quantized replaces the weights
anyway. So a float16 model is widened before it is prepared; sizes and answers are still compared
with the file as it was given.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

FLOAT, FLOAT16 = 1, 10  # onnx.TensorProto


# attributes that name the type of an op's output
TYPE_ATTRIBUTES = frozenset(("to", "dtype", "stash_type", "output_dtype"))


def has_half(proto: Any) -> bool:
    """Return whether constants, inputs or outputs of a model are in half precision."""
    graph = proto.graph
    if any(_type(v) == FLOAT16 for v in (*graph.input, *graph.output)):
        return True
    return any(int(t.data_type) == FLOAT16 for g in _graphs(graph) for t in _tensors(g))


def widen_half(proto: Any) -> None:
    """Turn float16 tensors into float32 ones, in place."""
    if not has_half(proto):
        return
    graph = proto.graph
    for tensor in [t for g in _graphs(graph) for t in _tensors(g)]:
        if int(tensor.data_type) == FLOAT16:
            _widen(tensor)
    for inner in _graphs(graph):
        for node in inner.node:
            for item in node.attribute:
                if item.name in TYPE_ATTRIBUTES and item.i == FLOAT16:
                    item.i = FLOAT
        if inner is not graph:
            for value in (*inner.input, *inner.output, *inner.value_info):
                if _type(value) == FLOAT16:
                    value.type.tensor_type.elem_type = FLOAT
    del graph.value_info[:]
    _cast_borders(graph)


def _cast_borders(graph: Any) -> None:
    """Keep the types of the model's inputs and outputs by casts at both ends."""
    import onnx

    make = onnx.helper.make_node
    constants = {t.name for t in graph.initializer}
    inputs = {v.name for v in graph.input if _type(v) == FLOAT16 and v.name not in constants}
    outputs = {v.name for v in graph.output if _type(v) == FLOAT16}
    for value in graph.input:
        if value.name in constants and _type(value) == FLOAT16:
            value.type.tensor_type.elem_type = FLOAT
    for inner in _graphs(graph):
        for node in inner.node:
            node.input[:] = [x + "/wide" if x in inputs else x for x in node.input]
    for node in graph.node:
        node.input[:] = [x + "/wide" if x in outputs else x for x in node.input]
        node.output[:] = [x + "/wide" if x in outputs else x for x in node.output]
    first = [make("Cast", [x], [x + "/wide"], name=f"{x}/wide", to=FLOAT) for x in sorted(inputs)]
    last = [make("Cast", [x + "/wide"], [x], name=f"{x}/half", to=FLOAT16) for x in sorted(outputs)]
    nodes = [*first, *graph.node, *last]
    del graph.node[:]
    graph.node.extend(nodes)


def _widen(tensor: Any) -> None:
    import onnx

    values = onnx.numpy_helper.to_array(tensor).astype(np.float32)
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))


def _type(value: Any) -> int:
    return int(value.type.tensor_type.elem_type)


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield the graph and all those inside of its nodes."""
    yield graph
    for node in graph.node:
        for item in node.attribute:
            for inner in (*item.graphs, *([item.g] if item.HasField("g") else [])):
                yield from _graphs(inner)


def _tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for node in graph.node:
        for item in node.attribute:
            yield from item.tensors
            if item.HasField("t"):
                yield item.t

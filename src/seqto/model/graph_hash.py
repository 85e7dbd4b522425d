"""A hash of what a runtime has to compute: equal for graphs that take the same time.

Structure, operators, attributes, and the shapes and types of constants count. Names, the order in
which nodes are listed, and the values of constants do not: other weights of the same shape take
as long.
"""

from __future__ import annotations

import hashlib
from typing import Any

LONGEST = 1 << 16  # bytes of an attribute's tensor whose values count


def graph_hash(data: bytes) -> str:
    """Return the hash of a serialized model's graph; ValueError where it cannot be read."""
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    try:
        proto = ModelProto.FromString(data)
    except DecodeError as error:
        raise ValueError("the optimized graph cannot be read") from error
    opsets = sorted((o.domain, o.version) for o in proto.opset_import)
    return _digest("model", str(opsets), _graph(proto.graph, {}))


def _graph(graph: Any, outer: dict[str, str]) -> str:
    """Hash a graph; `outer` has the tensors of the graphs around it."""
    known = dict(outer)
    for position, value in enumerate(graph.input):
        known[value.name] = _digest("input", str(position), _type_of(value))
    for tensor in graph.initializer:
        known[tensor.name] = _digest("constant", str(tensor.data_type), str(list(tensor.dims)))
    for tensor in graph.sparse_initializer:
        dims = str(list(tensor.dims))
        known[tensor.values.name] = _digest("sparse", str(tensor.values.data_type), dims)
    nodes: list[str] = []
    for node in graph.node:  # ONNX lists them in topological order
        inputs = [known.get(name, "none") for name in node.input]
        attributes = sorted(_attribute(a, known) for a in node.attribute)
        present_outputs = str([bool(name) for name in node.output])
        own = _digest(
            "node", node.domain, node.op_type, present_outputs, *inputs, "with", *attributes
        )
        nodes.append(own)
        known.update({name: _digest(own, str(i)) for i, name in enumerate(node.output) if name})
    outputs = [known.get(value.name, "none") for value in graph.output]
    return _digest("graph", *sorted(nodes), "outputs", *outputs)


def _type_of(value: Any) -> str:
    tensor = value.type.tensor_type
    return f"{tensor.elem_type} {[d.dim_value or -1 for d in tensor.shape.dim]}"


def _attribute(attribute: Any, known: dict[str, str]) -> str:
    name = attribute.name
    if attribute.HasField("g"):
        return _digest("graph", name, _graph(attribute.g, known))
    if attribute.graphs:
        return _digest("graphs", name, *(_graph(g, known) for g in attribute.graphs))
    if attribute.HasField("t"):
        tensor = attribute.t
        small = tensor.SerializeToString(deterministic=True)
        form = f"{tensor.data_type} {list(tensor.dims)}"
        return _digest("tensor", name, form if len(small) > LONGEST else small.hex())
    return _digest("value", name, attribute.SerializeToString(deterministic=True).hex())


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part.encode())
    return digest.hexdigest()

"""A graph's nodes grouped into layers: what a plan may keep in one way or another.

A layer is one node that computes, with what ORT fuses behind it (an activation, a bias) and what
only moves its result. Names are those of the nodes, so that they can be found in Netron. Constants
that no such layer has are layers of their own (tables.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqto.model.files import bytes_of_constant
from seqto.model.graph import CONVOLUTIONS, attribute
from seqto.model.tables import table_layers, tied_tables
from seqto.records import Layer

LARGE_CONSTANT_BYTES = 4096  # what is smaller may be a shape or axes
WEIGHTED_OPS = CONVOLUTIONS | frozenset(("Gemm", "MatMul"))
FOLLOWING_ACTIVATIONS = frozenset(("Relu", "Clip"))
# ops that only move data: they follow the layer in front of them and keep its scale
MOVING_OPS = frozenset(("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity"))
# weightless ops whose result has the same scale as what went in
SAME_SCALE_OPS = frozenset(("MaxPool", "Pad", "Slice", "Transpose", "Resize")) | MOVING_OPS
WEIGHTLESS_OPS = (
    frozenset(("Add", "Mul", "Concat", "AveragePool", "GlobalAveragePool"))
    | frozenset(("LeakyRelu", "Sigmoid", "MatMul"))
    | SAME_SCALE_OPS
    | FOLLOWING_ACTIVATIONS
)


# attention as one node: of ONNX (opset 23) and of ONNX Runtime
ATTENTION_OPS = frozenset(
    (
        "Attention",
        "MultiHeadAttention",
        "GroupQueryAttention",
        "PackedMultiHeadAttention",
        "DecoderMaskedMultiHeadAttention",
        "DecoderMaskedSelfAttention",
        "SparseAttention",
    )
)


OUTPUT_OP = "Output"


FLOAT32 = 1  # onnx.TensorProto.FLOAT


def list_layers(proto: Any) -> list[Layer]:
    """Group the graph's nodes into layers, in graph order."""
    graph = proto.graph
    constants = {t.name: t for t in graph.initializer}
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for tensor in node.input:
            readers.setdefault(tensor, []).append(node)
    public = {o.name for o in graph.output}
    types = tensor_types(proto)
    # shape arithmetic must never be quantized, nor what may be any: unknown types are not float
    floats = {name for name, kind in types.items() if kind == FLOAT32}
    taken: set[str] = set()
    layers: list[Layer] = []
    ties = tied_tables(graph, constants, readers, weighted=_is_weighted)
    for node in graph.node:
        if node.name in taken:
            continue
        if _is_whole_attention(node, constants, floats):
            layers.append(_attention_layer(node, floats))
            continue
        if len(node.output) != 1 or node.output[0] not in floats:
            continue
        weighted = _is_weighted(node, constants)
        if not weighted and not _is_weightless(node, constants):
            continue
        chain = [node, *_followers(node, readers, public, constants)]
        taken.update(n.name for n in chain)
        layers.append(_layer(chain, constants, weighted=weighted))
        if node.name in ties:
            layers[-1] = ties[node.name].joined(layers[-1])
    layers = _in_graph_order(graph, [*layers, *table_layers(graph, layers, floats=floats)])
    produced = {layer.output for layer in layers}
    for output in graph.output:
        if output.name in produced:
            label = f"output:{output.name}"
            layers.append(Layer(label, OUTPUT_OP, (), (output.name,), output.name, 0))
    return layers


def multiplies_activations(layer: Layer) -> bool:
    """Return whether a layer multiplies two activations, as attention does."""
    return not layer.weight and layer.op_type in ATTENTION_OPS | {"MatMul", "Einsum"}


def is_float_only(layer: Layer) -> bool:
    """Return whether a layer is here to be seen only: no scheme can change its node."""
    return not layer.weight and layer.op_type in ATTENTION_OPS | {"Einsum"}


def _is_whole_attention(node: Any, constants: Mapping[str, Any], floats: set[str]) -> bool:
    """Return whether a node is attention as a whole, or an Einsum of two activations."""
    if node.op_type in ATTENTION_OPS:
        return True
    data = [x for x in node.input if x not in constants]
    return node.op_type == "Einsum" and len(data) > 1 and node.output[0] in floats


def _attention_layer(node: Any, floats: set[str]) -> Layer:
    inputs = tuple(dict.fromkeys(x for x in node.input if x in floats))
    return Layer(node.name, node.op_type, (node.name,), inputs, node.output[0], 0)


def _in_graph_order(graph: Any, layers: list[Layer]) -> list[Layer]:
    """Sort layers by their first node; a constant's by the node that it is named after."""
    position = {node.name: i for i, node in enumerate(graph.node)}
    first = {x.name: position[x.nodes[0] if x.nodes else x.name.rpartition(":")[0]] for x in layers}
    return sorted(layers, key=lambda x: first[x.name])


def inferred_values(proto: Any, *, data: bool = False) -> list[Any]:
    """Return types and shapes that shape inference gives; the weights' values are not needed.

    data: also shapes that follow from numbers which are computed.
    """
    import onnx

    light = without_weights(proto)
    try:
        graph = onnx.shape_inference.infer_shapes(light, data_prop=data).graph
    except Exception:  # a custom op stops inference: then only what the file says is known
        graph = light.graph
    return [*graph.value_info, *graph.input, *graph.output]


def without_weights(proto: Any) -> Any:
    """Return a copy of a model with shapes and types of its large constants, without numbers.

    Built field by field: a copy of a model of 1 GB would take as much again, if only for a moment.
    """
    import onnx

    light = onnx.ModelProto()
    for field, value in proto.ListFields():
        if field.name == "graph":
            continue
        if isinstance(value, str | int):
            setattr(light, field.name, value)
        else:
            getattr(light, field.name).MergeFrom(value)
    for field, value in proto.graph.ListFields():
        if field.name == "initializer":
            continue
        if isinstance(value, str):
            setattr(light.graph, field.name, value)
        else:
            getattr(light.graph, field.name).MergeFrom(value)
    for tensor in proto.graph.initializer:
        if is_large(tensor):
            shape_only = light.graph.initializer.add(name=tensor.name, data_type=tensor.data_type)
            shape_only.dims.extend(tensor.dims)
        else:
            light.graph.initializer.add().CopyFrom(tensor)
    return light


def is_large(tensor: Any) -> bool:
    """Return whether a constant is too large to be a shape or axes."""
    return bytes_of_constant(tensor) > LARGE_CONSTANT_BYTES


def untyped_nodes(proto: Any) -> list[str]:
    """Return nodes that are no layers only because the type of their output is not known."""
    constants = {t.name: t for t in proto.graph.initializer}
    types = tensor_types(proto)
    return [
        node.name
        for node in proto.graph.node
        if len(node.output) == 1
        and node.output[0] not in types
        and (_is_weighted(node, constants) or _is_weightless(node, constants))
    ]


def branch_nodes(proto: Any) -> list[str]:
    """Return names of the nodes with weights inside If, Loop and Scan, which no plan can change."""
    names: list[str] = []
    waiting = [a for node in proto.graph.node for a in node.attribute]
    while waiting:
        attribute_ = waiting.pop(0)
        graphs = [*attribute_.graphs, *([attribute_.g] if attribute_.HasField("g") else [])]
        for graph in graphs:
            names += [n.name or n.output[0] for n in graph.node if n.op_type in WEIGHTED_OPS]
            waiting += [a for node in graph.node for a in node.attribute]
    return names


def tensor_types(proto: Any) -> dict[str, int]:
    """Return the element types of tensors, as far as they are known.

    Shape inference stops behind an op that it does not know (a custom one); the ops that layers
    are made of give what goes in, so that types are known again behind the first weights.
    """
    types = {v.name: int(v.type.tensor_type.elem_type) for v in inferred_values(proto)}
    types |= {t.name: int(t.data_type) for t in proto.graph.initializer}
    types = {name: kind for name, kind in types.items() if kind}  # 0 = not said
    for node in proto.graph.node:
        if node.op_type not in WEIGHTED_OPS | WEIGHTLESS_OPS or node.domain not in ("", "ai.onnx"):
            continue
        first_only = node.op_type in SAME_SCALE_OPS | FOLLOWING_ACTIVATIONS
        input_types = [
            types[x] for x in (node.input[:1] if first_only else node.input) if x in types
        ]
        if input_types and len(node.output) == 1:
            types.setdefault(node.output[0], input_types[0])
    return types


def _is_weighted(node: Any, constants: Mapping[str, Any]) -> bool:
    if node.op_type not in WEIGHTED_OPS or node.domain not in ("", "ai.onnx"):
        return False
    if len(node.input) < 2 or node.input[1] not in constants or node.input[0] in constants:
        return False
    if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2] not in constants:
        return False
    weight = constants[node.input[1]]
    return int(weight.data_type) == FLOAT32 and len(weight.dims) >= 2


def _is_weightless(node: Any, constants: Mapping[str, Any]) -> bool:
    if node.op_type not in WEIGHTLESS_OPS or node.domain not in ("", "ai.onnx"):
        return False
    first_only = node.op_type in SAME_SCALE_OPS | FOLLOWING_ACTIVATIONS
    data = node.input[:1] if first_only else node.input
    return all(x and x not in constants for x in data)


def _followers(
    node: Any, readers: Mapping[str, list[Any]], public: set[str], constants: Mapping[str, Any]
) -> list[Any]:
    """Return the activation and data-moving nodes that only this node feeds."""
    chain: list[Any] = []
    activation_open = node.op_type in WEIGHTED_OPS or node.op_type in ("Add", "Sub")
    tensor = node.output[0]
    if _adds_bias(node, readers, public, constants):
        chain.append(readers[tensor][0])
        tensor = chain[-1].output[0]
    while tensor not in public and len(readers.get(tensor, [])) == 1:
        follower = readers[tensor][0]
        activation = activation_open and follower.op_type in FOLLOWING_ACTIVATIONS
        if not activation and follower.op_type not in MOVING_OPS:
            break
        if follower.input[0] != tensor:
            break
        activation_open = activation_open and not activation and not chain
        chain.append(follower)
        tensor = follower.output[0]
    return chain


def _adds_bias(
    node: Any, readers: Mapping[str, list[Any]], public: set[str], constants: Mapping[str, Any]
) -> bool:
    """Return whether a MatMul's only reader adds a constant: the bias of a dense layer."""
    tensor = node.output[0]
    if node.op_type != "MatMul" or tensor in public or len(readers.get(tensor, [])) != 1:
        return False
    reader = readers[tensor][0]
    others = [x for x in reader.input if x != tensor]
    return reader.op_type == "Add" and len(others) == 1 and others[0] in constants


def _layer(chain: list[Any], constants: Mapping[str, Any], *, weighted: bool) -> Layer:
    anchor = chain[0]
    inputs: list[str] = []
    first_only = weighted or anchor.op_type in SAME_SCALE_OPS | FOLLOWING_ACTIVATIONS
    for tensor in anchor.input[:1] if first_only else anchor.input:
        if tensor and tensor not in inputs:
            inputs.append(tensor)
    count = 0
    for node in chain:
        for tensor in node.input:
            if tensor in constants and node.op_type in (*WEIGHTED_OPS, "Add"):
                size = 1
                for dim in constants[tensor].dims:
                    size *= int(dim)
                count += size
    group = int(attribute(anchor, "group", 1))
    weight = anchor.input[1] if weighted else None
    bias = anchor.input[2] if weighted and len(anchor.input) > 2 and anchor.input[2] else None
    shape = tuple(int(d) for d in constants[weight].dims) if weight else ()
    depthwise = weighted and group > 1 and shape[1] == 1
    return Layer(
        name=anchor.name,
        op_type=anchor.op_type,
        nodes=tuple(n.name for n in chain),
        inputs=tuple(inputs),
        output=chain[-1].output[0],
        parameters=count,
        weight=weight,
        bias=bias,
        depthwise=depthwise,
        weight_shape=shape,
        transposed=weighted and anchor.op_type == "Gemm" and bool(attribute(anchor, "transB")),
    )

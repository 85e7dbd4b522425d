"""Layers one by one: a model in which every layer reads its own float input, and nothing else.

In a fully quantized model each layer also carries what went wrong before it. Here the layers are
taken apart: each one reads what the float model would hand it, as an input of the graph, and its
result is an output of the graph. One session then shows every layer's own error at once:

    x0 ─▶ conv1 ─▶ y0      x1 ─▶ conv2 ─▶ y1      (x2, x3) ─▶ add ─▶ y2      …

The parts, ranges and operators are those of the whole model, made by the same assembler, so a
device picks the same kernels for them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.statistics import Statistics
from seqto.model.float_session import with_outputs
from seqto.model.layers import OUTPUT_OP
from seqto.model.ort_session import open_session
from seqto.model.prepare import Prepared
from seqto.records import Layer

Values = Mapping[str, NDArray[Any]]


OWN_INPUT = "@in"  # behind a tensor's name: the copy that is fed from outside
DELTA = "@delta"
BEFORE_DELTA = "@own"


class IsolatedLayers:
    """The layers that a plan quantizes, each on its own, under any scheme."""

    def __init__(self, assembler: Assembler, plan: Plan, values: Values) -> None:
        """`values`: one sample's tensors (see `tensors_for`), from which shapes are taken."""
        prepared = assembler.prepared
        self.plan = plan
        self.layers = quantized_layers(prepared, plan)
        layer_outputs = {x.output for x in self.layers}
        outputs = [
            x for x in prepared.layers if x.op_type == OUTPUT_OP and x.output in layer_outputs
        ]
        renamed = {x: x + OWN_INPUT for x in outer_tensors(prepared, self.layers)}
        self.fed = renamed
        own = [
            dataclasses.replace(x, inputs=tuple(renamed[t] for t in x.inputs)) for x in self.layers
        ]
        proto = _separate(prepared, self.layers, renamed, values)
        self.assembler = Assembler(
            Prepared(
                proto,
                (*own, *outputs),
                (),
                tuple(x.output for x in self.layers),
                prepared.opset,
                prepared.sha256,
            ),
            _renamed(assembler.statistics, renamed),
            rounded=assembler.rounded,
            max_opset=assembler.max_opset,
        )
        self._known = {x.name for x in (*own, *outputs)}

    def model(self, plan: Plan) -> bytes:
        """Return a model of all layers side by side, kept as `plan` says."""
        schemes = {k: v for k, v in plan.schemes if k in self._known}
        return self.assembler.assemble(plan.with_schemes(schemes)).data

    def feeds(self, values: Values) -> dict[str, NDArray[Any]]:
        return {own: values[name] for name, own in self.fed.items()}


def quantized_layers(prepared: Prepared, plan: Plan) -> tuple[Layer, ...]:
    """Return the layers with nodes of their own whose arithmetic the plan changes.

    A model's output is no such layer, nor is a constant that some node reads beside others (the
    weights of a GRU): there is nothing to take apart.
    """
    schemes = plan.as_dict()
    return tuple(
        x
        for x in prepared.layers
        if x.op_type != OUTPUT_OP and x.nodes and x.name in schemes and not schemes[x.name].is_float
    )


def outer_tensors(prepared: Prepared, layers: Sequence[Layer]) -> list[str]:
    """Return the tensors that layers read from outside: data, and shapes that are computed."""
    constants = {t.name for t in prepared.proto.graph.initializer}
    nodes = {n.name: n for n in prepared.proto.graph.node}
    outer: dict[str, None] = {}
    for layer in layers:
        inner = {o for n in layer.nodes for o in nodes[n].output}
        for name in layer.nodes:
            for tensor in nodes[name].input:
                if tensor and tensor not in constants and tensor not in inner:
                    outer[tensor] = None
    return list(outer)


def tensors_for(prepared: Prepared, plan: Plan) -> list[str]:
    """Return every tensor of the float model that `IsolatedLayers` is fed with or compared with."""
    layers = quantized_layers(prepared, plan)
    outputs = [x.output for x in layers]
    return list(dict.fromkeys([*outer_tensors(prepared, layers), *outputs]))


def open_float(prepared: Prepared, names: Sequence[str]) -> Callable[[Values], Values]:
    """Open the float model with a look at the tensors named; inputs are handed through."""
    inputs = {i.name for i in prepared.proto.graph.input}
    asked = [n for n in names if n not in inputs]
    session = _session(with_outputs(prepared.proto, asked))

    def run(feeds: Values) -> Values:
        values = dict(zip(asked, session.run(asked, dict(feeds)), strict=True))
        return {**values, **{n: feeds[n] for n in names if n in inputs}}

    return run


def open_deltas(
    prepared: Prepared, layers: Sequence[Layer], *, outputs: Sequence[str]
) -> Callable[[Values, Values], list[NDArray[Any]]]:
    """Return run(feeds, {a layer's output: what is added to it}) → the float model's outputs."""
    session = _session(with_deltas(prepared, layers))
    nothing = np.zeros((), np.float32)
    quiet = {x.output + DELTA: nothing for x in layers}

    def run(feeds: Values, deltas: Values) -> list[NDArray[Any]]:
        added = {**quiet, **{name + DELTA: value for name, value in deltas.items()}}
        return [np.asarray(x) for x in session.run(list(outputs), {**feeds, **added})]

    return run


def _session(model: Any) -> Any:
    """Open a float model on ORT's CPU, whatever the device is that is looked at."""
    # one thread: the other workers have the other cores
    return open_session(model.SerializeToString(), threads=1)


def with_deltas(prepared: Prepared, layers: Sequence[Layer]) -> Any:
    """Return the float model with an input behind every layer that is added to the layer's result.

    Fed with what quantization does to one layer's output, and zeros elsewhere, the model gives
    the answers of a model in which only that layer is quantized: one session serves all layers.
    """
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(prepared.proto)
    layer_outputs = {x.output for x in layers}
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for i, name in enumerate(node.output):
            if name in layer_outputs:
                node.output[i] = name + BEFORE_DELTA
                inputs = [name + BEFORE_DELTA, name + DELTA]
                nodes.append(onnx.helper.make_node("Add", inputs, [name]))
    graph = onnx.helper.make_graph(nodes, "g", [], [])
    graph.input.extend(model.graph.input)
    floats = onnx.TensorProto.FLOAT
    graph.input.extend(
        onnx.helper.make_tensor_value_info(x.output + DELTA, floats, None) for x in layers
    )
    graph.output.extend(model.graph.output)
    graph.initializer.extend(model.graph.initializer)
    extended = onnx.helper.make_model(graph, opset_imports=model.opset_import)
    extended.ir_version = model.ir_version
    return extended


def in_float_arithmetic(data: bytes) -> bytes:
    """Return the same model with integer products written as float ones.

    QuantizeLinear and DequantizeLinear run in float when a session does not optimize, but
    MatMulInteger and ConvInteger (dynamic schemes) call the CPU's integer kernels all the same.
    Sums of products of 8-bit integers are exact in float32 up to 2²⁴ and nearly so beyond.
    """
    import onnx

    if b"Integer" not in data:
        return data
    model = onnx.load_from_string(data)
    floats = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
    nodes: list[Any] = []
    for node in model.graph.node:
        if node.op_type not in floats:
            nodes.append(node)
            continue
        stem = node.output[0]
        sides = []
        for i in (0, 1):
            side = _cast(nodes, node.input[i], f"{stem}@{i}")
            if len(node.input) > i + 2 and node.input[i + 2]:
                zero = _cast(nodes, node.input[i + 2], f"{stem}@z{i}")
                nodes.append(onnx.helper.make_node("Sub", [side, zero], [f"{stem}@s{i}"]))
                side = f"{stem}@s{i}"
            sides.append(side)
        product = onnx.helper.make_node(floats[node.op_type], sides, [stem], name=node.name)
        product.attribute.extend(node.attribute)
        nodes.append(product)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    changed: bytes = model.SerializeToString()
    return changed


def _cast(nodes: list[Any], name: str, result: str) -> str:
    import onnx

    nodes.append(onnx.helper.make_node("Cast", [name], [result], to=onnx.TensorProto.FLOAT))
    return result


def _separate(
    prepared: Prepared, layers: Sequence[Layer], renamed: Mapping[str, str], values: Values
) -> Any:
    """Return a graph of the layers' nodes alone, reading `renamed` inputs of the values' shapes."""
    import onnx

    base = prepared.proto
    layer_of = {n: x for x in layers for n in x.nodes}
    by_name = {n.name: n for n in base.graph.node}
    nodes = []
    for node in base.graph.node:
        layer = layer_of.get(node.name)
        if layer is None:
            continue
        inner = {o for n in layer.nodes for o in by_name[n].output}
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [x if x in inner else renamed.get(x, x) for x in node.input]
        nodes.append(copy)
    used = {x for n in nodes for x in n.input}
    # a shape is part of what a runtime chooses kernels by, so the sample's own is written
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [_info(own, values[name]) for name, own in renamed.items()],
        [_info(x.output, values[x.output]) for x in layers],
        [t for t in base.graph.initializer if t.name in used],
    )
    proto = onnx.helper.make_model(graph, opset_imports=base.opset_import)
    proto.ir_version = base.ir_version
    return proto


def _info(name: str, value: NDArray[Any]) -> Any:
    import onnx

    kind = onnx.helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype)
    return onnx.helper.make_tensor_value_info(name, kind, np.shape(value))


def _renamed(statistics: Statistics, renamed: Mapping[str, str]) -> Statistics:
    """Return statistics in which ranges and means are also known under the names of the copies."""
    ranges, means = dict(statistics.ranges), dict(statistics.means)
    for name, own in renamed.items():
        if name in ranges:
            ranges[own] = ranges[name]
        if name in means:
            means[own] = means[name]
    return Statistics(ranges, means)

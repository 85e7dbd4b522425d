"""Layers that a plan keeps float stay float when ONNX Runtime loads the file.

Its optimizer WeightBiasQuantization (basic level, on by default) makes the weights of a Conv,
ConvTranspose or Gemm int8, by one scale for the whole tensor, where the layer reads a
DequantizeLinear and its result goes, through Relu and Clip at most, to a QuantizeLinear. A float
layer between static ones would run in integers again. It leaves alone what reads a
DequantizeLinear per axis. So such a layer reads one: the same scale and zero point, repeated for
every channel. The loaded graph has the same nodes as with the optimizer disabled, and the per-axis
kernel is as fast (64 × 56 × 56: 3.5 ms for three Convs both ways). The repetition is an Expand,
folded at load: about 75 bytes a layer.

Two cases take a Sum of one tensor instead, a copy that no optimizer removes: where no axis longer
than one is known, and int8 activations. Those become uint8 on x86, but only from a QuantizeLinear
to a DequantizeLinear that both have one zero point; else the layer in front would run in float.

Other optimizers make the pattern before this one looks: a DequantizeLinear moves down and a
QuantizeLinear up through ops that only move data, Pad, Add and Mul with constants become part of a
Conv, and MatMul with Add becomes Gemm. The search below looks through all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.model.graph import input_axis, input_channels
from seqto.schemes.part import tensor

_MOVED = frozenset(
    ("Identity", "Dropout", "MaxPool", "Reshape", "Squeeze", "Unsqueeze", "Slice", "Transpose")
)


_LOOKED_THROUGH_BEFORE = _MOVED | {"Pad"}


_LOOKED_THROUGH_BEHIND = _MOVED | {"Relu", "Clip"}


_FUSED_WITH_CONSTANTS = frozenset(("Add", "Sub", "Mul", "Div", "BatchNormalization"))


_FEW = 16  # channels: below, the repeated numbers take fewer bytes than Expand nodes


ShapeOf = Callable[[str], Sequence[int]]  # () unknown, 0 for an unknown dimension


@dataclass(frozen=True, slots=True)
class _Graph:
    """Producers and readers of each tensor, and the constants of a graph."""

    producer: Mapping[str, Any]
    readers: Mapping[str, Sequence[Any]]
    constants: frozenset[str]


def keep_float(
    nodes: Sequence[Any],
    initializers: Mapping[str, Any],
    *,
    shape_of: ShapeOf,
    taken: Iterable[str],
) -> tuple[list[Any], dict[str, Any]]:
    """Return nodes and initializers, with a guard before float layers that would be requantized.

    `taken` are names that graph inputs and outputs have. Nodes of the arguments are not changed.
    """
    graph = _look(nodes, initializers)
    targets = [(n, _source(n, graph)) for n in nodes if _is_float_product(n, graph)]
    exposed = [(n, *s) for n, s in targets if s is not None and _ends_quantized(n, graph)]
    if not exposed:
        return list(nodes), dict(initializers)
    guards = _Guards(graph, dict(initializers), taken=set(taken))
    for node, reader, dequantize in exposed:
        guards.add(node, reader, dequantize, shape_of=shape_of)
    return guards.written(nodes), guards.initializers


def _look(nodes: Sequence[Any], initializers: Mapping[str, Any]) -> _Graph:
    readers: dict[str, list[Any]] = {}
    constants = set(initializers)
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
        if node.input and all(not x or x in constants for x in node.input):
            constants.update(node.output)
    return _Graph({o: n for n in nodes for o in n.output}, readers, frozenset(constants))


def _is_float_product(node: Any, graph: _Graph) -> bool:
    """Return whether a node is a product with constant weights that no DequantizeLinear makes."""
    if node.op_type not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return False
    if node.input[1] not in graph.constants or node.input[0] in graph.constants:
        return False
    producer = graph.producer.get(node.input[1])
    if producer is not None and producer.op_type == "DequantizeLinear":
        return False
    readers = graph.readers.get(node.output[0], ())
    if node.op_type == "MatMul":  # ORT makes it a Gemm together with the bias only
        return len(readers) == 1 and _is_fused(readers[0], node.output[0], graph)
    return True


def _is_fused(node: Any, name: str, graph: _Graph) -> bool:
    """Return whether a node is arithmetic with constants that ORT fuses into the product."""
    others = [x for x in node.input if x != name]
    return node.op_type in _FUSED_WITH_CONSTANTS and all(x in graph.constants for x in others)


def _source(node: Any, graph: _Graph) -> tuple[Any, Any] | None:
    """Return the DequantizeLinear whose result reaches the node, and the node that reads it."""
    while True:
        producer = graph.producer.get(node.input[0])
        if producer is None:
            return None
        if producer.op_type == "DequantizeLinear":
            return node, producer
        if producer.op_type not in _LOOKED_THROUGH_BEFORE:
            return None
        node = producer


def _ends_quantized(node: Any, graph: _Graph) -> bool:
    """Return whether every reader, through what ORT looks or moves through, is a QuantizeLinear."""
    name = node.output[0]
    readers = graph.readers.get(name, ())
    return bool(readers) and all(
        r.op_type == "QuantizeLinear"
        or (
            (r.op_type in _LOOKED_THROUGH_BEHIND or _is_fused(r, name, graph))
            and _ends_quantized(r, graph)
        )
        for r in readers
    )


class _Guards:
    """Collects what is written before and instead of nodes."""

    def __init__(self, graph: _Graph, initializers: dict[str, Any], *, taken: set[str]) -> None:
        self.initializers, self.public = initializers, taken
        self.taken = taken | set(initializers) | set(graph.producer)
        self.before: dict[int, list[Any]] = {}  # id of a node → what is written in front of it
        self.inputs: dict[int, str] = {}  # id of a node → what it reads first
        self.views: dict[tuple[str, int], str] = {}  # (dequantized tensor, axis) → its guard
        self.repeated: dict[tuple[str, int], str] = {}  # (constant, length) → its vector

    def add(self, node: Any, reader: Any, dequantize: Any, *, shape_of: ShapeOf) -> None:
        if id(reader) in self.inputs:
            return
        source = dequantize.output[0]
        axis, length = _axis(node, reader, source, shape_of)
        key = (source, axis)
        if key not in self.views:
            ahead = self.before.setdefault(id(reader), [])
            view = self._name(source + "a")
            ahead += self._guard(dequantize, view, axis=axis, length=length)
            self.views[key] = view
        self.inputs[id(reader)] = self.views[key]

    def _guard(self, dequantize: Any, view: str, *, axis: int, length: int) -> list[Any]:
        import onnx

        make = onnx.helper.make_node
        constants = {
            x: onnx.numpy_helper.to_array(self.initializers[x]) for x in dequantize.input[1:]
        }
        signed = any(values.dtype == np.int8 for values in constants.values())
        if length < 2 or signed:
            return [make("Sum", [dequantize.output[0]], [view])]
        written: list[Any] = []
        inputs = [dequantize.input[0]]
        for name, values in constants.items():
            if len(inputs) == 1 or values.any():  # a zero point of 0 need not be said
                inputs.append(self._vector(name, values, length, written))
        return [*written, make("DequantizeLinear", inputs, [view], axis=axis)]

    def _vector(self, name: str, values: Any, length: int, written: list[Any]) -> str:
        """Return the name of a constant repeated `length` times."""
        import onnx

        key = (name, length)
        if key not in self.repeated:
            vector = self.repeated[key] = self._name(name + "v")
            if length < _FEW:
                filled = np.full(length, values.reshape(-1)[0], values.dtype)
                self.initializers[vector] = tensor(vector, filled)
            else:
                size = self._length(length)
                written.append(onnx.helper.make_node("Expand", [name, size], [vector]))
        return self.repeated[key]

    def _length(self, length: int) -> str:
        key = ("", length)
        if key not in self.repeated:
            name = self.repeated[key] = self._name(f"n{length}")
            self.initializers[name] = tensor(name, np.array([length], dtype=np.int64))
        return self.repeated[key]

    def _name(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def written(self, nodes: Sequence[Any]) -> list[Any]:
        """Return all nodes in order; a guard that replaces a DequantizeLinear has its name too."""
        free = {source for source, _ in self.views} - self.public
        for node in nodes:
            free -= {x for i, x in enumerate(node.input) if i or id(node) not in self.inputs}
        for node in (n for ahead in self.before.values() for n in ahead):
            free -= set(node.input)
        views: dict[str, list[str]] = {}
        for (source, _), view in self.views.items():
            views.setdefault(source, []).append(view)
        renamed = {names[0]: source for source, names in views.items() if source in free}
        ordered: list[Any] = []
        for node in nodes:
            if node.op_type == "DequantizeLinear" and node.output[0] in free:
                continue
            ordered += [_with_names(n, renamed) for n in self.before.get(id(node), [])]
            read = self.inputs.get(id(node))
            if read is None:
                ordered.append(node)
            else:
                ordered.append(_with_names(node, {node.input[0]: renamed.get(read, read)}))
        return ordered


def _with_names(node: Any, names: Mapping[str, str]) -> Any:
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(x, x) for x in node.input]
    copy.output[:] = [names.get(x, x) for x in node.output]
    return copy


def _axis(node: Any, reader: Any, source: str, shape_of: ShapeOf) -> tuple[int, int]:
    """Return the axis along which the scale is repeated, and how often.

    Length 0 when none is known.
    """
    weight = shape_of(node.input[1])
    if reader is node and weight:
        length = input_channels(node, weight)
        if length > 1:
            return _named_axis(node), length
    shape = shape_of(source)
    known = [(axis, int(n)) for axis, n in enumerate(shape) if axis and n > 1]
    return known[0] if known else (0, 0)


def _named_axis(node: Any) -> int:
    """Return the axis of the input's channels; a Gemm's is written as 1, its input has two."""
    axis = input_axis(node)
    return 1 if node.op_type == "Gemm" and axis == -1 else axis

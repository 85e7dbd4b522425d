"""A copy of a model to change: its constants, its graph, and its weighted nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.model.graph import attribute, input_channels, weight_axis
from seqto.model.layers import inferred_values
from seqto.model.prepare import Prepared

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weighted:
    """A Conv, Gemm or MatMul whose channels can be scaled one by one."""

    name: str
    op_type: str
    input: str
    output: str
    weight: str
    out_axis: int
    in_axis: int
    depthwise: bool
    outputs: int
    inputs: int
    rank: int  # of its input, 0 where it is not fixed


SHARED = "its weights are a table that an embedding reads too"


class EditableModel:
    """A copy of a prepared model: look-ups, and weights that can be changed."""

    def __init__(self, prepared: Prepared) -> None:
        import onnx

        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(prepared.proto)
        graph = self.proto.graph
        self.constants = {t.name: t for t in graph.initializer}
        self.public = {o.name for o in graph.output}
        self.makers = {o: n for n in graph.node for o in n.output if o}
        self.readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for tensor in node.input:
                self.readers.setdefault(tensor, []).append(node)
        self.shapes = _shapes(self.proto)
        self._changed: dict[str, Floats] = {}
        self._inserted: dict[str, list[Any]] = {}
        layers = [x for x in prepared.layers if x.weight and not x.storage]
        self.nodes = {n.name: n for n in graph.node}
        self.weighted = {
            x.name: SHARED if x.table else self._weighted(self.nodes[x.nodes[0]]) for x in layers
        }

    def array(self, name: str) -> Floats:
        """Return a constant's present values. Doubles: many small steps cost one rounding only."""
        from onnx import numpy_helper

        if name in self._changed:
            return self._changed[name]
        values: Floats = numpy_helper.to_array(self.constants[name]).astype(np.float64)
        return values

    def put(self, name: str, values: Floats) -> None:
        self._changed[name] = values

    def finish(self) -> Any:
        """Return the changed model."""
        from onnx import numpy_helper

        while self._changed:  # doubles take twice the weights' size: each goes when it is written
            name, values = self._changed.popitem()
            tensor = numpy_helper.from_array(values.astype(np.float32), name)
            self.constants[name].CopyFrom(tensor)
        if self._inserted:
            nodes = list(self.proto.graph.node)
            del self.proto.graph.node[:]
            for node in nodes:
                self.proto.graph.node.extend([*self._inserted.get(node.name, []), node])
        return self.proto

    def insert_mul(
        self, node: Any, index: int, *, name: str, factors: Floats, beside: Sequence[Any] = ()
    ) -> None:
        """Multiply what `node` reads as input `index` by constant factors, for this node only.

        Nodes `beside` it that read the same tensor at the same input, and come later in the graph,
        read the product too.
        """
        import onnx

        taken = {n.name for n in self.proto.graph.node}
        while name in taken:
            name += "_"
        source = node.input[index]
        constant = self.add_constant(f"{source}_{len(self._inserted)}s", factors)
        product = self.free_name(f"{source}_{len(self._inserted)}p")
        mul = onnx.helper.make_node("Mul", [source, constant], [product], name=name)
        self._inserted.setdefault(node.name, []).append(mul)
        self.makers[product] = mul
        self.nodes[name] = mul
        self.readers[source].append(mul)
        self.readers[product] = [node, *beside]
        for reader in self.readers[product]:
            self.readers[source].remove(reader)
            reader.input[index] = product

    def add_constant(self, name: str, values: Floats) -> str:
        """Add an initializer; return its name, which is `name` if that is free."""
        name = self.free_name(name)
        tensor = self.proto.graph.initializer.add()
        tensor.name = name
        self.constants[name] = tensor
        self.put(name, values)
        return name

    def free_name(self, name: str) -> str:
        taken = self.constants.keys() | self.makers.keys() | self.readers.keys() | self.public
        while name in taken:
            name += "_"
        return name

    def own_constant(self, node: Any, index: int) -> str:
        """Return the name of a node's constant; one that others read too is copied first."""
        name: str = node.input[index]
        if len(self.readers[name]) > 1:
            copy = self.add_constant(f"{name}_{node.output[0]}", self.array(name))
            self.readers[name].remove(node)
            self.readers[copy] = [node]
            node.input[index] = copy
            name = copy
        return name

    def _weighted(self, node: Any) -> Weighted | str:
        """Return the node with its channel axes, or why its channels cannot be scaled."""
        if node.op_type not in ("Conv", "Gemm", "MatMul"):
            return f"{node.name} is a {node.op_type}, which is not rescaled"
        weight = node.input[1]
        if len(self.readers[weight]) > 1:
            return f"the weights of {node.name} are shared with other nodes"
        dims = [int(d) for d in self.constants[weight].dims]
        depthwise, rank = False, len(dims)
        if node.op_type == "Conv":
            group = int(attribute(node, "group", 1))
            depthwise = group > 1 and dims[1] == 1
            if group > 1 and not depthwise:
                return f"{node.name} is a grouped convolution ({group} groups)"
        elif node.op_type == "MatMul" and len(dims) == 2:
            rank = 0
        elif node.op_type != "Gemm" or attribute(node, "transA"):
            return f"{node.name} is a {node.op_type} of a kind that is not rescaled"
        out_axis = weight_axis(node, len(dims))
        return Weighted(
            name=node.name,
            op_type=node.op_type,
            input=node.input[0],
            output=node.output[0],
            weight=weight,
            out_axis=out_axis,
            in_axis=1 - out_axis,
            depthwise=depthwise,
            outputs=dims[out_axis],
            inputs=input_channels(node, dims),
            rank=rank,
        )


def _shapes(proto: Any) -> dict[str, tuple[int | None, ...]]:
    """Return tensor → its shape where shape inference finds one."""
    return {
        v.name: tuple(int(d.dim_value) or None for d in v.type.tensor_type.shape.dim)
        for v in inferred_values(proto)
        if v.type.tensor_type.HasField("shape")
    }

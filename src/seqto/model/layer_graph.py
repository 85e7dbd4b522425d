"""Edges of a model's graph as people look at it: the layers that each layer reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqto.records import Layer

# Their results tell how long a tensor is, not what is in it: no edge for people
SHAPE_OPS = frozenset(("Shape", "Size"))


def layer_inputs(proto: Any, layers: Sequence[Layer]) -> tuple[tuple[int, ...], ...]:
    """Return, for each layer, the positions of the layers whose results it reads.

    Nodes that belong to no layer (Softmax, a norm taken apart) are passed through.
    """
    # a tied table is read where the model begins, by a layer at its end: no edge, since it would
    # close a circle
    owner = {
        name: position
        for position, layer in enumerate(layers)
        for name in layer.nodes
        if name != layer.table_reader
    }
    origin: dict[str, frozenset[int]] = {
        layer.weight: frozenset([position])
        for position, layer in enumerate(layers)
        if layer.storage and layer.weight and not layer.nodes
    }
    inputs_of: list[set[int]] = [set() for _ in layers]
    nothing: frozenset[int] = frozenset()
    for node in proto.graph.node:
        before = nothing.union(*(origin.get(name, nothing) for name in node.input))
        position = owner.get(node.name)
        if position is not None:
            inputs_of[position] |= before - {position}
            before = frozenset([position])
        for name in node.output:
            origin[name] = nothing if node.op_type in SHAPE_OPS else before
    for position, layer in enumerate(layers):
        if not layer.nodes and not layer.storage:  # an output of the model
            inputs_of[position] |= nothing.union(
                *(origin.get(name, nothing) for name in layer.inputs)
            )
    return tuple(tuple(sorted(positions)) for positions in inputs_of)

"""Which layers a layer reads: the edges of a model's graph as people look at it."""

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
        name: place
        for place, layer in enumerate(layers)
        for name in layer.nodes
        if name != layer.table_reader
    }
    origin: dict[str, frozenset[int]] = {
        layer.weight: frozenset([place])
        for place, layer in enumerate(layers)
        if layer.storage and layer.weight and not layer.nodes
    }
    found: list[set[int]] = [set() for _ in layers]
    nothing: frozenset[int] = frozenset()
    for node in proto.graph.node:
        before = nothing.union(*(origin.get(name, nothing) for name in node.input))
        place = owner.get(node.name)
        if place is not None:
            found[place] |= before - {place}
            before = frozenset([place])
        for name in node.output:
            origin[name] = nothing if node.op_type in SHAPE_OPS else before
    for place, layer in enumerate(layers):
        if not layer.nodes and not layer.storage:  # an output of the model
            found[place] |= nothing.union(*(origin.get(name, nothing) for name in layer.inputs))
    return tuple(tuple(sorted(places)) for places in found)

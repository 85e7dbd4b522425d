"""Nodes that are no layers and only move data: their results have the scale of what goes in.

A Split has several results, and the others have inputs that say what to move, so that they are no
layers (layers.py). Between layers that are quantized, ONNX Runtime runs each of these in integers,
where its input and all of its results have one scale (checked with ONNX Runtime 1.31).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from seqto.records import Layer

PASSING_OPS = frozenset(("Split", "Gather", "GatherElements", "DepthToSpace", "Expand", "Tile"))


def passes_on(node: Any) -> bool:
    """Return whether a node gives numbers of its first input as they are."""
    return node.op_type in PASSING_OPS and node.domain in ("", "ai.onnx")


def reading_origins(proto: Any, layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return layers that read, in place of what was only moved, the tensor that it comes from.

    That is how a search sees them: what is written as integers there is read as integers here.
    """
    constants = {t.name for t in proto.graph.initializer}
    origin: dict[str, str] = {}
    for node in proto.graph.node:
        if passes_on(node) and node.input[0] not in constants:
            source = origin.get(node.input[0], node.input[0])
            origin.update(dict.fromkeys(node.output, source))
    return tuple(
        dataclasses.replace(x, inputs=tuple(dict.fromkeys(origin.get(i, i) for i in x.inputs)))
        if origin.keys() & set(x.inputs)
        else x
        for x in layers
    )


def read_by(nodes: Sequence[Any], tensors: frozenset[str]) -> frozenset[str]:
    """Return the tensors and those that they come from through nodes that only move data."""
    read = set(tensors)
    for node in reversed(nodes):
        if passes_on(node) and read.intersection(node.output):
            read.add(node.input[0])
    return frozenset(read)

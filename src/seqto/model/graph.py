"""A node's name, its attributes, the axes and channels of weighted nodes: one rule for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

CONVOLUTIONS = frozenset(("Conv", "ConvTranspose"))


def attribute(node: Any, name: str, default: float = 0) -> float:
    """Return a node's attribute that is one number."""
    for item in node.attribute:
        if item.name == name:
            return float(item.f if item.type == 1 else item.i)  # 1 = FLOAT
    return default


def attribute_ints(node: Any, name: str) -> tuple[int, ...]:
    """Return a node's attribute that is a list of integers; () where it is not there."""
    return next((tuple(int(i) for i in a.ints) for a in node.attribute if a.name == name), ())


def weight_axis(node: Any, rank: int) -> int:
    """Return the axis of a weighted node's weights (of `rank` dimensions) that its outputs lie on.

    Of a ConvTranspose with groups it holds the channels of one group: each group has as many.
    """
    if node.op_type == "Conv" or (node.op_type == "Gemm" and attribute(node, "transB")):
        return 0
    return 1 if node.op_type == "ConvTranspose" else rank - 1


def input_axis(node: Any) -> int:
    """Return the axis of a weighted node's input that its weights are summed over; -1 is last."""
    if node.op_type in CONVOLUTIONS:
        return 1
    return 0 if node.op_type == "Gemm" and attribute(node, "transA") else -1


def input_channels(node: Any, weight: Sequence[int]) -> int:
    """Return the channels that a weighted node's input has on that axis, by its weights' shape."""
    if node.op_type == "Conv":
        return int(weight[1]) * int(attribute(node, "group", 1))
    if node.op_type == "ConvTranspose":
        return int(weight[0])
    if node.op_type == "Gemm" and attribute(node, "transB"):
        return int(weight[1])
    return int(weight[-2])


def name_nodes(proto: Any) -> None:
    """Name unnamed or doubly named nodes by their op and position: stable by content."""
    taken: set[str] = set()
    for position, node in enumerate(proto.graph.node):
        if not node.name or node.name in taken:
            base = node.name or node.op_type
            name = f"{base}_{position}"
            while name in taken:
                name += "_"
            node.name = name
        taken.add(node.name)

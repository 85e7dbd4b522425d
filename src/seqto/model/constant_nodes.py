"""Nodes that depend on constants alone: ONNX Runtime computes them when it opens a model.

In ordinary models these are a few small shapes. Strange ones can have it multiply large matrices
there for hours, which neither a time limit nor Ctrl-C would end in the main process.
"""

from __future__ import annotations

import math
from typing import Any

from seqto.model.layers import inferred_values

MOST_ELEMENTS = 100_000_000  # of all constant results: well under a second
SHAPES = ("Shape", "Size")  # constants even of tensors that are none
# operators whose time follows from the size of their result
LINEAR = frozenset(
    (
        *("Constant", "ConstantOfShape", "Identity", "Cast", "Reshape", "Flatten", "Squeeze"),
        *("Unsqueeze", "Transpose", "Slice", "Gather", "Concat", "Split", "Expand", "Tile"),
        *("Range", "Where", "Pad", "Shape", "Size", "Trilu", "EyeLike", "GatherElements"),
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Sum", "Neg", "Abs", "Sqrt"),
        *("Exp", "Log", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Sin", "Cos", "Tanh"),
        *("Sigmoid", "Erf", "Relu", "Clip", "Not", "And", "Or", "Xor", "Equal", "Less"),
        *("LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf", "DequantizeLinear"),
    )
)


def may_take_long(proto: Any) -> bool:
    """Return whether opening a model may compute for long: more than LINEAR, large or unknown."""
    if proto.functions or any(a.g.node or a.graphs for n in proto.graph.node for a in n.attribute):
        return True
    results = _constant_results(proto.graph)
    if results is None:
        return True
    if not results:
        return False
    elements = {value.name: _elements(value) for value in inferred_values(proto, data=True)}
    return sum(elements.get(name, math.inf) for name in results) > MOST_ELEMENTS


def _constant_results(graph: Any) -> list[str] | None:
    """Return the tensors that follow from constants; None where an operator is not LINEAR."""
    known = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    results: list[str] = []
    for node in graph.node:  # sorted, as ONNX's checker demands
        if node.op_type not in SHAPES and not all(x in known for x in node.input if x):
            continue
        known.update(x for x in node.output if x)
        if node.op_type not in LINEAR or node.domain not in ("", "ai.onnx"):
            return None
        if node.op_type not in ("Constant", *SHAPES):
            results += [x for x in node.output if x]
    return results


def _elements(value: Any) -> float:
    """Return how many numbers a tensor has; infinite where its shape is not known."""
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return math.inf
    sides = tensor.shape.dim
    return math.prod(d.dim_value if d.HasField("dim_value") else math.inf for d in sides)

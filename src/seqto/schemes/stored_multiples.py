"""Nodes that make int8 or float weights of four bits and multipliers when a session loads."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqto.schemes.integers import Quantized
from seqto.schemes.multiples import divide
from seqto.schemes.part import tensor
from seqto.schemes.types import IntType


def add_multiples(
    items: list[Any],
    nodes: list[Any],
    name: str,
    q: Quantized,
    weight: IntType,
    *,
    integer: bool,
) -> None:
    """Add what makes the tensor `name` of the integers: as int8, or as the same float numbers.

    All nodes are folded at load. Half bytes become floats, are multiplied (exactly) and take the
    shape of the weights.
    """
    import onnx

    make, floats = onnx.helper.make_node, onnx.TensorProto.FLOAT
    axis = q.axis or 0
    moved = np.moveaxis(q.data, axis, 0)
    rows = moved.reshape(len(moved), -1)
    numbers, multipliers = divide(rows, size=weight.multiples)
    four, multiple, shape = name + "4", name + "m", name + "r"
    items += [tensor(four, numbers, bits=4), tensor(multiple, multipliers, bits=4)]
    nodes += [
        make("Cast", [four], [name + "f"], to=floats),
        make("Cast", [multiple], [name + "g"], to=floats),
        make("Mul", [name + "f", name + "g"], [name + "h"]),
    ]
    last = name + "h"
    if numbers[0].size != rows.shape[1]:  # a short last block was filled up
        flat, stop = name + "k", name + "l"
        items += [tensor(flat, np.array([len(rows), -1])), tensor(stop, np.array(rows.shape[1:]))]
        items += [tensor(name + "0", np.array([0])), tensor(name + "1", np.array([1]))]
        nodes.append(make("Reshape", [last, flat], [name + "i"]))
        nodes.append(make("Slice", [name + "i", name + "0", stop, name + "1"], [name + "j"]))
        last = name + "j"
    steps: list[tuple[str, list[str], dict[str, Any]]] = []
    items.append(tensor(shape, np.array(moved.shape, np.int64)))
    steps.append(("Reshape", [shape], {}))
    if axis:
        order = [axis, *(i for i in range(q.data.ndim) if i != axis)]
        steps.append(("Transpose", [], {"perm": [order.index(i) for i in range(q.data.ndim)]}))
    if integer:
        steps.append(("Cast", [], {"to": onnx.TensorProto.INT8}))
    for number, (op, others, attributes) in enumerate(steps):
        result = name if number == len(steps) - 1 else f"{name}u{number}"
        nodes.append(make(op, [last, *others], [result], **attributes))
        last = result

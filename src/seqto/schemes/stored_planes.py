"""Nodes that make int8 or float weights of five or six bits when a session loads.

ONNX has no tensors of five or six bits. The upper four bits of each number are an INT4 tensor; the
lower one or two bits of four or two numbers share an element of a UINT4 tensor, which a table of 16
rows turns into these numbers:

    upper ─▶ Cast ─▶ Mul 2ᵇ ──────────────▶ Add ─▶ Cast int8
    lower ─▶ Cast ─▶ Gather(table) ─▶ Reshape ─▲

All nodes are folded when a session loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.records import Layer
from seqto.schemes.part import tensor
from seqto.schemes.types import PLANE_BITS, IntType

NODE_BYTES = 420  # of the nodes and small constants of one layer, about


def numbers_in_element(weight: IntType) -> int:
    """Return how many numbers share one element of the lower plane."""
    return PLANE_BITS // (weight.bits - PLANE_BITS)


def planes_problem(layer: Layer, weight: IntType) -> str | None:
    """Return why the layer's weights cannot be stored in planes, or None."""
    if not weight.in_planes:
        return None
    count = int(np.prod(layer.weight_shape, dtype=np.int64))
    whole = numbers_in_element(weight)
    return f"{count} numbers are no multiple of {whole}" if count % whole else None


def divide_planes(
    data: NDArray[Any], weight: IntType
) -> tuple[NDArray[np.int8], NDArray[np.uint8]]:
    """Return the upper four bits of all numbers, and the lower ones, several in an element."""
    low_bits = weight.bits - PLANE_BITS
    upper = data >> low_bits
    lower = (data - (upper << low_bits)).astype(np.uint8).reshape(-1, numbers_in_element(weight))
    shifts = low_bits * np.arange(lower.shape[1])
    packed: NDArray[np.uint8] = (lower << shifts).sum(axis=1).astype(np.uint8)
    return upper, packed


def low_numbers(weight: IntType) -> NDArray[np.float32]:
    """Return the table whose row i has the lower bits of the numbers that element i holds."""
    low_bits = weight.bits - PLANE_BITS
    shifts = low_bits * np.arange(numbers_in_element(weight))
    elements = np.arange(1 << PLANE_BITS)[:, None] >> shifts
    table: NDArray[np.float32] = (elements & ((1 << low_bits) - 1)).astype(np.float32)
    return table


def add_planes(
    items: list[Any],
    nodes: list[Any],
    name: str,
    data: NDArray[Any],
    weight: IntType,
    *,
    integer: bool,
) -> None:
    """Add what makes the tensor `name` of the integers: as int8, or as the same float numbers."""
    import onnx

    make, kinds = onnx.helper.make_node, onnx.TensorProto
    upper, packed = divide_planes(data, weight)
    step = np.float32(1 << (weight.bits - PLANE_BITS))
    items += [
        tensor(name + "4", upper, bits=4),
        tensor(name + "l", packed, bits=4),
        tensor(name + "t", low_numbers(weight)),
        tensor(name + "m", np.array(step)),
        tensor(name + "r", np.array(data.shape, np.int64)),
    ]
    total = name + "a" if integer else name
    nodes += [
        make("Cast", [name + "4"], [name + "f"], to=kinds.FLOAT),
        make("Mul", [name + "f", name + "m"], [name + "h"]),
        make("Cast", [name + "l"], [name + "i"], to=kinds.INT32),
        make("Gather", [name + "t", name + "i"], [name + "g"]),
        make("Reshape", [name + "g", name + "r"], [name + "n"]),
        make("Add", [name + "h", name + "n"], [total]),
    ]
    if integer:
        nodes.append(make("Cast", [total], [name], to=kinds.INT8))

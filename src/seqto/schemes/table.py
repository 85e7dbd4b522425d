"""Tables and other constants in the file: numbers of few bits with a scale per row or block.

A Gather reads rows of the integers and rows of the scales, and only these become floats:

    ids ─┬─▶ Gather(integers) ─▶ Cast ─▶ Mul ──▶
         └─▶ Gather(scales) ─────────────▲

`DequantizeLinear → Gather` would restore the whole table at every run (measured: 250 to 800 times
the time). Other constants become floats when a session loads. A tied table is stored as the Gather
has it; the product reads its transpose, which is made when a session loads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.records import Layer
from seqto.schemes.blocks import quantize_blocks
from seqto.schemes.half_precision import add_floats, with_half_scales
from seqto.schemes.integers import Floats, Quantized, quantize
from seqto.schemes.part import Constants, NodeWriter, rounded_weight, tensor
from seqto.schemes.stored_planes import NODE_BYTES, add_planes
from seqto.schemes.types import IntType

TIED = "its table is shared with an embedding, which cannot read it so"


def is_table(layer: Layer) -> bool:
    """Return whether weights are kept as rows: a table, a constant, or a table shared with one."""
    return layer.storage or layer.table is not None


def stored_name(layer: Layer) -> str:
    return layer.table or layer.weight or ""


def rows_of(layer: Layer, constants: Constants) -> Floats:
    """Return the table, or a constant as a matrix with its last axis as rows."""
    values = constants.weight(layer)
    if layer.table is not None:
        return np.ascontiguousarray(values.T)
    return values.reshape(-1, values.shape[-1] if values.ndim else 1)


def summed_length(layer: Layer) -> int:
    """Return how many numbers of the layer's weights are summed, or read as one row."""
    shape = layer.weight_shape
    if layer.table is not None:
        return shape[0]
    if layer.storage or layer.transposed:
        return shape[-1] if shape else 1
    return shape[-2]


def quantized_rows(
    layer: Layer, weight: IntType, constants: Constants, *, block: int = 0, rounded: bool = False
) -> Quantized:
    """Return the rows as integers with scales by row or block, by plain or output rounding."""
    if rounded and layer.table is not None:
        return rounded_weight(layer, weight, constants, block=block).turned()
    rows = rows_of(layer, constants)
    if block:
        return quantize_blocks(rows, weight, axis=1, block=block)
    return with_half_scales(rows, quantize(rows, weight, axis=0), weight)


def add_rows(
    layer: Layer, q: Quantized, items: list[Any], nodes: list[Any], *, weight: IntType
) -> None:
    """Add the integers "…q" and the scales "…s"; few bits are widened to "…e" at load."""
    import onnx

    w = stored_name(layer)
    shape = q.data.shape if layer.table is not None else layer.weight_shape
    name = integers_name(layer, weight)
    if weight.in_planes:
        add_planes(items, nodes, name, q.data.reshape(shape), weight, integer=True)
    else:
        items.append(tensor(w + "q", q.data.reshape(shape), bits=weight.bits))
    scale = q.scale if q.block else q.scale.reshape(*shape[:-1], 1)
    add_floats(items, nodes, w + "s", scale)
    if weight.is_narrow and not weight.in_planes:
        nodes.append(onnx.helper.make_node("Cast", [w + "q"], [name], to=onnx.TensorProto.INT8))


def integers_name(layer: Layer, weight: IntType) -> str:
    return stored_name(layer) + ("e" if weight.is_narrow else "q")


def add_restored(
    layer: Layer, q: Quantized, items: list[Any], nodes: list[Any], *, weight: IntType
) -> None:
    """Add nodes that make the whole constant float again, folded when a session loads."""
    import onnx

    make = onnx.helper.make_node
    w, source = stored_name(layer), integers_name(layer, weight)
    whole = w if layer.table is None else w + "f"
    nodes.append(make("Cast", [source], [w + "c"], to=onnx.TensorProto.FLOAT))
    if q.block:
        count = q.data.shape[1] // q.block
        split = np.array([len(q.data), count, q.block], np.int64)
        shape = q.data.shape if layer.table is not None else layer.weight_shape
        items += [
            tensor(w + "k", split),
            tensor(w + "l", np.array([len(q.data), count, 1], np.int64)),
            tensor(w + "o", np.array(shape, np.int64)),
        ]
        nodes += [
            make("Reshape", [w + "c", w + "k"], [w + "c3"]),
            make("Reshape", [w + "s", w + "l"], [w + "s3"]),
            make("Mul", [w + "c3", w + "s3"], [w + "m3"]),
            make("Reshape", [w + "m3", w + "o"], [whole]),
        ]
    else:
        nodes.append(make("Mul", [w + "c", w + "s"], [whole]))
    if layer.table is not None:
        nodes.append(make("Transpose", [whole], [layer.weight or ""], perm=[1, 0]))


def write_rows(node: Any, layer: Layer, graph: NodeWriter, *, block: int, weight: IntType) -> None:
    """Write a Gather that reads rows of integers; the table itself has been written."""
    import onnx

    make = onnx.helper.make_node
    w, y = stored_name(layer), node.output[0]
    g = y + "g"  # y + "q" and y + "s" are those of a static reader
    ids = graph.float_name(node.input[1])
    if block:
        stored = Stored(integers_name(layer, weight), w + "s")
        graph.append(*block_nodes(layer, stored, ids, y, block=block, name=node.name))
        return
    nodes = [
        make("Gather", [integers_name(layer, weight), ids], [g + "q"], name=node.name),
        make("Gather", [w + "s", ids], [g + "s"]),
        make("Cast", [g + "q"], [g + "c"], to=onnx.TensorProto.FLOAT),
    ]
    graph.append([*nodes, make("Mul", [g + "c", g + "s"], [y])], [])


@dataclass(frozen=True, slots=True)
class Stored:
    """The tensors that rows in blocks are read from."""

    integers: str
    scales: str


def block_nodes(
    layer: Layer, stored: Stored, ids: str, output: str, *, block: int, name: str = ""
) -> tuple[list[Any], list[Any]]:
    """Return the nodes that read rows in blocks, and the constants that they need."""
    import onnx

    make = onnx.helper.make_node
    w, g, length = stored_name(layer), output + "g", summed_length(layer)
    items = [
        tensor(w + "rk", np.array([-1, length // block, block], np.int64)),
        tensor(w + "rl", np.array([-1, length // block, 1], np.int64)),
    ]
    nodes = [
        make("Gather", [stored.integers, ids], [g + "q"], name=name),
        make("Gather", [stored.scales, ids], [g + "s"]),
        make("Cast", [g + "q"], [g + "c"], to=onnx.TensorProto.FLOAT),
        make("Reshape", [g + "c", w + "rk"], [g + "c3"]),
        make("Reshape", [g + "s", w + "rl"], [g + "s3"]),
        make("Mul", [g + "c3", g + "s3"], [g + "m3"]),
        make("Shape", [g + "q"], [g + "z"]),
        make("Reshape", [g + "m3", g + "z"], [output]),
    ]
    return nodes, items


def rows_bytes(layer: Layer, *, weight: IntType, block: int) -> int:
    """Return the bytes of the integers, their scales in half precision, and the nodes."""
    numbers = int(np.prod(layer.weight_shape, dtype=np.int64))
    scales = numbers // (block or max(1, summed_length(layer)))
    nodes = (700 if block else 400) + (NODE_BYTES if weight.in_planes else 0)
    return numbers * weight.bits // 8 + 2 * scales + nodes

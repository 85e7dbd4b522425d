"""Tables of four bits in blocks whose rows that calibration reads have eight.

What rounding to four bits leaves of such rows is rounded to four bits again. Both are added as rows
are read; all other rows add a row of zeros:

    ids ─┬─▶ Gather(integers, scales) ─▶ Mul ──────────────────────────────▶ Add ──▶
         └─▶ Gather(place) ─▶ Cast ─▶ Gather(finer integers, scales) ─▶ Mul ──▲

Words are read very unequally: a few hundred rows of 30,000 are two thirds of all reads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.records import Layer
from seqto.schemes import table
from seqto.schemes.blocks import quantize_blocks
from seqto.schemes.half_precision import add_floats
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.part import Constants, NodeWriter, tensor
from seqto.schemes.types import IntType

NODE_BYTES = 500  # of the nodes that read finer rows, about
PLACE_LIMIT = 1 << 16  # rows, beyond which a place needs more than 16 bits


def read_rows(layer: Layer, constants: Constants) -> NDArray[np.int64]:
    """Return the rows that calibration reads; none where it does not know the table."""
    reads = constants.row_reads(layer)
    return np.zeros(0, np.int64) if reads is None else reads.rows


def finer_rows(rows: Floats, q: Quantized, weight: IntType) -> Quantized:
    """Return what rounding leaves of some rows, rounded to the same type again."""
    return quantize_blocks(rows - q.restore(), weight, axis=1, block=q.block)


def chosen_rows(q: Quantized, chosen: NDArray[np.int64]) -> Quantized:
    return Quantized(q.data[chosen], q.scale[chosen], q.zero_point[chosen], q.axis, q.block)


def restore_rows(rows: Floats, q: Quantized, weight: IntType, read: NDArray[np.int64]) -> Floats:
    """Return the values of all rows: those that are read in eight bits."""
    restored: Floats = q.restore()
    restored[read] += finer_rows(rows[read], chosen_rows(q, read), weight).restore()
    return restored


def add_finer_rows(
    layer: Layer,
    q: Quantized,
    items: list[Any],
    nodes: list[Any],
    *,
    weight: IntType,
    constants: Constants,
) -> None:
    """Add the finer rows behind a row of zeros, and the place of every row of the table there."""
    import onnx

    read = read_rows(layer, constants)
    rows = table.rows_of(layer, constants)[read]
    finer = finer_rows(rows, chosen_rows(q, read), weight)
    name = _finer_name(layer)
    data = np.concatenate([np.zeros((1, finer.data.shape[1]), finer.data.dtype), finer.data])
    scale = np.concatenate([np.ones((1, finer.scale.shape[1]), np.float32), finer.scale])
    kind = np.uint16 if len(data) <= PLACE_LIMIT else np.int32
    place = np.zeros(len(q.data), kind)
    place[read] = np.arange(1, len(data))
    items += [tensor(name + "q", data, bits=weight.bits), tensor(name + "p", place)]
    add_floats(items, nodes, name + "s", scale)
    int8 = onnx.TensorProto.INT8
    nodes.append(onnx.helper.make_node("Cast", [name + "q"], [name + "e"], to=int8))


def write_finer_rows(
    node: Any, layer: Layer, graph: NodeWriter, *, block: int, weight: IntType
) -> None:
    """Write a Gather that reads rows, and finer rows beside them, and adds these."""
    import onnx

    make, name = onnx.helper.make_node, _finer_name(layer)
    y, ids = node.output[0], graph.float_name(node.input[1])
    coarse, fine, place = y + "g4", y + "g8", y + "gp"
    nodes, items = table.block_nodes(
        layer,
        table.Stored(table.integers_name(layer, weight), table.stored_name(layer) + "s"),
        ids,
        coarse,
        block=block,
        name=node.name,
    )
    nodes += [
        make("Gather", [name + "p", ids], [place]),
        make("Cast", [place], [place + "i"], to=onnx.TensorProto.INT64),
    ]
    more, _ = table.block_nodes(
        layer, table.Stored(name + "e", name + "s"), place + "i", fine, block=block
    )
    graph.append([*nodes, *more, make("Add", [coarse, fine], [y])], items)


def finer_bytes(layer: Layer, constants: Constants, *, block: int) -> int:
    """Return the bytes that finer rows add to a table."""
    count = len(read_rows(layer, constants)) + 1
    width = table.summed_length(layer)
    place = 2 if count <= PLACE_LIMIT else 4
    return count * (width // 2 + 2 * (width // block)) + place * layer.weight_shape[0] + NODE_BYTES


def _finer_name(layer: Layer) -> str:
    return table.stored_name(layer) + "8"

"""Constants that are no factor of a product: embedding tables, weights of GRUs, rotary tables.

    ids ──▶ Gather(table) ──▶          rows of the table: one layer, named after the Gather
    x ──▶ GRU(W, R, B) ──▶             one layer a constant, named "<node>:W", "<node>:R"
    ids ──▶ Gather(table) ─▶ … ─▶ MatMul(tableᵀ) ──▶      a tied table: one layer, the MatMul's

All of them can be stored in fewer bytes; nothing else about them is to choose. Small ones are left
as they are, and so are those beyond half precision's range: masks of -3e38.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.model.graph import attribute
from seqto.records import Layer

CONSTANT_OP = "Constant"  # op type of a constant's layer that is no table of rows
LEAST_NUMBERS = 256  # in a constant that is a layer
LEAST_SHARE = 0.002  # of all constants' bytes


FLOAT32 = 1  # onnx.TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class TiedTable:
    """A table whose rows a Gather reads and whose transpose a product has as weights."""

    table: str
    gather: str

    def joined(self, layer: Layer) -> Layer:
        """Return the product's layer with the Gather as its last node."""
        return dataclasses.replace(
            layer,
            nodes=(*layer.nodes, self.gather),
            table=self.table,
            table_reader=self.gather,
        )


def tied_tables(
    graph: Any,
    constants: Mapping[str, Any],
    readers: Mapping[str, Sequence[Any]],
    *,
    weighted: Callable[[Any, Mapping[str, Any]], bool],
) -> dict[str, TiedTable]:
    """Return node of a product → the table that it shares with a Gather.

    Exporters write `MatMul(x, Transpose(table))`; folded, its weights are a second constant.
    """
    gathers = [n for n in graph.node if _reads_rows(n, constants)]
    lone = [n for n in gathers if len(readers[n.input[0]]) == 1 and _is_large(n, constants)]
    ties: dict[str, TiedTable] = {}
    for gather in lone:
        table = constants[gather.input[0]]
        for node in graph.node:
            if node.op_type != "MatMul" or node.name in ties or not weighted(node, constants):
                continue
            if list(constants[node.input[1]].dims) != list(table.dims)[::-1]:
                continue
            if len(readers[node.input[1]]) == 1 and _is_transpose(table, constants[node.input[1]]):
                ties[node.name] = TiedTable(gather.input[0], gather.name)
                break
    return ties


def table_layers(graph: Any, layers: Sequence[Layer], *, floats: set[str]) -> list[Layer]:
    """Return layers for the large float constants that no layer has."""
    constants = {t.name: t for t in graph.initializer}
    owned = {name for x in layers for name in (x.weight, x.bias, x.table) if name}
    least = LEAST_SHARE * sum(_numbers(t) for t in constants.values())
    tables: list[Layer] = []
    added: set[str] = set()
    for node in graph.node:
        for position, name in enumerate(node.input):
            if name not in constants or name in owned | added:
                continue
            tensor = constants[name]
            added.add(name)
            large = _numbers(tensor) >= max(LEAST_NUMBERS, least)
            if large and int(tensor.data_type) == FLOAT32 and _is_moderate(tensor):
                output = next((o for o in node.output if o in floats), "")
                if output:
                    tables.append(_table_layer(graph, node, position, tensor, output))
    return tables


def _table_layer(graph: Any, node: Any, position: int, tensor: Any, output: str) -> Layer:
    readers = [n for n in graph.node if tensor.name in n.input]
    is_table = len(readers) == 1 and _reads_rows(node, {tensor.name: tensor})
    return Layer(
        name=node.name if is_table else f"{node.name}:{_input_name(node, position)}",
        op_type="Gather" if is_table else CONSTANT_OP,
        nodes=(node.name,) if is_table else (),
        inputs=(),
        output=output,
        parameters=_numbers(tensor),
        weight=tensor.name,
        weight_shape=tuple(int(d) for d in tensor.dims),
        storage=True,
    )


def _input_name(node: Any, position: int) -> str:
    """Return an input's name as the operator's documentation has it, else its position."""
    import onnx

    if node.domain in ("", "ai.onnx") and onnx.defs.has(node.op_type):
        inputs = onnx.defs.get_schema(node.op_type).inputs
        if position < len(inputs):
            return str(inputs[position].name)
    return str(position)


def _reads_rows(node: Any, constants: Mapping[str, Any]) -> bool:
    """Return whether a node is a Gather of rows of a constant matrix."""
    if node.op_type != "Gather" or node.domain not in ("", "ai.onnx"):
        return False
    tensor = constants.get(node.input[0])
    if tensor is None or int(tensor.data_type) != FLOAT32 or len(tensor.dims) != 2:
        return False
    return attribute(node, "axis", 0) == 0 and node.input[1] not in constants


def _is_large(gather: Any, constants: Mapping[str, Any]) -> bool:
    return _numbers(constants[gather.input[0]]) >= LEAST_NUMBERS


def _numbers(tensor: Any) -> int:
    return int(np.prod([int(d) for d in tensor.dims], dtype=np.int64))


def _is_moderate(tensor: Any) -> bool:
    """Return whether numbers are finite and within half precision's range."""
    import onnx

    values = onnx.numpy_helper.to_array(tensor)
    limit = float(np.finfo(np.float16).max)
    return bool(values.min() >= -limit and values.max() <= limit)  # nan is neither


def _is_transpose(table: Any, weight: Any) -> bool:
    import onnx

    one, other = onnx.numpy_helper.to_array(table), onnx.numpy_helper.to_array(weight)
    # a few rows first: most tables of equal shape are different ones
    return bool(np.array_equal(one[:4], other[:, :4].T) and np.array_equal(one, other.T))

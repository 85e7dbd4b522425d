"""Products by constants, written as MatMul: kernels for integers exist for that form alone.

    Einsum("bsd,dhk->bshk", x, w)   →  MatMul(x, [d, h·k]) ─▶ Reshape(0, 0, h, k)
    Einsum("bshk,hkd->bsd", x, w)   →  Reshape(0, 0, h·k) ─▶ MatMul([h·k, d])
    Gemm(x, table, transB=1)        →  MatMul(x, tableᵀ) (─▶ Add), where a Gather reads the table

The second form of a table's product is what exporters write for a head of the last token alone; as
a MatMul it is found to share the embedding's table (tables.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.model.graph import attribute

FLOAT = 1  # onnx.TensorProto.FLOAT


@dataclass(frozen=True, slots=True)
class Terms:
    """The letters of an Einsum that is a product of an activation by constant weights."""

    data_only: str  # letters of the activation alone, in front
    summed: str  # letters of both
    weight_only: str  # letters of the weights alone, behind
    weight: str  # the weights' own letters, in their order


def write_products(proto: Any) -> None:
    """Replace, in place, Einsums by constants and transposed products by an embedding's table."""
    graph = proto.graph
    constants = {t.name: t for t in graph.initializer}
    tables = {n.input[0] for n in graph.node if n.op_type == "Gather" and n.input[0] in constants}
    nodes: list[Any] = []
    changed = False
    for node in graph.node:
        written: list[Any] | None = None
        if node.op_type == "Einsum" and node.domain in ("", "ai.onnx"):
            written = _einsum(node, constants, graph)
        elif node.op_type == "Gemm" and node.input[1] in tables:
            written = _gemm(node, constants, graph)
        nodes += [node] if written is None else written
        changed = changed or written is not None
    if changed:
        copies = [type(n).FromString(n.SerializeToString()) for n in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        _drop_unused(graph)


def _einsum(node: Any, constants: Mapping[str, Any], graph: Any) -> list[Any] | None:
    """Return a MatMul with the Reshapes that it needs, or None."""
    import onnx

    factors = _factors(node, constants)
    if factors is None:
        return None
    data, weight, terms = factors
    values = onnx.numpy_helper.to_array(constants[weight])
    order = [terms.weight.index(x) for x in terms.summed + terms.weight_only]
    turned = values.transpose(order)
    split = turned.shape[len(terms.summed) :]
    matrix = turned.reshape(int(np.prod(turned.shape[: len(terms.summed)])), -1)
    w, y = f"{node.name}/weight", node.output[0]
    _add(graph, w, np.ascontiguousarray(matrix))
    make = onnx.helper.make_node
    nodes: list[Any] = []
    leading = [0] * len(terms.data_only)
    if len(terms.summed) > 1:
        _add(graph, f"{node.name}/joined", np.array([*leading, len(matrix)], np.int64))
        nodes.append(make("Reshape", [data, f"{node.name}/joined"], [f"{y}/in"]))
        nodes[-1].name = f"{node.name}/Joined"
        data = f"{y}/in"
    product = y if len(split) == 1 else f"{y}/flat"
    nodes.append(make("MatMul", [data, w], [product], name=node.name))
    if len(split) != 1:
        _add(graph, f"{node.name}/split", np.array([*leading, *split], np.int64))
        nodes.append(make("Reshape", [product, f"{node.name}/split"], [y]))
        nodes[-1].name = f"{node.name}/Split"
    return nodes


def _factors(node: Any, constants: Mapping[str, Any]) -> tuple[str, str, Terms] | None:
    """Return the activation, the weights and the letters; None where it is no such product."""
    equation = next((a.s.decode() for a in node.attribute if a.name == "equation"), "")
    match = re.fullmatch(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)", equation.replace(" ", ""))
    if match is None or len(node.input) != 2:
        return None
    sides = list(zip(node.input, match.groups()[:2], strict=True))
    if sides[0][0] in constants:
        sides.reverse()
    (data, letters), (weight, own) = sides
    if data in constants or weight not in constants:
        return None
    repeated = len(set(letters)) < len(letters) or len(set(own)) < len(own)
    if int(constants[weight].data_type) != FLOAT or repeated:
        return None
    summed = "".join(x for x in letters if x in own)
    data_only = "".join(x for x in letters if x not in own)
    weight_only = match[3][len(data_only) :]
    fits = (
        data_only
        and summed
        and letters == data_only + summed
        and match[3] == data_only + weight_only
        and sorted(own) == sorted(summed + weight_only)
    )
    return (
        (data, weight, Terms(data_only, summed, weight_only, own)) if fits and weight_only else None
    )


def _gemm(node: Any, constants: Mapping[str, Any], graph: Any) -> list[Any] | None:
    """Return a MatMul by the turned table, and an Add where there is a bias, or None."""
    import onnx

    plain = all(attribute(node, name, 1.0) == 1.0 for name in ("alpha", "beta", "transB"))
    if not plain or not attribute(node, "transB") or attribute(node, "transA"):
        return None
    table = onnx.numpy_helper.to_array(constants[node.input[1]])
    w, y = f"{node.name}/turned", node.output[0]
    _add(graph, w, np.ascontiguousarray(table.T))
    biased = len(node.input) > 2 and bool(node.input[2])
    product = f"{y}/product" if biased else y
    nodes = [onnx.helper.make_node("MatMul", [node.input[0], w], [product], name=node.name)]
    if biased:
        added = onnx.helper.make_node("Add", [product, node.input[2]], [y])
        added.name = f"{node.name}/Add"
        nodes.append(added)
    return nodes


def _add(graph: Any, name: str, values: Any) -> None:
    import onnx

    graph.initializer.append(onnx.numpy_helper.from_array(values, name))


def _drop_unused(graph: Any) -> None:
    """Remove the constants that nothing reads any more."""
    used = {x for n in graph.node for x in n.input} | {o.name for o in graph.output}
    if any(a.type in (5, 10) for n in graph.node for a in n.attribute):
        return  # graphs inside of nodes may read them
    read = [t for t in graph.initializer if t.name in used]
    del graph.initializer[:]
    graph.initializer.extend(read)

"""The edges between layers, as the page's graph and report.json have them."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import nets
import text_nets
import token_nets
from seqto.model.layer_graph import layer_inputs
from seqto.model.prepare import prepare


def edges(model: Any) -> tuple[list[str], list[set[str]]]:
    prepared = prepare(model, name="net")
    names = [layer.name for layer in prepared.layers]
    found = layer_inputs(prepared.proto, prepared.layers)
    assert len(found) == len(names)
    return names, [{names[p] for p in places} for places in found]


def test_a_residual_net_has_both_ways_to_its_add() -> None:
    names, reads = edges(nets.residual())
    add = next(i for i, name in enumerate(names) if "add" in name.lower())
    assert len(reads[add]) == 2
    assert reads[-1]  # the output reads the last layer


@pytest.mark.parametrize("make", [nets.residual, nets.branches, nets.decoder, nets.reshaped])
def test_every_layer_but_the_first_ones_reads_an_earlier_one(make: Any) -> None:
    names, reads = edges(make())
    for place, found in enumerate(reads):
        assert all(names.index(name) < place for name in found)
    assert sum(not found for found in reads) <= 2  # those that read the model's inputs


def test_nodes_outside_of_layers_are_passed_through() -> None:
    """x → conv a → Softmax (no layer) → conv b: b reads a; the shape of a's result is no edge."""
    prepared = prepare(text_nets.classifier(), name="net")
    found = layer_inputs(prepared.proto, prepared.layers)
    inside = {name for layer in prepared.layers for name in layer.nodes}
    assert any(node.name not in inside for node in prepared.proto.graph.node)
    last = len(prepared.layers) - 1
    seen, todo = set(), [last]
    while todo:
        place = todo.pop()
        if place not in seen:
            seen.add(place)
            todo += found[place]
    assert seen == set(range(len(prepared.layers)))  # all of it leads to the output


def test_a_shape_is_no_edge() -> None:
    node = onnx.helper.make_node
    from seqto.records import Layer

    graph = onnx.GraphProto(
        node=[
            node("Relu", ["x"], ["a"], name="a"),
            node("Shape", ["a"], ["s"], name="s"),
            node("Reshape", ["y", "s"], ["b"], name="b"),
        ]
    )
    layers = [
        Layer("a", "Relu", ("a",), ("x",), "a", 0),
        Layer("b", "Reshape", ("b",), ("y",), "b", 0),
    ]
    assert layer_inputs(onnx.ModelProto(graph=graph), layers) == ((), ())


def test_a_tied_table_closes_no_circle() -> None:
    """embedding (a Gather of the head's weights) → … → head: the head reads, and is not read."""
    prepared = prepare(token_nets.decoder(), name="net")
    found = layer_inputs(prepared.proto, prepared.layers)
    tied = next(i for i, layer in enumerate(prepared.layers) if layer.table_reader)
    assert found[tied]
    assert all(p < place for place, places in enumerate(found) for p in places)

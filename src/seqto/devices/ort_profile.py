"""Attribute the kernel times of ONNX Runtime's profile to layers."""

from __future__ import annotations

from collections.abc import Mapping

from seqto.assembly.assembler import Assembler
from seqto.assembly.joined_products import SEPARATOR
from seqto.records import Json

CONVERSIONS = ("QuantizeLinear", "DequantizeLinear", "ReorderInput", "ReorderOutput", "Transpose")


def node_owners(assembler: Assembler) -> dict[str, str]:
    """Return name → layer, of nodes and tensors: ORT names blocked convolutions by their output."""
    owner: dict[str, str] = {}
    layer_of = {n: x.name for x in assembler.prepared.layers for n in x.nodes}
    for node in assembler.prepared.proto.graph.node:
        if node.name in layer_of:
            owner[node.name] = layer_of[node.name]
            owner.update(dict.fromkeys(node.output, layer_of[node.name]))
    return owner


def attribute_times(
    rows: list[Json], owner: Mapping[str, str], *, repeats: Mapping[str, int] | None = None
) -> Json:
    """Return milliseconds, provider and op by layer; kernels of no layer under an empty name.

    `kernels` names the op that ran for a layer (Conv, QLinearConv, …): the first that is no
    conversion, since rows are in the order of execution and activations come behind. A device may
    run in integers what the plan keeps float, or the other way round; this is what it did.
    `conversion_ms` is what changing between integers and floats costs in all. `repeats` says how
    often layers whose names begin so run for one sample (a decoder's, in each step).
    """
    milliseconds: dict[str, float] = {}
    placement: dict[str, str] = {}
    kernels: dict[str, str] = {}
    conversions: list[float] = []
    for row in rows:
        layers = _layers_of(row["node"], owner)
        times = next((n for p, n in (repeats or {}).items() if layers[0].startswith(p)), 1)
        for layer in layers:
            share = times * row["ms"] / len(layers)
            milliseconds[layer] = milliseconds.get(layer, 0.0) + share
        if row["op"] in CONVERSIONS:
            conversions.append(times * row["ms"])
        for layer in filter(None, layers):
            placement[layer] = row["provider"]
            if row["op"] not in CONVERSIONS:
                kernels.setdefault(layer, row["op"])
    # providers that compile (OpenVINO, QNN, …) show one row for all the layers they took in
    compiled = {r["provider"] for r in rows if r["node"].startswith(r["provider"])}
    if len(compiled) == 1:
        (provider,) = compiled
        placement = {**dict.fromkeys(owner.values(), provider), **placement}
    return {
        "layers_ms": milliseconds,
        "placement": placement,
        "kernels": kernels,
        "conversion_ms": sum(conversions),
        "conversions": len(conversions),
    }


def _layers_of(name: str, owner: Mapping[str, str]) -> list[str]:
    """Return the layer of a node; of a joined product, its layers; [""] where there is none."""
    layer = _layer_of(name, owner)
    if layer or SEPARATOR not in name:
        return [layer]
    layers = [_layer_of(part, owner) for part in name.split(SEPARATOR)]
    return layers if all(layers) else [""]


def _layer_of(name: str, owner: Mapping[str, str]) -> str:
    while name not in owner and "_" in name:  # fused nodes carry suffixes
        name = name.rsplit("_", 1)[0]
    return owner.get(name, "")

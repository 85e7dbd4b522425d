"""A Mul with constant factors in front of layers, at the place where it costs least."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seqto.transforms.editable_model import EditableModel, Floats, Weighted

SUFFIX = "/smooth"  # of the name of an inserted Mul


def inserted_name(node: str) -> bool:
    """Return whether a node has the name of an inserted Mul."""
    return node.rstrip("_").endswith(SUFFIX)


def insert_factors(draft: EditableModel, layers: Sequence[Weighted], factors: Floats) -> None:
    """Multiply the channels of the input that all `layers` read, for these layers only.

    For a convolution behind a product the Mul stands at one factor of it: at a gate of one value a
    channel it costs next to nothing, and a product that is smooth itself can be quantized too
    (HardSwish is prepared as x · HardSigmoid(x)).
    """
    first = layers[0]
    shape = [1, -1, *[1] * (first.rank - 2)] if first.op_type == "Conv" else [-1]
    nodes = [draft.makers[layer.output] for layer in layers]
    position = {node.name: i for i, node in enumerate(draft.proto.graph.node)}
    node, *beside = sorted(nodes, key=lambda n: position[n.name])
    index = 0
    product = draft.makers.get(first.input)
    if product is not None and product.op_type == "Mul" and _is_private(draft, first.input):
        factors_at = [i for i, x in enumerate(product.input) if _takes(draft, x, first)]
        if factors_at:
            node, beside = product, []
            index = min(factors_at, key=lambda i: _positions(draft, product.input[i]))
    draft.insert_mul(
        node,
        index,
        name=first.name + SUFFIX,
        factors=factors.reshape(shape),
        beside=beside,
    )


def _is_private(draft: EditableModel, tensor: str) -> bool:
    return tensor not in draft.public and len(draft.readers[tensor]) == 1


def _takes(draft: EditableModel, tensor: str, layer: Weighted) -> bool:
    """Return whether a tensor has the layer's input channels and nobody else reads it."""
    shape = draft.shapes.get(tensor, ())
    private = tensor in draft.makers and _is_private(draft, tensor)
    return private and len(shape) == layer.rank == 4 and shape[1] == layer.inputs


def _positions(draft: EditableModel, tensor: str) -> float:
    """Return the count of values of one channel; infinite where the shape is not known."""
    return math.prod(d or math.inf for d in draft.shapes[tensor][2:])

"""Notes on the nodes of a model: the scheme of their layer, where viewers of ONNX files show it.

The note is an entry of the node's `metadata_props`, which sessions ignore; Netron lists it with the
node's properties.
"""

from __future__ import annotations

from collections.abc import Sequence

from seqto.assembly.joined_products import SEPARATOR
from seqto.assembly.plan import Plan
from seqto.model.files import to_bytes
from seqto.records import Layer
from seqto.schemes.scheme import FP32

SCHEME_KEY = "seqto.scheme"


def with_node_notes(data: bytes, plan: Plan, layers: Sequence[Layer]) -> bytes:
    """Return a serialized model whose nodes say how their layer is kept."""
    import onnx

    schemes = dict(plan.schemes)
    codes = {node: schemes.get(layer.name, FP32).code for layer in layers for node in layer.nodes}
    proto = onnx.load_from_string(data)
    for node in proto.graph.node:
        names = [node.name] if node.name in codes else node.name.split(SEPARATOR)
        if codes.keys() >= set(names):
            entry = node.metadata_props.add()
            entry.key = SCHEME_KEY
            entry.value = ", ".join(dict.fromkeys(codes[name] for name in names))
    return to_bytes(proto)

"""Weights that several layers share: a detector's head over all scales, ALBERT's repeated block.

Preparation gives each layer a constant of its own (prepare.unshare_weights), since a layer is
decided by itself. Layers with equal constants that a plan treats alike have equal integers, and an
assembled file stores what is equal once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from seqto.records import Layer

LEAST_BYTES = 64  # of a constant that is stored once: a name more costs about a third of that


def equal_weights(proto: Any, layers: Iterable[Layer]) -> list[tuple[str, ...]]:
    """Return groups of layers of one kind whose weights are equal."""
    constants = {t.name: t for t in proto.graph.initializer}
    alike: dict[Any, list[Layer]] = defaultdict(list)
    for layer in layers:
        if layer.weight in constants and not layer.storage:
            alike[layer.op_type, layer.weight_shape].append(layer)
    groups: list[tuple[str, ...]] = []
    for candidates in alike.values():
        if len(candidates) > 1:
            by_content: dict[bytes, list[str]] = defaultdict(list)
            for layer in candidates:
                by_content[_content(constants[layer.weight])].append(layer.name)
            groups += [tuple(names) for names in by_content.values() if len(names) > 1]
    return groups


def store_equal_once(proto: Any) -> None:
    """Merge equal constants of a model; its inputs, outputs and sub-graphs keep their names."""
    graph = proto.graph
    if any(a.type in (5, 10) for n in graph.node for a in n.attribute):
        return  # sub-graphs capture outer names
    public = {v.name for v in (*graph.input, *graph.output)}
    first: dict[tuple[int, tuple[int, ...], bytes], str] = {}
    renamed: dict[str, str] = {}
    kept = []
    for tensor in graph.initializer:
        if tensor.name not in public and tensor.ByteSize() >= LEAST_BYTES:
            key = (int(tensor.data_type), tuple(tensor.dims), _content(tensor))
            name = first.setdefault(key, tensor.name)
            if name != tensor.name:
                renamed[tensor.name] = name
                continue
        kept.append(tensor)
    if not renamed:
        return
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for node in graph.node:
        node.input[:] = [renamed.get(x, x) for x in node.input]


def _content(tensor: Any) -> bytes:
    """Return a digest of a constant's numbers."""
    import onnx

    packed = tensor.HasField("raw_data")
    numbers = tensor.raw_data if packed else onnx.numpy_helper.to_array(tensor).tobytes()
    return hashlib.sha256(numbers).digest()

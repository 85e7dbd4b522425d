"""Constant scales and shifts of the last axis: what LayerNorm and RMSNorm end with.

Factors for the channels of a norm's output are taken up by its constants, at no cost. The norm may
be one op, or taken apart as exporters write it: of the parts only the last `Mul` with a constant,
and an `Add` of one behind it, matter here; what stands in front may be anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from seqto.model.graph import attribute
from seqto.transforms.editable_model import EditableModel

# input 1 is the scale, input 2 the shift; SimplifiedLayerNormalization is RMSNorm in ONNX Runtime
NORMS = frozenset(("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"))


@dataclass(frozen=True, slots=True)
class Affine:
    """A scale, and perhaps a shift, of each channel of the last axis by a constant."""

    name: str  # of the node that scales
    output: str  # the tensor behind scale and shift
    outputs: int  # channels
    constants: tuple[tuple[str, int], ...]  # (node, input) of the constants that take factors up
    op_type: ClassVar[str] = "Affine"


def find_affines(draft: EditableModel) -> list[Affine]:
    """Return all scales of the last axis whose constants may be changed, in graph order."""
    affines = (_affine(draft, node) for node in draft.proto.graph.node)
    return [x for x in affines if x is not None]


def _affine(draft: EditableModel, node: Any) -> Affine | None:
    if node.op_type in NORMS:
        return _norm(draft, node)
    if node.op_type != "Mul" or node.domain not in ("", "ai.onnx"):
        return None
    index = _constant_input(draft, node)
    if index is None:
        return None
    channels = _channels(draft, node.input[index])
    shape = draft.shapes.get(node.input[1 - index], ())
    if channels is None or not shape or shape[-1] != channels:
        return None
    constants = [(node.name, index)]
    output = node.output[0]
    readers = draft.readers.get(output, [])
    if len(readers) == 1 and readers[0].op_type == "Add" and output not in draft.public:
        shift = _constant_input(draft, readers[0])
        if shift is not None and _channels(draft, readers[0].input[shift]) == channels:
            constants.append((readers[0].name, shift))
            output = readers[0].output[0]
    return Affine(node.name, output, channels, tuple(constants))


def _norm(draft: EditableModel, node: Any) -> Affine | None:
    inputs = [i for i, name in enumerate(node.input) if i in (1, 2) and name]
    if 1 not in inputs or any(node.input[i] not in draft.constants for i in inputs):
        return None
    channels = _channels(draft, node.input[1])
    rank = len(draft.shapes.get(node.input[0], ()))
    if channels is None or attribute(node, "axis", -1) not in {-1, rank - 1}:
        return None
    return Affine(node.name, node.output[0], channels, tuple((node.name, i) for i in inputs))


def _constant_input(draft: EditableModel, node: Any) -> int | None:
    """Return the position of the one of two inputs that is a constant."""
    constants = [i for i, name in enumerate(node.input) if name in draft.constants]
    return constants[0] if len(node.input) == 2 and len(constants) == 1 else None


def _channels(draft: EditableModel, constant: str) -> int | None:
    """Return the number of channels where a constant has one value for each of the last axis."""
    dims = [int(d) for d in draft.constants[constant].dims]
    if draft.constants[constant].data_type != 1 or not dims or dims[-1] == 1:
        return None
    return dims[-1] if math.prod(dims) == dims[-1] else None

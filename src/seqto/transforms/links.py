"""Links: the layer that makes a tensor and those that can undo a rescaling of its channels.

A rescaling multiplies the channels of a tensor by factors: the layer that makes the tensor takes
them up in its output channels, every layer that reads it undoes them in its input channels.
`find_link` finds out whether that is possible; rescaling.py does it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqto.model.graph import attribute
from seqto.transforms.editable_model import EditableModel, Weighted

ELEMENTWISE = frozenset(("Relu", "LeakyRelu", "PRelu", "Identity"))


SPATIAL = frozenset(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))


FLATTENING = frozenset(("Flatten", "Reshape", "Squeeze"))


@dataclass(frozen=True, slots=True)
class Reader:
    """A weighted node that undoes factors; `repeat` inputs in a row share one (after Flatten)."""

    layer: Weighted
    repeat: int


@dataclass(frozen=True, slots=True)
class Limit:
    """A Clip on the way: a channel whose magnitude stays below `bound` can be scaled."""

    tensors: tuple[str, ...]  # its output, and what only reshapes that: any may have peaks
    bound: float


@dataclass(frozen=True, slots=True)
class Link:
    """A layer, all that read it, and what lies between."""

    producer: Weighted
    readers: tuple[Reader, ...]
    limits: tuple[Limit, ...]
    tensors: tuple[str, ...]  # all whose channels are multiplied
    shifts: tuple[str, ...] = ()  # nodes that add a constant bias behind a MatMul

    @property
    def label(self) -> str:
        return f"{self.producer.name} → {', '.join(r.layer.name for r in self.readers)}"


class _BlockedError(Exception):
    """Factors cannot pass here; the message says why."""


def find_link(draft: EditableModel, producer: Weighted, *, branches: bool = False) -> Link | str:
    """Where factors on the producer's output channels would have to be undone, or why not.

    Between the two may stand what is positively homogeneous in each channel: f(c·x) = c·f(x) for
    c > 0. With `branches`, several readers and products with another tensor (the gate of a
    squeeze-and-excite block) are followed too.
    """
    walk = _Walk(draft, producer, branches)
    try:
        walk.down(producer.output, flat=False)
        for node in walk.products:
            if all(x in walk.tensors for x in node.input):
                raise _BlockedError(f"both factors of {node.name} would be scaled")
    except _BlockedError as blocked:
        return str(blocked)
    return Link(
        producer,
        tuple(walk.readers),
        tuple(walk.limits),
        tuple(walk.tensors),
        tuple(walk.shifts),
    )


@dataclass(slots=True)
class _Walk:
    """The way down from a producer, and what was met on it."""

    draft: EditableModel
    producer: Weighted
    branches: bool
    readers: list[Reader] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    tensors: dict[str, None] = field(default_factory=dict)
    shifts: list[str] = field(default_factory=list)
    products: list[Any] = field(default_factory=list)

    def down(self, tensor: str, *, flat: bool) -> None:
        """Visit all that read `tensor`; `flat`: its channels are runs of columns by now."""
        if tensor in self.tensors:
            return
        self.tensors[tensor] = None
        if tensor in self.draft.public:
            raise _BlockedError("an output of the model lies between")
        nodes = self.draft.readers.get(tensor, [])
        if not nodes or (len(nodes) > 1 and not self.branches):
            raise _BlockedError(f"its result is read by {len(nodes)} nodes")
        for node in nodes:
            end = self.draft.weighted.get(node.name)
            if isinstance(end, str):
                raise _BlockedError(end)
            if end is not None:
                self.readers.append(self._reader(end, tensor, flat=flat))
            elif self._passes(node, tensor):
                self.down(node.output[0], flat=flat or node.op_type in FLATTENING)
            else:
                raise _BlockedError(f"{node.name} ({node.op_type}) mixes the scales of channels")

    def _reader(self, end: Weighted, tensor: str, *, flat: bool) -> Reader:
        maps = self.producer.op_type == "Conv" and not flat
        repeat, rest = divmod(end.inputs, self.producer.outputs)
        fits = end.input == tensor and rest == 0 and (repeat == 1 or flat)
        if not fits or maps != (end.op_type == "Conv"):
            raise _BlockedError(f"the inputs of {end.name} are other channels than its outputs")
        return Reader(end, repeat)

    def _passes(self, node: Any, tensor: str) -> bool:
        """Do factors on `tensor` come out of `node` unchanged?"""
        if node.domain not in ("", "ai.onnx") or list(node.input).count(tensor) > 1:
            return False
        if node.op_type in ("Add", "Mul"):
            return self._passes_pair(node, tensor)
        if node.input[0] != tensor:
            return False
        if node.op_type == "Clip":
            bound = _bound(self.draft, node)
            self.limits.append(Limit(_same_values(self.draft, node.output[0]), bound))
            return True
        maps = self.producer.op_type == "Conv"
        moves = node.op_type in FLATTENING and _keeps_rows(self.draft, node)
        pools = node.op_type in SPATIAL and len(node.output) == 1
        return node.op_type in ELEMENTWISE or (maps and (moves or pools))

    def _passes_pair(self, node: Any, tensor: str) -> bool:
        """An Add passes as the bias of a MatMul, a Mul with another tensor's channels."""
        other = node.input[1] if node.input[0] == tensor else node.input[0]
        if node.op_type == "Mul" and self.branches and _same_channels(self.draft, node):
            self.products.append(node)
            return True
        constant = self.draft.constants.get(other)
        if node.op_type == "Mul" or self.producer.op_type != "MatMul" or constant is None:
            return False
        if [int(d) for d in constant.dims] != [self.producer.outputs]:
            return False
        self.shifts.append(node.name)
        return True


def clip_range(draft: EditableModel, node: Any) -> tuple[float, float]:
    """The constant bounds of a Clip; infinite where it has none or they are computed."""
    bounds = [-np.inf, np.inf]
    for i, name in enumerate(node.input[1:3]):
        if name in draft.constants:
            bounds[i] = float(draft.array(name).reshape(()))
    return bounds[0], bounds[1]


def _bound(draft: EditableModel, node: Any) -> float:
    """The magnitude up to which a Clip does not act on what it lets pass."""
    if any(x and x not in draft.constants for x in node.input[1:3]):
        raise _BlockedError(f"{node.name} clips at bounds that are not constant")
    low, high = clip_range(draft, node)
    if low > 0 or high <= 0:
        raise _BlockedError(f"{node.name} clips to {low:g}…{high:g}, which leaves zero out")
    return high if low == 0 else min(-low, high)


def _same_values(draft: EditableModel, tensor: str) -> tuple[str, ...]:
    names = [tensor]
    while len(readers := draft.readers.get(names[-1], [])) == 1:
        if readers[0].op_type not in FLATTENING:
            break
        names.append(readers[0].output[0])
    return tuple(names)


def _keeps_rows(draft: EditableModel, node: Any) -> bool:
    """[N, C, H, W] → [N, C·H·W], so that every channel stays one run of columns."""
    if node.op_type == "Flatten":
        return attribute(node, "axis", 1) == 1
    before, after = draft.shapes.get(node.input[0]), draft.shapes.get(node.output[0])
    if before is None or after is None or len(after) != 2 or None in before[1:]:
        return False
    return after[1] == int(np.prod([d or 0 for d in before[1:]]))


def _same_channels(draft: EditableModel, node: Any) -> bool:
    """A product of two activations with channels on the same axis."""
    shapes = [draft.shapes.get(x) for x in node.input]
    if any(x in draft.constants for x in node.input) or None in shapes:
        return False
    ranks = {len(s) for s in shapes if s is not None}
    channels = {s[1] for s in shapes if s is not None and len(s) > 1}
    return ranks == {4} and len(channels) == 1

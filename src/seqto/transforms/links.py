"""Links: what makes a tensor and the layers that can undo a rescaling of its channels.

A rescaling multiplies the channels of a tensor by factors: the layer (or norm) that makes the
tensor takes them up in its output channels, every layer that reads it undoes them in its input
channels. `find_link` finds out whether that is possible; rescaling.py does it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqto.model.graph import attribute, attribute_ints
from seqto.transforms.affine import Affine
from seqto.transforms.editable_model import EditableModel, Weighted

ELEMENTWISE = frozenset(("Relu", "LeakyRelu", "PRelu", "Identity"))
SPATIAL = frozenset(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
FLATTENING = frozenset(("Flatten", "Reshape", "Squeeze"))
# Where the channels of a tensor are, on the way down from a producer.
MAPS = "maps"  # on axis 1: convolutions
LAST = "last"  # on the last axis: matrix products, norms
FLAT = "flat"  # each a run of columns, behind Flatten
SPLIT = "split"  # on the two last of four axes: heads, and positions within a head
HEADS = "heads"  # the same, heads on axis 1: what attention multiplies
SWAP_HEADS = (0, 2, 1, 3)  # the permutation between SPLIT and HEADS


Producer = Weighted | Affine


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
    """A layer or norm, all that read it, and what lies between."""

    producer: Producer
    readers: tuple[Reader, ...]
    limits: tuple[Limit, ...]
    tensors: tuple[str, ...]  # all whose channels are multiplied
    shifts: tuple[str, ...] = ()  # nodes that add a constant bias behind a MatMul

    @property
    def label(self) -> str:
        return f"{self.producer.name} → {', '.join(r.layer.name for r in self.readers)}"


class _BlockedError(Exception):
    """Factors cannot pass here; the message says why."""


def find_link(draft: EditableModel, producer: Producer, *, branches: bool = False) -> Link | str:
    """Return where factors on the producer's output channels are undone, or why they cannot.

    Between the two may stand what is positively homogeneous in each channel: f(c·x) = c·f(x) for
    c > 0. With `branches`, several readers, products with another tensor (the gate of a
    squeeze-and-excite block, of a gated MLP) and the values of an attention are followed too.
    """
    walk = _Walk(draft, producer, branches)
    try:
        walk.down(producer.output, MAPS if producer.op_type == "Conv" else LAST)
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
    producer: Producer
    branches: bool
    readers: list[Reader] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    tensors: dict[str, None] = field(default_factory=dict)
    shifts: list[str] = field(default_factory=list)
    products: list[Any] = field(default_factory=list)

    def down(self, tensor: str, layout: str) -> None:
        """Visit all that read `tensor`, whose channels are where `layout` says."""
        if tensor in self.tensors:
            return
        self.tensors[tensor] = None
        if tensor in self.draft.public:
            raise _BlockedError("an output of the model lies between")
        nodes = self.draft.readers.get(tensor, [])
        if not nodes or (len(nodes) > 1 and not self.branches):
            raise _BlockedError(f"its result is read by {len(nodes)} nodes")
        for node in nodes:
            if node.op_type in ("Shape", "Size"):  # they read no values
                continue
            end = self.draft.weighted.get(node.name)
            if isinstance(end, str):
                raise _BlockedError(end)
            if end is not None:
                self.readers.append(self._reader(end, tensor, layout))
                continue
            behind = self._behind(node, tensor, layout)
            if behind is None:
                raise _BlockedError(f"{node.name} ({node.op_type}) mixes the scales of channels")
            self.down(node.output[0], behind)

    def _reader(self, end: Weighted, tensor: str, layout: str) -> Reader:
        repeat, remainder = divmod(end.inputs, self.producer.outputs)
        fits = end.input == tensor and remainder == 0 and (repeat == 1 or layout == FLAT)
        if not fits or layout in (SPLIT, HEADS) or (layout == MAPS) != (end.op_type == "Conv"):
            raise _BlockedError(f"the inputs of {end.name} are other channels than its outputs")
        return Reader(end, repeat)

    def _behind(self, node: Any, tensor: str, layout: str) -> str | None:
        """Return the layout of channels behind a node; None where factors on `tensor` stop."""
        if node.domain not in ("", "ai.onnx") or list(node.input).count(tensor) > 1:
            return None
        if node.op_type in ("Add", "Mul", "Div"):
            return layout if self._passes_pair(node, tensor, layout) else None
        if layout == HEADS and node.op_type == "MatMul" and node.input[1] == tensor:
            return HEADS  # weighted means of the values, channel by channel
        if node.input[0] != tensor:
            return None
        if node.op_type == "Clip":
            bound = _bound(self.draft, node)
            self.limits.append(Limit(_same_values(self.draft, node.output[0]), bound))
        # PRelu has a slope a channel, which is on the axis that it knows
        same = node.op_type != "PRelu" or layout in (MAPS, LAST, FLAT)
        if node.op_type == "Clip" or (node.op_type in ELEMENTWISE and same):
            return layout
        return self._moved(node, layout)

    def _moved(self, node: Any, layout: str) -> str | None:
        """Return the layout of channels behind a node that pools positions or moves channels."""
        flattens = node.op_type in FLATTENING and layout in (MAPS, FLAT)
        if flattens and self.producer.op_type == "Conv" and _keeps_rows(self.draft, node):
            return FLAT
        if layout == MAPS and node.op_type in SPATIAL and len(node.output) == 1:
            return MAPS
        return self._moved_heads(node, layout) if self.branches else None

    def _moved_heads(self, node: Any, layout: str) -> str | None:
        """Return the layout of channels behind a node that splits, moves or joins heads."""
        if node.op_type == "Transpose" and layout in (SPLIT, HEADS):
            swapped = attribute_ints(node, "perm") == SWAP_HEADS
            return (HEADS if layout == SPLIT else SPLIT) if swapped else None
        if node.op_type != "Reshape" or len(node.input) < 2:
            return None
        rank, dims = _reshaped(self.draft, node)
        channels = self.producer.outputs
        if layout == LAST and rank == 4 and len(dims) > 1:
            return SPLIT if dims[-1] * dims[-2] == channels else None
        # rows of numbers: whatever is in front, the last axis holds both axes of the channels
        return LAST if layout == SPLIT and dims and dims[-1] == channels else None

    def _passes_pair(self, node: Any, tensor: str, layout: str) -> bool:
        """Return whether a node passes: an Add as a MatMul's bias, a Mul with like channels."""
        other = node.input[1] if node.input[0] == tensor else node.input[0]
        constant = self.draft.constants.get(other)
        if node.op_type == "Div" or (node.op_type == "Mul" and constant is not None):
            number = constant is not None and math.prod(constant.dims) == 1
            divisor = node.op_type == "Div" and node.input[1] == tensor
            return self.branches and number and not divisor
        if node.op_type == "Mul" and self.branches and self._same_channels(node, other, layout):
            self.products.append(node)
            return True
        if node.op_type == "Mul" or self.producer.op_type != "MatMul" or constant is None:
            return False
        if [int(d) for d in constant.dims] != [self.producer.outputs] or layout != LAST:
            return False
        self.shifts.append(node.name)
        return True

    def _same_channels(self, node: Any, other: str, layout: str) -> bool:
        """Return whether a node is a product of two activations with channels on the same axis."""
        shapes = [self.draft.shapes.get(x) for x in node.input]
        if None in shapes:
            return False
        if layout == LAST:
            shape = self.draft.shapes.get(other, ())
            return bool(shape) and shape[-1] in (1, self.producer.outputs)
        ranks = {len(s) for s in shapes if s is not None}
        channels = {s[1] for s in shapes if s is not None and len(s) > 1}
        return layout == MAPS and ranks == {4} and len(channels) == 1


def _reshaped(draft: EditableModel, node: Any) -> tuple[int | None, list[int]]:
    """Return the rank behind a Reshape, and the last of its dimensions as far as they are known.

    Exporters that trace write the target as a Concat of computed and constant numbers.
    """
    name = node.input[1]
    known = draft.shapes.get(node.output[0], ())
    rank = len(known) or None
    if name in draft.constants:
        target = [int(d) for d in draft.array(name)]
        rank = len(target)
    else:
        maker = draft.makers.get(name)
        parts = list(maker.input) if maker is not None and maker.op_type == "Concat" else []
        target = []
        for part in parts:
            target += [int(d) for d in draft.array(part)] if part in draft.constants else [0]
        rank = rank or (len(target) if target else None)
    padded = [0] * (len(known) - len(target)) + target if rank == len(known) else target
    if rank == len(known):
        padded = [d if d > 0 else k or 0 for d, k in zip(padded, known, strict=True)]
    dims: list[int] = []
    for dim in reversed(padded):
        if dim <= 0:
            break
        dims.insert(0, dim)
    return rank, dims


def clip_range(draft: EditableModel, node: Any) -> tuple[float, float]:
    """Return the constant bounds of a Clip; infinite where it has none or they are computed."""
    bounds = [-np.inf, np.inf]
    for i, name in enumerate(node.input[1:3]):
        if name in draft.constants:
            bounds[i] = float(draft.array(name).reshape(()))
    return bounds[0], bounds[1]


def _bound(draft: EditableModel, node: Any) -> float:
    """Return the magnitude up to which a Clip does not act on what it lets pass."""
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
    """Return whether [N, C, H, W] becomes [N, C·H·W]: every channel stays one run of columns."""
    if node.op_type == "Flatten":
        return attribute(node, "axis", 1) == 1
    before, after = draft.shapes.get(node.input[0]), draft.shapes.get(node.output[0])
    if before is None or after is None or len(after) != 2 or None in before[1:]:
        return False
    return after[1] == int(np.prod([d or 0 for d in before[1:]]))

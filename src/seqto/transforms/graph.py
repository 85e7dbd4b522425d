"""A copy of a model to change, and the question all rescalings ask: who feeds whom?

A rescaling multiplies the channels of a tensor by factors: the layer that makes the tensor takes
them up in its output channels, every layer that reads it undoes them in its input channels.
`follow` finds out whether that is possible, `rescale` does it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.model import Prepared

Floats = NDArray[np.float64]
Peaks = Mapping[str, NDArray[np.float32]]

ELEMENTWISE = frozenset(("Relu", "LeakyRelu", "PRelu", "Identity"))
SPATIAL = frozenset(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
FLATTENING = frozenset(("Flatten", "Reshape", "Squeeze"))


@dataclass(frozen=True, slots=True)
class Applied:
    """What a transform made of a model."""

    proto: Any  # a new onnx.ModelProto; existing nodes keep their names
    touched: tuple[str, ...]  # layers whose weights changed
    skipped: tuple[tuple[str, str], ...]  # (layer or "layer → layer", why not)
    exact: bool  # True: outputs must stay within tolerance; False: they may move
    notes: tuple[str, ...] = ()  # figures worth showing


@dataclass(frozen=True, slots=True)
class Weighted:
    """A Conv, Gemm or MatMul whose channels can be scaled one by one."""

    name: str
    op_type: str
    input: str
    output: str
    weight: str
    out_axis: int
    in_axis: int
    depthwise: bool
    outputs: int
    inputs: int
    rank: int  # of its input, 0 where it is not fixed


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


class Draft:
    """A copy of a prepared model: look-ups, and weights that can be changed."""

    def __init__(self, prepared: Prepared) -> None:
        import onnx

        self.proto = onnx.ModelProto()
        self.proto.CopyFrom(prepared.proto)
        graph = self.proto.graph
        self.constants = {t.name: t for t in graph.initializer}
        self.public = {o.name for o in graph.output}
        self.makers = {o: n for n in graph.node for o in n.output if o}
        self.readers: dict[str, list[Any]] = {}
        for node in graph.node:
            for tensor in node.input:
                self.readers.setdefault(tensor, []).append(node)
        self.shapes = _shapes(self.proto)
        self._changed: dict[str, Floats] = {}
        layers = [x for x in prepared.layers if x.weight]
        nodes = {n.name: n for n in graph.node}
        self.weighted = {x.name: self._weighted(nodes[x.nodes[0]]) for x in layers}

    def array(self, name: str) -> Floats:
        """A constant's present values. Doubles: many small steps cost one rounding only."""
        from onnx import numpy_helper

        if name in self._changed:
            return self._changed[name]
        values: Floats = numpy_helper.to_array(self.constants[name]).astype(np.float64)
        return values

    def put(self, name: str, values: Floats) -> None:
        self._changed[name] = values

    def finish(self) -> Any:
        """The changed model."""
        from onnx import numpy_helper

        for name, values in self._changed.items():
            kept = numpy_helper.from_array(values.astype(np.float32), name)
            self.constants[name].CopyFrom(kept)
        return self.proto

    def add_constant(self, name: str, values: Floats) -> str:
        """A new initializer; returns its name, which is `name` if that is free."""
        name = self.free_name(name)
        tensor = self.proto.graph.initializer.add()
        tensor.name = name
        self.constants[name] = tensor
        self.put(name, values)
        return name

    def free_name(self, name: str) -> str:
        taken = self.constants.keys() | self.makers.keys() | self.readers.keys() | self.public
        while name in taken:
            name += "_"
        return name

    def own_bias(self, node: Any, index: int) -> str:
        """The name of the node's bias; a bias that others read too is copied first."""
        name: str = node.input[index]
        if len(self.readers[name]) > 1:
            copy = self.add_constant(f"{name}_{node.output[0]}", self.array(name))
            self.readers[name].remove(node)
            self.readers[copy] = [node]
            node.input[index] = copy
            name = copy
        return name

    def _weighted(self, node: Any) -> Weighted | str:
        """The node with its channel axes, or why its channels cannot be scaled."""
        weight = node.input[1]
        if len(self.readers[weight]) > 1:
            return f"the weights of {node.name} are shared with other nodes"
        dims = [int(d) for d in self.constants[weight].dims]
        depthwise, out_axis, in_axis, rank = False, 0, 1, len(dims)
        inputs = dims[1]
        if node.op_type == "Conv":
            group = attribute(node, "group", 1)
            depthwise = group > 1 and dims[1] == 1
            if group > 1 and not depthwise:
                return f"{node.name} is a grouped convolution ({group} groups)"
            inputs = group if depthwise else inputs
        elif node.op_type == "Gemm" and not attribute(node, "transA", 0):
            if not attribute(node, "transB", 0):
                out_axis, in_axis, inputs = 1, 0, dims[0]
        elif node.op_type == "MatMul" and len(dims) == 2:
            out_axis, in_axis, inputs, rank = 1, 0, dims[0], 0
        else:
            return f"{node.name} is a {node.op_type} of a kind that is not rescaled"
        return Weighted(
            name=node.name,
            op_type=node.op_type,
            input=node.input[0],
            output=node.output[0],
            weight=weight,
            out_axis=out_axis,
            in_axis=in_axis,
            depthwise=depthwise,
            outputs=dims[out_axis],
            inputs=inputs,
            rank=rank,
        )


def attribute(node: Any, name: str, default: int) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _shapes(proto: Any) -> dict[str, tuple[int | None, ...]]:
    """Tensor → its shape where shape inference finds one; weights' contents are not needed."""
    import onnx

    light = onnx.ModelProto()
    light.CopyFrom(proto)
    for tensor in light.graph.initializer:
        if tensor.ByteSize() > 4096:  # only small ones can be shapes
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    try:
        graph = onnx.shape_inference.infer_shapes(light).graph
    except Exception:  # a custom op stops inference: then shapes are simply not known
        graph = light.graph
    return {
        v.name: tuple(int(d.dim_value) or None for d in v.type.tensor_type.shape.dim)
        for v in (*graph.value_info, *graph.input, *graph.output)
        if v.type.tensor_type.HasField("shape")
    }


# ------------------------------------------------------------------------------ who feeds whom


@dataclass(slots=True)
class _Walk:
    """What was met on the way down from a producer."""

    readers: list[Reader] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    tensors: dict[str, None] = field(default_factory=dict)
    shifts: list[str] = field(default_factory=list)
    products: list[Any] = field(default_factory=list)


class _BlockedError(Exception):
    """Factors cannot pass here; the message says why."""


def follow(draft: Draft, producer: Weighted, *, branches: bool = False) -> Link | str:
    """Where factors on the producer's output channels would have to be undone, or why not.

    Between the two may stand what is positively homogeneous in each channel: f(c·x) = c·f(x) for
    c > 0. With `branches`, several readers and products with another tensor (the gate of a
    squeeze-and-excite block) are followed too.
    """
    walk = _Walk()
    try:
        _descend(draft, producer, producer.output, walk, branches=branches)
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


def _descend(draft: Draft, producer: Weighted, tensor: str, walk: _Walk, *, branches: bool) -> None:
    if tensor in walk.tensors:
        return
    walk.tensors[tensor] = None
    if tensor in draft.public:
        raise _BlockedError("an output of the model lies between")
    readers = draft.readers.get(tensor, [])
    if not readers or (len(readers) > 1 and not branches):
        raise _BlockedError(f"its result is read by {len(readers)} nodes")
    for node in readers:
        end = draft.weighted.get(node.name)
        if isinstance(end, str):
            raise _BlockedError(end)
        if end is not None:
            walk.readers.append(_reader(draft, producer, end, tensor))
            continue
        _check_passes(draft, producer, node, tensor, walk, branches=branches)
        _descend(draft, producer, node.output[0], walk, branches=branches)


def _reader(draft: Draft, producer: Weighted, end: Weighted, tensor: str) -> Reader:
    maps = producer.op_type == "Conv" and not _is_flat(draft, tensor)
    fits = end.input == tensor and end.inputs % producer.outputs == 0
    if not fits or maps != (end.op_type == "Conv"):
        raise _BlockedError(f"the channels of {end.name} are not those of {producer.name}")
    repeat = end.inputs // producer.outputs
    if repeat > 1 and maps:
        raise _BlockedError(f"the channels of {end.name} are not those of {producer.name}")
    return Reader(end, repeat)


def _is_flat(draft: Draft, tensor: str) -> bool:
    """Behind a Flatten (or what does the same), on the way down from a Conv?"""
    node = draft.makers.get(tensor)
    while node is not None and node.name not in draft.weighted:
        if node.op_type in FLATTENING:
            return True
        node = draft.makers.get(node.input[0])
    return False


def _check_passes(
    draft: Draft, producer: Weighted, node: Any, tensor: str, walk: _Walk, *, branches: bool
) -> None:
    """Raise unless factors on `tensor` come out of `node` unchanged."""
    kind, maps = node.op_type, producer.op_type == "Conv"
    first = node.input[0] == tensor and list(node.input).count(tensor) == 1
    if kind in ELEMENTWISE and first:
        return
    if kind in SPATIAL and first and maps and len(node.output) == 1:
        return
    if kind == "Clip" and first:
        walk.limits.append(Limit(_same_values(draft, node.output[0]), _bound(draft, node)))
        return
    if kind in FLATTENING and first and maps and _keeps_rows(draft, node):
        return
    others = [x for x in node.input if x != tensor]
    if kind == "Add" and producer.op_type == "MatMul" and len(others) == 1:
        values = draft.constants.get(others[0])
        if values is not None and [int(d) for d in values.dims] == [producer.outputs]:
            walk.shifts.append(node.name)
            return
    if kind == "Mul" and branches and len(others) == 1 and _same_channels(draft, node):
        walk.products.append(node)
        return
    raise _BlockedError(f"{node.name} ({kind}) between does not keep channel scales apart")


def _bound(draft: Draft, node: Any) -> float:
    """The magnitude up to which a Clip does not act on what it lets pass."""
    bounds = [-np.inf, np.inf]
    for i, name in enumerate(node.input[1:3]):
        if name and name not in draft.constants:
            raise _BlockedError(f"{node.name} clips at bounds that are not constant")
        if name:
            bounds[i] = float(draft.array(name).reshape(()))
    low, high = bounds
    if low > 0 or high <= 0:
        raise _BlockedError(f"{node.name} clips to {low:g}…{high:g}, which leaves zero out")
    return high if low == 0 else min(-low, high)


def _same_values(draft: Draft, tensor: str) -> tuple[str, ...]:
    names = [tensor]
    while len(readers := draft.readers.get(names[-1], [])) == 1:
        if readers[0].op_type not in FLATTENING:
            break
        names.append(readers[0].output[0])
    return tuple(names)


def _keeps_rows(draft: Draft, node: Any) -> bool:
    """[N, C, H, W] → [N, C·H·W], so that every channel stays one run of columns."""
    if node.op_type == "Flatten":
        return attribute(node, "axis", 1) == 1
    before, after = draft.shapes.get(node.input[0]), draft.shapes.get(node.output[0])
    if before is None or after is None or len(after) != 2 or None in before[1:]:
        return False
    return after[1] == int(np.prod([d or 0 for d in before[1:]]))


def _same_channels(draft: Draft, node: Any) -> bool:
    """A product of two activations with channels on the same axis."""
    shapes = [draft.shapes.get(x) for x in node.input]
    if any(x in draft.constants for x in node.input) or None in shapes:
        return False
    ranks = {len(s) for s in shapes if s is not None}
    channels = {s[1] for s in shapes if s is not None and len(s) > 1}
    return ranks == {4} and len(channels) == 1


# -------------------------------------------------------------------------- ranges and scaling


def output_ranges(draft: Draft, layer: Weighted) -> Floats:
    """Largest weight of each output channel."""
    values = np.abs(draft.array(layer.weight))
    others = tuple(i for i in range(values.ndim) if i != layer.out_axis)
    ranges: Floats = values.max(axis=others)
    return ranges


def input_ranges(draft: Draft, reader: Reader) -> Floats:
    """Largest weight that each of the producer's channels meets."""
    layer, values = reader.layer, np.abs(draft.array(reader.layer.weight))
    if layer.depthwise:
        ranges = values.reshape(layer.inputs, -1).max(axis=1)
    else:
        others = tuple(i for i in range(values.ndim) if i != layer.in_axis)
        ranges = values.max(axis=others)
    return per_channel(ranges, reader.repeat)


def per_channel(values: NDArray[Any], repeat: int) -> Floats:
    """The largest of each run of `repeat` values."""
    largest: Floats = values.reshape(-1, repeat).max(axis=1).astype(np.float64)
    return largest


def rescale(draft: Draft, link: Link, factors: Floats) -> None:
    """Multiply the producer's output channels, divide the readers' input channels."""
    _scale_outputs(draft, link, factors)
    for reader in link.readers:
        scale_inputs(draft, reader, 1.0 / factors)


def _scale_outputs(draft: Draft, link: Link, factors: Floats) -> None:
    layer = link.producer
    values = draft.array(layer.weight)
    draft.put(layer.weight, values * _along(factors, values.ndim, layer.out_axis))
    node = draft.makers[layer.output]
    biases = [(node, 2)] if len(node.input) > 2 and node.input[2] else []
    for other in draft.proto.graph.node:
        if other.name in link.shifts:
            index = next(i for i, x in enumerate(other.input) if x in draft.constants)
            biases.append((other, index))
    for owner, index in biases:
        name = draft.own_bias(owner, index)
        # a Gemm's bias may be one number for all channels: the product spreads it out
        draft.put(name, draft.array(name) * factors)


def scale_inputs(draft: Draft, reader: Reader, factors: Floats) -> None:
    layer, values = reader.layer, draft.array(reader.layer.weight)
    if layer.depthwise:
        spread = np.repeat(factors, layer.outputs // layer.inputs)
        draft.put(layer.weight, values * _along(spread, values.ndim, 0))
        return
    spread = np.repeat(factors, reader.repeat)
    draft.put(layer.weight, values * _along(spread, values.ndim, layer.in_axis))


def _along(values: Floats, ndim: int, axis: int) -> Floats:
    return values.reshape([-1 if i == axis else 1 for i in range(ndim)])


# ------------------------------------------------------------------------------------ factors

# A channel a thousand times off its neighbours has a quarter of an 8-bit step left: beyond that
# there is nothing to save, only noise of near-dead channels to blow up.
LARGEST_FACTOR = 1e3


def headroom(
    link: Link, peaks: Mapping[str, Floats], *, margin: float
) -> tuple[NDArray[np.bool_], Floats] | str:
    """Which channels no Clip touches, and by how much each of these may grow."""
    channels = link.producer.outputs
    free = np.ones(channels, np.bool_)
    ceiling = np.full(channels, LARGEST_FACTOR)
    for limit in link.limits:
        if not np.isfinite(limit.bound):
            continue
        known = [peaks[x] for x in limit.tensors if x in peaks]
        if not known or len(known[0]) % channels:
            return f"clipped at {limit.bound:g}, and calibration knows no peaks behind the clip"
        peak = per_channel(known[0], len(known[0]) // channels)
        room = margin * limit.bound
        # a channel that calibration never woke up says nothing about where it would end
        within = (peak > 0) & (peak <= room)
        free &= within
        ceiling = np.minimum(ceiling, np.where(within, room / np.where(within, peak, 1.0), 1.0))
    if not free.any():
        bound = min(x.bound for x in link.limits)
        return f"the clip at {bound:g} acts in all {channels} channels, so none can be scaled"
    return free, ceiling


def settle(wishes: Floats, live: NDArray[np.bool_], free: NDArray[np.bool_]) -> Floats:
    """Wished factors made relative: a factor common to all channels would change nothing.

    Channels that cannot move stay at 1, so the others are set in relation to what those wished;
    without any such, the geometric mean becomes 1 and activations keep their magnitude.
    """
    stuck = live & ~free
    anchors = stuck if stuck.any() else live & free
    factors = np.ones_like(wishes)
    if anchors.any():
        middle = np.exp(np.log(wishes[anchors]).mean())
        factors = np.where(live & free, wishes / middle, 1.0)
    bounded: Floats = np.clip(factors, 1.0 / LARGEST_FACTOR, LARGEST_FACTOR)
    return bounded


def scaled_peaks(
    peaks: Mapping[str, Floats], tensors: Iterable[str], factors: Floats
) -> dict[str, Floats]:
    """The peaks after `tensors` were multiplied by `factors`."""
    changed = dict(peaks)
    for tensor in tensors:
        if tensor in changed and len(changed[tensor]) % len(factors) == 0:
            repeat = len(changed[tensor]) // len(factors)
            changed[tensor] = changed[tensor] * np.repeat(factors, repeat)
    return changed

"""Parts: what one layer contributes to a file, made once per (layer, scheme) and reused.

A part is a handful of initializers and the nodes that turn them into the float weight the
layer's own node reads. `Cast → Mul` and `Cast` are folded when a session loads; a
DequantizeLinear in front of a quantized input lets the runtime fuse an integer kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.statistics import RowReads
from seqto.errors import PlanError
from seqto.model.graph import attribute
from seqto.records import Layer
from seqto.schemes import integers
from seqto.schemes.block_rounding import BlockForm, Blocks
from seqto.schemes.blocks import quantize_blocks
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.types import S8, U4, U8, WEIGHTS, IntType, Rounding, granularity_word

STORED_ONLY = "it is a table or a constant: it can be fp32, fp16 or weight-<type>"
WEIGHTLESS = "it has no weights: it can be fp32 or static-<activation type>"


class Constants(Protocol):
    """The constants of a model's layers, and statistics of what flows into them."""

    def initializer(self, name: str) -> Any: ...  # a TensorProto of the float model

    def weight(self, layer: Layer) -> Floats: ...

    def bias(self, layer: Layer) -> Floats | None: ...

    def corrected_bias(self, layer: Layer, restored: Floats) -> Floats: ...

    # the bias that keeps the mean output what it is with the float weights

    def rounded_for_output(self, layer: Layer, weight: IntType) -> Quantized | None: ...

    def rounded_blocks(self, layer: Layer, form: BlockForm) -> Blocks | None: ...

    # rows of a table that calibration reads; None where that is not known
    def row_reads(self, layer: Layer) -> RowReads | None: ...

    def channel_axis(self, layer: Layer) -> int: ...

    def node(self, layer: Layer) -> Any: ...  # the node that has the layer's weights


@dataclass(frozen=True, slots=True)
class Part:
    """Initializers and nodes for one layer's constants."""

    initializers: tuple[Any, ...]
    nodes: tuple[Any, ...]
    weight: str  # the tensor that the layer's node reads as its weight
    bias: str  # "" when it has none
    size_bytes: int
    saturated_biases: int = 0
    may_saturate: bool = False  # two neighbouring products may exceed 16 bits (pairs.py)


class PartScheme(Protocol):
    """A scheme under which a layer keeps its own node and gets other constants."""

    @property
    def code(self) -> str: ...

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part: ...


class TensorScheme(PartScheme, Protocol):
    """A scheme whose layer reads and writes quantized tensors."""

    @property
    def activation(self) -> IntType: ...

    @property
    def ranges(self) -> str: ...


class NodeWriter(Protocol):
    """The graph that a scheme writes the nodes of its layer to (assembly/graph_writer.py)."""

    @property
    def constants(self) -> Constants: ...

    def float_name(self, tensor: str) -> str: ...  # the name that float readers of a tensor read

    def write_float(self, node: Any, layer: Layer | None, scheme: PartScheme | None) -> None: ...

    def write_static(self, node: Any, layer: Layer, scheme: TensorScheme) -> None: ...

    # add the layer's constants, unless they are there already
    def use_part(self, layer: Layer, scheme: PartScheme) -> Part: ...

    def append(self, nodes: list[Any], initializers: list[Any]) -> None: ...


class SizedByPart:
    """Size of a layer for kinds that make a part: that of the part."""

    __slots__ = ()

    def size_bytes(
        self: PartScheme, layer: Layer, constants: Constants, *, input_scale: float
    ) -> int:
        part = self.part(layer, constants, input_scale=input_scale, correct_bias=False)
        return part.size_bytes


def weight_words(
    weight: IntType | None, per_channel: bool, rounding: Rounding, block: int = 0
) -> tuple[str, ...]:
    """Return the words of a code that speak of weights: type, granularity, rounding."""
    if weight is None:
        return ()
    rounded = () if rounding is Rounding.NEAREST else (f"round-{rounding.value}",)
    return (weight.name, granularity_word(per_channel, block), *rounded)


def check_weight(
    code: str, weight: IntType, per_channel: bool, rounding: Rounding, block: int = 0
) -> None:
    """Refuse combinations of weight type, granularity and rounding that cannot be made."""
    if weight not in WEIGHTS and not (block and weight is U4):
        raise PlanError(f"{code}: weights cannot be {weight}")
    if block and weight.bits not in (4, 5, 6):
        raise PlanError(f"{code}: blocks are of four to six bits: use channel")
    if per_channel:
        return
    if weight.is_narrow:
        raise PlanError(f"{code}: {weight.bits} bits for a whole tensor are too few: use channel")
    if weight.pair_limit is not None:
        raise PlanError(f"{code}: {weight} goes by channel")
    if rounding is Rounding.OUTPUT:
        raise PlanError(f"{code}: rounding for the output goes by channel")


def quantized_weight(
    layer: Layer,
    weight: IntType,
    constants: Constants,
    *,
    per_channel: bool,
    rounding: Rounding = Rounding.NEAREST,
    block: int = 0,
) -> Quantized:
    """Return the layer's integers, by plain or by output-minimising rounding."""
    if rounding is Rounding.OUTPUT:
        return rounded_weight(layer, weight, constants, block=block)
    if block:
        # the other axis of a matrix: blocks run along what is summed
        summed = 1 - constants.channel_axis(layer)
        return quantize_blocks(constants.weight(layer), weight, axis=summed, block=block)
    axis = constants.channel_axis(layer) if per_channel else None
    return integers.quantize(constants.weight(layer), weight, axis=axis)


def rounded_weight(
    layer: Layer, weight: IntType, constants: Constants, *, block: int = 0
) -> Quantized:
    """Return the integers that calibration has rounded for the layer's output."""
    q: Quantized | None
    if block:
        form = BlockForm(weight.bits, block, zero_points=not weight.signed)
        blocks = constants.rounded_blocks(layer, form)
        q = None if blocks is None else of_blocks(blocks, weight)
        if q is not None and constants.channel_axis(layer) == 1:
            q = q.turned()
    else:
        q = constants.rounded_for_output(layer, S8 if weight is U8 else weight)
    if q is None:
        raise PlanError(f"layer {layer.name!r}: no output statistics to round {weight} weights by")
    return integers.unsigned(q) if weight is U8 else q


def of_blocks(blocks: Blocks, weight: IntType) -> Quantized:
    """Return rounded blocks [outputs, inputs] as integers along their second axis."""
    data, zero = (x.astype(weight.dtype) for x in (blocks.data, blocks.zero_point))
    return Quantized(data, blocks.scale, zero, 1, blocks.form.size)


def as_columns(q: Quantized, node: Any) -> Quantized:
    """Return integers as a MatMul has them: a Gemm's turned, its alpha in the scales."""
    if node.op_type != "Gemm":
        return q
    scale = (q.scale * np.float32(attribute(node, "alpha", 1.0))).astype(np.float32)
    scaled = Quantized(q.data, scale, q.zero_point, q.axis, q.block)
    return scaled.turned() if attribute(node, "transB") else scaled


def tensor(name: str, values: NDArray[np.generic], *, bits: int = 8) -> Any:
    """Return a TensorProto; four bits pack two values a byte, and unsigned ones are UINT4."""
    import onnx

    if bits == 4:
        flat = values.reshape(-1)
        kind = onnx.TensorProto.UINT4 if flat.dtype == np.uint8 else onnx.TensorProto.INT4
        if flat.size % 2:
            flat = np.append(flat, flat.dtype.type(0))
        nibbles = flat.astype(np.int8).view(np.uint8) & 0x0F
        packed = (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8)
        proto = onnx.TensorProto(name=name, data_type=kind, dims=values.shape)
        proto.raw_data = packed.tobytes()
        return proto
    return onnx.numpy_helper.from_array(np.require(values, requirements="C"), name)


def part_of(
    items: list[Any],
    nodes: list[Any],
    *,
    weight: str,
    bias: str,
    saturated: int = 0,
    may_saturate: bool = False,
) -> Part:
    size = sum(_framed(x.ByteSize()) for x in [*items, *nodes])
    return Part(tuple(items), tuple(nodes), weight, bias, size, saturated, may_saturate)


def _framed(size: int) -> int:
    """Return the bytes of a message inside another: tag and length prefix."""
    prefix = 1
    while size >> (7 * prefix):
        prefix += 1
    return size + 1 + prefix

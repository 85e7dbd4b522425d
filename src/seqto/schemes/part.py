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

from seqto.errors import PlanError
from seqto.records import Layer
from seqto.schemes import bias_correction, integers
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.scheme import Scheme

INT4_OPSET = 21


INT16_OPSET = 21


class Constants(Protocol):
    """What parts are made of: the layer's weights, and statistics of what flows into it."""

    def given(self, name: str) -> Any: ...  # a TensorProto of the float model

    def weight(self, layer: Layer) -> Floats: ...

    def bias(self, layer: Layer) -> Floats | None: ...

    def input_mean(self, layer: Layer) -> Floats | None: ...

    def rounded_for_output(self, layer: Layer, kind: str) -> Quantized | None: ...

    def channel_axis(self, layer: Layer) -> int: ...

    def node(self, layer: Layer) -> Any: ...  # the layer's first NodeProto, which has the weights


@dataclass(frozen=True, slots=True)
class Part:
    """Initializers and nodes for one layer's constants."""

    initializers: tuple[Any, ...]
    nodes: tuple[Any, ...]
    weight: str  # the tensor that the layer's node reads as its weight
    bias: str  # "" when it has none
    size_bytes: int
    opset: int = 0
    saturated_biases: int = 0


def tensor(name: str, values: NDArray[np.generic], *, kind: str = "") -> Any:
    """A TensorProto; s4 packs two values a byte."""
    import onnx

    if kind == "s4":
        flat = values.reshape(-1).astype(np.int8)
        if flat.size % 2:
            flat = np.append(flat, np.int8(0))
        nibbles = flat.view(np.uint8) & 0x0F
        packed = (nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8)
        proto = onnx.TensorProto(name=name, data_type=onnx.TensorProto.INT4, dims=values.shape)
        proto.raw_data = packed.tobytes()
        return proto
    return onnx.numpy_helper.from_array(np.require(values, requirements="C"), name)


def make_part(
    layer: Layer, scheme: Scheme, constants: Constants, *, input_scale: float, bias_fix: bool
) -> Part:
    """The part for a weighted layer. `input_scale` matters to static schemes only."""
    if layer.weight is None:
        raise PlanError(f"layer {layer.name!r} has no weights to keep as {scheme}")
    if scheme.kind == "fp32" and not bias_fix:
        return _plain(layer, constants)
    if scheme.kind == "fp16":
        return _half(layer, constants)
    if scheme.kind == "weight":
        return _weight_only(layer, scheme, constants, bias_fix=bias_fix)
    if scheme.kind == "static":
        return _static(layer, scheme, constants, input_scale=input_scale, bias_fix=bias_fix)
    raise PlanError(f"layer {layer.name!r}: no part is made for scheme {scheme}")


def quantized_weight(layer: Layer, scheme: Scheme, constants: Constants) -> Quantized:
    """The layer's integers under a scheme, by plain or by output-minimising rounding."""
    values = constants.weight(layer)
    axis = constants.channel_axis(layer) if scheme.granularity != "tensor" else None
    if scheme.rounding == "output":
        unsigned = scheme.weight == "u8"
        rounded = constants.rounded_for_output(layer, "s8" if unsigned else scheme.weight)
        if rounded is None:
            raise PlanError(f"layer {layer.name!r}: no output statistics to round {scheme} by")
        return integers.unsigned(rounded) if unsigned else rounded
    return integers.quantize(values, scheme.weight, axis=axis)


def _plain(layer: Layer, constants: Constants) -> Part:
    """The float model's own constants, not copies: they are the largest of all parts."""
    items = [constants.given(name) for name in (layer.weight, layer.bias) if name]
    return _part(items, [], weight=layer.weight or "", bias=layer.bias or "")


def _half(layer: Layer, constants: Constants) -> Part:
    import onnx

    values = constants.weight(layer)
    w = layer.weight or ""
    limit = np.finfo(np.float16).max
    half = np.clip(values, -limit, limit).astype(np.float16)
    items = [tensor(w + "h", half)]
    nodes = [onnx.helper.make_node("Cast", [w + "h"], [w], to=onnx.TensorProto.FLOAT)]
    bias = constants.bias(layer)
    if bias is not None:
        _add_floats(items, nodes, layer.bias or "", bias, added=True)
    return _part(items, nodes, weight=w, bias=layer.bias or "")


def _weight_only(layer: Layer, scheme: Scheme, constants: Constants, *, bias_fix: bool) -> Part:
    import onnx

    make = onnx.helper.make_node
    w = layer.weight or ""
    values = constants.weight(layer)
    q = with_half_scales(values, quantized_weight(layer, scheme, constants), scheme)
    if q.zero_point.any():
        raise PlanError(f"layer {layer.name!r}: {scheme} has zero points; use a signed weight type")
    scale = q.scale
    if q.axis is not None:
        shape = [1] * values.ndim
        shape[q.axis] = -1
        scale = scale.reshape(shape)
    items = [tensor(w + "q", q.data, kind=scheme.weight)]
    nodes: list[Any] = []
    _add_floats(items, nodes, w + "s", scale)
    nodes += [
        make("Cast", [w + "q"], [w + "c"], to=onnx.TensorProto.FLOAT),
        make("Mul", [w + "c", w + "s"], [w]),
    ]
    bias = constants.bias(layer)
    if bias is not None:
        fixed = _fixed_bias(layer, constants, q.restore()) if bias_fix else bias
        _add_floats(items, nodes, layer.bias or "", fixed, added=True)
    opset = INT4_OPSET if scheme.weight == "s4" else 0
    return _part(items, nodes, weight=w, bias=layer.bias or "", opset=opset)


def _static(
    layer: Layer,
    scheme: Scheme,
    constants: Constants,
    *,
    input_scale: float,
    bias_fix: bool,
) -> Part:
    import onnx

    make = onnx.helper.make_node
    w, b = layer.weight or "", layer.bias or ""
    values = constants.weight(layer)
    q = quantized_weight(layer, scheme, constants)
    if scheme.bias == "float":
        q = with_half_scales(values, q, scheme)
    bias = constants.bias(layer)
    if bias is not None and bias_fix:
        bias = _fixed_bias(layer, constants, q.restore())
    if bias is not None and layer.op_type == "Gemm" and q.axis is not None:
        bias = integers.one_per_channel(bias, q.scale)
    if bias is not None and holds_bias(scheme):
        held = integers.scale_that_holds_bias(
            q.scale, input_scale, bias, per_channel=q.axis is not None
        )
        q = integers.rescaled(values, q, held, scheme.weight)
    items = [tensor(w + "q", q.data, kind=scheme.weight)]
    nodes: list[Any] = []
    if scheme.bias == "float":
        _add_floats(items, nodes, w + "s", q.scale)
    else:
        items.append(tensor(w + "s", q.scale))
    integer_name = w + "q"
    opset = 0
    if scheme.weight == "s4":
        # stored in four bits, widened when the session loads: int8 speed at half the bytes
        nodes.append(make("Cast", [w + "q"], [w + "e"], to=onnx.TensorProto.INT8))
        integer_name, opset = w + "e", INT4_OPSET
    zero_name = []
    # zeros are left out where nothing is lost: ORT fuses QLinearConv without, but QGemm and
    # QLinearMatMul only with them
    if q.zero_point.any() or layer.op_type in ("Gemm", "MatMul"):
        items.append(tensor(w + "z", q.zero_point))
        zero_name = [w + "z"]
    axis = {} if q.axis is None else {"axis": q.axis}
    nodes.append(make("DequantizeLinear", [integer_name, w + "s", *zero_name], [w], **axis))
    saturated = 0
    if bias is not None and scheme.bias == "float":
        _add_floats(items, nodes, b, bias, added=True)
    elif bias is not None:
        bias_scale = integers.bias_scale(input_scale, q.scale, bias)
        data, saturated = integers.quantize_bias(bias, bias_scale)
        items += [tensor(b + "q", data), tensor(b + "s", bias_scale)]
        axis = {} if q.axis is None else {"axis": bias.ndim - 1}
        nodes.append(make("DequantizeLinear", [b + "q", b + "s"], [b], **axis))
    return _part(items, nodes, weight=w, bias=b, opset=opset, saturated=saturated)


def holds_bias(scheme: Scheme) -> bool:
    """Whether weight scales are raised where an int32 bias would not fit.

    For signed weights as the stock quantizer does; and for every float bias, since ONNX Runtime
    makes it int32 with this very scale when it loads. An int32 bias beside unsigned weights is
    left to saturate as stock leaves it (`seqto diagnose` names it, a float bias cures it).
    """
    return scheme.bias == "float" or scheme.weight in ("s8", "s7", "p8")


HALF_PAYS = 32  # numbers: two bytes saved on each must pay for a Cast node


HALF_ERROR = 1e-3  # relative; more than this and numbers stay float32


def fits_half(values: Floats, *, added: bool = False) -> bool:
    """Half precision keeps these numbers to three digits: no overflow, no underflow.

    Numbers that are added to others (biases) may be off by as much of their usual size: half
    precision loses digits of what is tiny, where they do not matter.
    """
    usual = float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if added else 0.0
    with np.errstate(over="ignore"):
        back = values.astype(np.float16).astype(np.float32)
    return bool(np.all(np.abs(back - values) <= HALF_ERROR * np.maximum(np.abs(values), usual)))


def with_half_scales(values: Floats, q: Quantized, scheme: Scheme) -> Quantized:
    """The same with scales that half precision holds exactly, so that storing them so is free."""
    if q.scale.size < HALF_PAYS or not fits_half(q.scale):
        return q
    scale = q.scale.astype(np.float16).astype(np.float32)
    if scheme.rounding == "output":
        return Quantized(q.data, scale, q.zero_point, q.axis)
    return integers.requantize(values, scale, q.zero_point, scheme.weight, axis=q.axis)


def _add_floats(
    items: list[Any], nodes: list[Any], name: str, values: Floats, *, added: bool = False
) -> None:
    """Store numbers as float16 behind a Cast, folded at load, where that is safe and pays."""
    import onnx

    if values.size < HALF_PAYS or not fits_half(values, added=added):
        items.append(tensor(name, values))
        return
    items.append(tensor(name + "h", values.astype(np.float16)))
    nodes.append(onnx.helper.make_node("Cast", [name + "h"], [name], to=onnx.TensorProto.FLOAT))


def _fixed_bias(layer: Layer, constants: Constants, restored: Floats) -> Floats:
    """The bias that keeps the mean output what it is with the float weights."""
    bias = constants.bias(layer)
    mean = constants.input_mean(layer)
    if bias is None:
        raise PlanError(f"layer {layer.name!r} has no bias to correct")
    if mean is None:
        return bias
    lost = constants.weight(layer) - restored
    return bias_correction.corrected(constants.node(layer), bias, lost=lost, mean=mean)


def _part(
    items: list[Any],
    nodes: list[Any],
    *,
    weight: str,
    bias: str,
    opset: int = 0,
    saturated: int = 0,
) -> Part:
    size = sum(_framed(x.ByteSize()) for x in [*items, *nodes])
    return Part(tuple(items), tuple(nodes), weight, bias, size, opset, saturated)


def _framed(size: int) -> int:
    """Bytes of a message inside another: tag and length prefix."""
    prefix = 1
    while size >> (7 * prefix):
        prefix += 1
    return size + 1 + prefix

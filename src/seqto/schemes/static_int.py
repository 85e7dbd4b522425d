"""int8 static: weights and activations as integers, ranges of activations from calibration.

A DequantizeLinear behind the integer weights and Q/DQ pairs around the layer let the runtime fuse
an integer kernel. Layers without weights have an activation type only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

from seqto.errors import PlanError
from seqto.model.layers import is_float_only
from seqto.records import Layer
from seqto.schemes import integers, pairs
from seqto.schemes.code import Coded, read_words
from seqto.schemes.half_precision import add_floats, with_half_scales
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.part import (
    STORED_ONLY,
    WEIGHTLESS,
    Constants,
    NodeWriter,
    Part,
    SizedByPart,
    check_weight,
    part_of,
    quantized_weight,
    tensor,
    weight_words,
)
from seqto.schemes.stored_multiples import add_multiples
from seqto.schemes.stored_planes import add_planes, planes_problem
from seqto.schemes.table import TIED
from seqto.schemes.types import (
    ACTIVATIONS,
    MINMAX,
    RANGES,
    S8,
    U8,
    Arithmetic,
    IntType,
    Kernel,
    Rounding,
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class StaticInt(SizedByPart, Coded):
    """Integer weights, integer activations with calibrated ranges."""

    weight: IntType | None = S8  # None: a layer without weights
    activation: IntType = U8
    per_channel: bool = True
    float_bias: bool = False
    ranges: str = MINMAX
    rounding: Rounding = Rounding.NEAREST
    code: str = field(init=False)
    kind: ClassVar[str] = "static"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.INTEGER
    is_float: ClassVar[bool] = False

    def __post_init__(self) -> None:
        words = weight_words(self.weight, self.per_channel, self.rounding)
        parts = [self.kind, *words[:1], self.activation.name, *words[1:2]]
        parts += ["bias-float"] if self.float_bias else []
        parts += [self.ranges] if self.ranges != MINMAX else []
        object.__setattr__(self, "code", "-".join([*parts, *words[2:]]))
        if self.activation not in ACTIVATIONS:
            raise PlanError(f"{self.code}: activations cannot be {self.activation}")
        if self.ranges not in RANGES:
            raise PlanError(f"ranges {self.ranges!r} are none of {', '.join(RANGES)}")
        if self.weight is not None:
            check_weight(self.code, self.weight, self.per_channel, self.rounding)
        elif not self.per_channel or self.float_bias or self.rounding is not Rounding.NEAREST:
            raise PlanError(
                f"{self.code}: a scheme without a weight type has no granularity, bias or rounding"
            )

    @staticmethod
    def parse(code: str) -> StaticInt:
        fields = ("per_channel", "float_bias", "ranges", "rounding")
        words = read_words(code, fields=fields, types=2)
        # the one type of a layer without weights is that of its activations
        *weights, activation = words.types or (U8,)
        of_weights = (words.per_channel, words.float_bias, words.rounding)
        if not weights and any(x is not None for x in of_weights):
            raise PlanError(
                f"unknown scheme {code!r}: give a weight type and an activation type, such as "
                "static-s8-u8-channel"
            )
        return StaticInt(
            weights[0] if weights else None,
            activation,
            per_channel=words.per_channel is not False,
            float_bias=bool(words.float_bias),
            ranges=words.ranges or MINMAX,
            rounding=words.rounding or Rounding.NEAREST,
        )

    @property
    def kernel(self) -> Kernel:
        weight = U8 if self.weight is U8 else S8  # every signed weight runs as int8
        return Kernel(Arithmetic.INTEGER, weight, self.activation, self.per_channel)

    @property
    def bits(self) -> tuple[int, ...]:
        return tuple(t.tensor_bits for t in (self.weight, self.activation) if t)

    @property
    def opset(self) -> int:
        return max(self.activation.opset, self.weight.opset if self.weight else 0)

    def without_output_rounding(self) -> StaticInt:
        return dataclasses.replace(self, rounding=Rounding.NEAREST)

    @property
    def holds_bias(self) -> bool:
        """Whether weight scales are raised where an int32 bias would not fit.

        For signed weights as the stock quantizer does; and for every float bias, since ONNX
        Runtime makes it int32 with this very scale when it loads. An int32 bias beside unsigned
        weights is left to saturate as stock leaves it (`seqto diagnose` names it, a float bias
        cures it); so is one beside weights of fewer bits.
        """
        return self.float_bias or (
            self.weight is not None and self.weight.signed and self.weight.bits == 8
        )

    def problem(self, layer: Layer) -> str | None:
        if is_float_only(layer):
            return f"{layer.op_type} of two activations has no integer form"
        if layer.weight is None:
            return None if self.weight is None else WEIGHTLESS
        if layer.storage:
            return STORED_ONLY
        if layer.table is not None:
            return TIED
        if self.weight is None:
            return "no weight type is given"
        return planes_problem(layer, self.weight)

    def quantized_weight(self, layer: Layer, constants: Constants) -> Quantized:
        if self.weight is None:
            raise PlanError(f"layer {layer.name!r}: {self} has no weight type")
        return quantized_weight(
            layer, self.weight, constants, per_channel=self.per_channel, rounding=self.rounding
        )

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        return self.quantized_weight(layer, constants).restore()

    # ------------------------------------------------------------------------------- the part

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        q, bias = self._numbers(
            layer, constants, input_scale=input_scale, correct_bias=correct_bias
        )
        items: list[Any] = []
        nodes: list[Any] = []
        self._add_weight(layer, q, items, nodes)
        saturated = 0
        if bias is not None and self.float_bias:
            add_floats(items, nodes, layer.bias or "", bias, added=True)
        elif bias is not None:
            saturated = _add_int32_bias(layer, q, bias, items, nodes, input_scale=input_scale)
        return part_of(
            items,
            nodes,
            weight=layer.weight or "",
            bias=layer.bias or "",
            saturated=saturated,
            may_saturate=self.activation.bits == 8
            and pairs.may_saturate(constants.node(layer), q.data),
        )

    def _numbers(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> tuple[Quantized, Floats | None]:
        """Return the integer weights and the bias that goes with them."""
        weight = self.weight or S8
        values = constants.weight(layer)
        q = self.quantized_weight(layer, constants)
        if self.float_bias:
            q = with_half_scales(values, q, weight, rounding=self.rounding)
        bias = constants.bias(layer)
        if bias is not None and correct_bias:
            bias = constants.corrected_bias(layer, q.restore())
        if bias is not None and layer.op_type == "Gemm" and q.axis is not None:
            bias = integers.one_per_channel(bias, q.scale)
        if bias is not None and self.holds_bias:
            held = integers.scale_that_holds_bias(
                q.scale, input_scale, bias, per_channel=q.axis is not None
            )
            q = integers.rescaled(values, q, held, weight)
        return q, bias

    def _add_weight(self, layer: Layer, q: Quantized, items: list[Any], nodes: list[Any]) -> None:
        import onnx

        make = onnx.helper.make_node
        w = layer.weight or ""
        weight = self.weight or S8
        is_plain = not (weight.multiples or weight.in_planes)
        if is_plain:
            items.append(tensor(w + "q", q.data, bits=weight.bits))
        if self.float_bias:
            add_floats(items, nodes, w + "s", q.scale)
        else:
            items.append(tensor(w + "s", q.scale))
        # stored in few bits, widened when the session loads: int8 speed at fewer bytes
        integer_name = w + ("e" if weight.is_narrow else "q")
        if weight.multiples:
            add_multiples(items, nodes, integer_name, q, weight, integer=True)
        elif weight.in_planes:
            add_planes(items, nodes, integer_name, q.data, weight, integer=True)
        elif weight.is_narrow:
            nodes.append(make("Cast", [w + "q"], [integer_name], to=onnx.TensorProto.INT8))
        zero_name = []
        # zeros are left out where nothing is lost: ORT fuses QLinearConv without, but QGemm and
        # QLinearMatMul only with them
        if q.zero_point.any() or layer.op_type in ("Gemm", "MatMul"):
            items.append(tensor(w + "z", q.zero_point))
            zero_name = [w + "z"]
        axis = {} if q.axis is None else {"axis": q.axis}
        nodes.append(make("DequantizeLinear", [integer_name, w + "s", *zero_name], [w], **axis))

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.write_static(node, layer, self)

    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        raise PlanError(f"layer {layer.name!r} cannot be {self}: {TIED}")


def _add_int32_bias(
    layer: Layer,
    q: Quantized,
    bias: Floats,
    items: list[Any],
    nodes: list[Any],
    *,
    input_scale: float,
) -> int:
    """Add the bias as int32; return how many of its values saturate."""
    import onnx

    b = layer.bias or ""
    scale = integers.bias_scale(input_scale, q.scale, bias)
    data, saturated = integers.quantize_bias(bias, scale)
    items += [tensor(b + "q", data), tensor(b + "s", scale)]
    axis = {} if q.axis is None else {"axis": bias.ndim - 1}
    nodes.append(onnx.helper.make_node("DequantizeLinear", [b + "q", b + "s"], [b], **axis))
    return saturated

"""Weight-only: integer weights that become float32 when a session loads; arithmetic in float.

Cast → Mul by the scales, both folded at load.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

from seqto.errors import PlanError
from seqto.records import Layer
from seqto.schemes.code import Coded, read_words
from seqto.schemes.half_precision import add_floats, with_half_scales
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.part import (
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
from seqto.schemes.types import FLOAT_KERNEL, S8, Arithmetic, IntType, Kernel, Rounding


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WeightOnly(SizedByPart, Coded):
    """Integer weights, float32 arithmetic."""

    weight: IntType = S8
    per_channel: bool = True
    rounding: Rounding = Rounding.NEAREST
    code: str = field(init=False)
    kind: ClassVar[str] = "weight"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.FLOAT
    is_float: ClassVar[bool] = False
    activation: ClassVar[IntType | None] = None

    def __post_init__(self) -> None:
        words = weight_words(self.weight, self.per_channel, self.rounding)
        object.__setattr__(self, "code", "-".join((self.kind, *words)))
        check_weight(self.code, self.weight, self.per_channel, self.rounding)
        if not self.weight.signed:
            raise PlanError(f"{self.code}: weight-only needs a signed weight type")

    @staticmethod
    def parse(code: str) -> WeightOnly:
        words = read_words(code, fields=("per_channel", "rounding"), types=1)
        if not words.types:
            raise PlanError(f"unknown scheme {code!r}: no weight type is given")
        return WeightOnly(
            words.types[0],
            per_channel=words.per_channel is not False,
            rounding=words.rounding or Rounding.NEAREST,
        )

    @property
    def kernel(self) -> Kernel:
        return FLOAT_KERNEL

    @property
    def bits(self) -> tuple[int, ...]:
        return (self.weight.bits,)

    @property
    def opset(self) -> int:
        return self.weight.opset

    def without_output_rounding(self) -> WeightOnly:
        return dataclasses.replace(self, rounding=Rounding.NEAREST)

    def problem(self, layer: Layer) -> str | None:
        return WEIGHTLESS if layer.weight is None else None

    def quantized_weight(self, layer: Layer, constants: Constants) -> Quantized:
        return quantized_weight(
            layer, self.weight, constants, per_channel=self.per_channel, rounding=self.rounding
        )

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        return self.quantized_weight(layer, constants).restore()

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        import onnx

        del input_scale
        make = onnx.helper.make_node
        w = layer.weight or ""
        values = constants.weight(layer)
        q = self.quantized_weight(layer, constants)
        q = with_half_scales(values, q, self.weight, rounding=self.rounding)
        scale = q.scale
        if q.axis is not None:
            shape = [1] * values.ndim
            shape[q.axis] = -1
            scale = scale.reshape(shape)
        items = [tensor(w + "q", q.data, bits=self.weight.bits)]
        nodes: list[Any] = []
        add_floats(items, nodes, w + "s", scale)
        nodes += [
            make("Cast", [w + "q"], [w + "c"], to=onnx.TensorProto.FLOAT),
            make("Mul", [w + "c", w + "s"], [w]),
        ]
        bias = constants.bias(layer)
        if bias is not None:
            if correct_bias:
                bias = constants.corrected_bias(layer, q.restore())
            add_floats(items, nodes, layer.bias or "", bias, added=True)
        return part_of(items, nodes, weight=w, bias=layer.bias or "")

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.write_float(node, layer, self)

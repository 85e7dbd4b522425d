"""int8 dynamic: the activation is quantized while the model runs, no calibration needed.

DynamicQuantizeLinear → MatMulInteger or ConvInteger → Cast → Mul by both scales → Add bias.
A Gemm becomes a MatMul, its weights transposed once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqto.errors import PlanError
from seqto.model.graph import attribute
from seqto.records import Layer
from seqto.schemes.code import Coded, read_words
from seqto.schemes.integers import Floats, Quantized, quantize
from seqto.schemes.part import (
    WEIGHTLESS,
    Constants,
    NodeWriter,
    check_weight,
    quantized_weight,
    tensor,
    weight_words,
)
from seqto.schemes.types import DYNAMIC_KERNEL, S8, Arithmetic, IntType, Kernel, Rounding

NO_INTEGER_OP = "ONNX has no integer op for it"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DynamicInt(Coded):
    """Integer weights, an input that is quantized to u8 with its own range at every run."""

    weight: IntType = S8
    per_channel: bool = True
    code: str = field(init=False)
    kind: ClassVar[str] = "dynamic"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.DYNAMIC
    is_float: ClassVar[bool] = False
    activation: ClassVar[IntType | None] = None
    rounding: ClassVar[Rounding] = Rounding.NEAREST

    def __post_init__(self) -> None:
        words = weight_words(self.weight, self.per_channel, self.rounding)
        object.__setattr__(self, "code", "-".join((self.kind, *words)))
        check_weight(self.code, self.weight, self.per_channel, self.rounding)
        if self.weight.bits != 8:
            raise PlanError(f"{self.code}: ONNX has no integer op for {self.weight} weights")

    @staticmethod
    def parse(code: str) -> DynamicInt:
        words = read_words(code, fields=("per_channel",), types=1)
        if not words.types:
            raise PlanError(f"unknown scheme {code!r}: no weight type is given")
        # a code without a granularity has always meant one scale for the whole tensor
        return DynamicInt(words.types[0], per_channel=bool(words.per_channel))

    @property
    def kernel(self) -> Kernel:
        return DYNAMIC_KERNEL

    @property
    def bits(self) -> tuple[int, ...]:
        return (self.weight.bits,)

    @property
    def opset(self) -> int:
        return self.weight.opset

    def without_output_rounding(self) -> DynamicInt:
        return self

    def problem(self, layer: Layer) -> str | None:
        if layer.weight is None:
            return WEIGHTLESS
        return NO_INTEGER_OP if layer.op_type == "ConvTranspose" else None

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        q = quantized_weight(layer, self.weight, constants, per_channel=self.per_channel)
        return q.restore()

    def size_bytes(self, layer: Layer, constants: Constants, *, input_scale: float) -> int:
        del input_scale
        count = constants.weight(layer).size
        bias = constants.bias(layer)
        channels = constants.weight(layer).shape[constants.channel_axis(layer)]
        scales = channels if self.per_channel else 1
        return count + 5 * scales + (0 if bias is None else 4 * bias.size) + 400

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        if node.name != layer.nodes[0]:
            graph.write_float(node, None, None)
            return
        source = graph.float_name(node.input[0])
        graph.append(*self.replacement(node, layer, graph.constants, source=source))

    def replacement(
        self, node: Any, layer: Layer, constants: Constants, *, source: str
    ) -> tuple[list[Any], list[Any]]:
        """Return the nodes and initializers that stand in for the layer's own node."""
        import onnx

        make = onnx.helper.make_node
        w, output = layer.weight or "", node.output[0]
        is_conv = node.op_type == "Conv"
        values, bias, swapped = _matrix(node, layer, constants)
        axis = None
        if self.per_channel:
            axis = 0 if is_conv else values.ndim - 1
        q = quantize(values, self.weight, axis=axis)
        items = _constants(w, q, is_conv=is_conv)
        views = [source + "D", source + "S", source + "Z"]
        nodes = [make("DynamicQuantizeLinear", [source], views)]
        data = views[0]
        if swapped:  # Gemm with transA: rare, but legal
            nodes.append(make("Transpose", [data], [source + "T"], perm=[1, 0]))
            data = source + "T"
        op = "ConvInteger" if is_conv else "MatMulInteger"
        product = make(op, [data, w + "q", views[2], w + "z"], [output + "i"], name=node.name)
        if is_conv:
            product.attribute.extend(node.attribute)
        nodes += [
            product,
            make("Cast", [output + "i"], [output + "f"], to=onnx.TensorProto.FLOAT),
            make("Mul", [views[1], w + "s"], [output + "X"]),
            make("Mul", [output + "f", output + "X"], [output if bias is None else output + "m"]),
        ]
        if bias is not None:
            shape = (1, -1, *([1] * (values.ndim - 2))) if is_conv else (-1,)
            items.append(tensor(w + "b", bias.reshape(shape)))
            nodes.append(make("Add", [output + "m", w + "b"], [output]))
        return nodes, items


def _matrix(node: Any, layer: Layer, constants: Constants) -> tuple[Floats, Floats | None, bool]:
    """The weight as the integer op wants it, the bias, and whether the input is transposed."""
    values, bias = constants.weight(layer), constants.bias(layer)
    if node.op_type != "Gemm":
        return values, bias, False
    if attribute(node, "transB"):
        values = np.ascontiguousarray(values.T)
    values = (values * np.float32(attribute(node, "alpha", 1.0))).astype(np.float32)
    if bias is not None:
        bias = (bias * np.float32(attribute(node, "beta", 1.0))).astype(np.float32)
    return values, bias, bool(attribute(node, "transA"))


def _constants(w: str, q: Quantized, *, is_conv: bool) -> list[Any]:
    scale = q.scale
    if q.axis is not None and is_conv:
        scale = scale.reshape(1, -1, *([1] * (q.data.ndim - 2)))
    zero = q.zero_point if q.axis is None or not is_conv else q.zero_point[:1].reshape(())
    return [tensor(w + "q", q.data), tensor(w + "s", scale), tensor(w + "z", zero)]

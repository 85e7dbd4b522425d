"""int8 dynamic: the activation is quantized while the model runs, no calibration needed.

DynamicQuantizeLinear → MatMulInteger or ConvInteger → Cast → Mul by both scales → Add bias.
Layers that read one tensor (q, k, v of attention) share its DynamicQuantizeLinear. A Gemm becomes
a MatMul, its weights transposed once, here. Four-bit weights are widened to int8 at load.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import PlanError
from seqto.model.graph import attribute
from seqto.records import Layer
from seqto.schemes import pairs, table
from seqto.schemes.code import Coded, read_words
from seqto.schemes.integers import Floats, Quantized, quantize
from seqto.schemes.part import (
    STORED_ONLY,
    WEIGHTLESS,
    Constants,
    NodeWriter,
    Part,
    as_columns,
    check_weight,
    part_of,
    quantized_weight,
    tensor,
    weight_words,
)
from seqto.schemes.stored_multiples import add_multiples
from seqto.schemes.stored_planes import NODE_BYTES, add_planes, planes_problem
from seqto.schemes.types import DYNAMIC_KERNEL, S8, Arithmetic, IntType, Kernel, Rounding

NO_INTEGER_OP = "ONNX has no integer op for it"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DynamicInt(Coded):
    """Integer weights, an input that is quantized to u8 with its own range at every run."""

    weight: IntType = S8
    per_channel: bool = True
    rounding: Rounding = Rounding.NEAREST
    code: str = field(init=False)
    kind: ClassVar[str] = "dynamic"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.DYNAMIC
    is_float: ClassVar[bool] = False
    activation: ClassVar[IntType | None] = None

    def __post_init__(self) -> None:
        words = weight_words(self.weight, self.per_channel, self.rounding)
        object.__setattr__(self, "code", "-".join((self.kind, *words)))
        check_weight(self.code, self.weight, self.per_channel, self.rounding)
        if self.weight.bits != 8 and not self.weight.signed:
            raise PlanError(f"{self.code}: ONNX has no integer op for {self.weight} weights")

    @staticmethod
    def parse(code: str) -> DynamicInt:
        words = read_words(code, fields=("per_channel", "rounding"), types=1)
        if not words.types:
            raise PlanError(f"unknown scheme {code!r}: no weight type is given")
        # a code without a granularity has always meant one scale for the whole tensor
        return DynamicInt(
            words.types[0],
            per_channel=bool(words.per_channel),
            rounding=words.rounding or Rounding.NEAREST,
        )

    @property
    def kernel(self) -> Kernel:
        return DYNAMIC_KERNEL

    @property
    def bits(self) -> tuple[int, ...]:
        return (self.weight.tensor_bits,)

    @property
    def opset(self) -> int:
        return self.weight.opset

    def without_output_rounding(self) -> DynamicInt:
        return dataclasses.replace(self, rounding=Rounding.NEAREST)

    def problem(self, layer: Layer) -> str | None:
        if layer.weight is None:
            return WEIGHTLESS
        if layer.storage:
            return STORED_ONLY
        if layer.table is not None and (self.weight.multiples or not self.per_channel):
            return table.TIED
        if layer.op_type == "ConvTranspose":
            return NO_INTEGER_OP
        return planes_problem(layer, self.weight)

    def quantized_weight(self, layer: Layer, constants: Constants) -> Quantized:
        """Return the integers as the layer's own node has its weights; a table as its rows."""
        if layer.table is not None:
            rounded = self.rounding is Rounding.OUTPUT
            return table.quantized_rows(layer, self.weight, constants, rounded=rounded)
        return quantized_weight(
            layer, self.weight, constants, per_channel=self.per_channel, rounding=self.rounding
        )

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        restored = self.quantized_weight(layer, constants).restore()
        return restored.T if layer.table is not None else restored

    def size_bytes(self, layer: Layer, constants: Constants, *, input_scale: float) -> int:
        del input_scale
        numbers = int(np.prod(layer.weight_shape, dtype=np.int64)) * self.weight.bits // 8
        if self.weight.multiples:
            numbers += numbers // self.weight.multiples
        if self.weight.in_planes:
            numbers += NODE_BYTES
        bias = constants.bias(layer)
        channels = layer.weight_shape[constants.channel_axis(layer)]
        scales = channels if self.per_channel else 1
        return numbers + 5 * scales + (0 if bias is None else 4 * bias.size) + 400

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        """Return the integers "…q", scales "…s", zero points "…z" and bias "…b"."""
        del input_scale, correct_bias
        w = layer.weight or ""
        items: list[Any] = []
        nodes: list[Any] = []
        node = constants.node(layer)
        if layer.table is not None:
            rows = self._add_table(layer, constants, items, nodes)
        else:
            rows = self._add_matrix(node, layer, constants, items, nodes)
        bias = constants.bias(layer)
        if bias is not None:
            if node.op_type == "Gemm":
                bias = (bias * np.float32(attribute(node, "beta", 1.0))).astype(np.float32)
            is_conv = node.op_type == "Conv"
            shape = (1, -1, *([1] * (len(layer.weight_shape) - 2))) if is_conv else (-1,)
            items.append(tensor(w + "b", bias.reshape(shape)))
        return part_of(
            items,
            nodes,
            weight=w,
            bias=layer.bias or "",
            # ConvInteger multiplies weights by inputs, not inputs by weights: that kernel is exact
            may_saturate=node.op_type != "Conv" and pairs.rows_may_saturate(rows),
        )

    def _add_table(
        self, layer: Layer, constants: Constants, items: list[Any], nodes: list[Any]
    ) -> NDArray[Any]:
        """Add the rows that a Gather reads; the product's side is turned at load.

        Return the integers, along the last axis as they are summed up.
        """
        import onnx

        make, w = onnx.helper.make_node, layer.weight or ""
        q = self.quantized_weight(layer, constants)
        table.add_rows(layer, q, items, nodes, weight=self.weight)
        stored = table.stored_name(layer)
        items.append(tensor(w + "z", np.zeros(len(q.data), np.int8)))
        items.append(tensor(w + "n", np.array([-1], np.int64)))
        source = table.integers_name(layer, self.weight)
        nodes += [
            make("Transpose", [source], [w + "q"], perm=[1, 0]),
            make("Reshape", [stored + "s", w + "n"], [w + "s"]),
        ]
        return q.data

    def _add_matrix(
        self, node: Any, layer: Layer, constants: Constants, items: list[Any], nodes: list[Any]
    ) -> NDArray[Any]:
        """Add the integers; return them, along the last axis as they are summed up."""
        import onnx

        w, is_conv = layer.weight or "", node.op_type == "Conv"
        if self.rounding is Rounding.OUTPUT:
            q = as_columns(self.quantized_weight(layer, constants), node)
        else:
            values = _matrix(node, layer, constants)
            axis = None
            if self.per_channel:
                axis = 0 if is_conv else values.ndim - 1
            q = quantize(values, self.weight, axis=axis)
        rows = q.data if is_conv else pairs.summed_last(q.data)
        others = _scales(w, q, is_conv=is_conv)
        if self.weight.multiples:
            items += others
            add_multiples(items, nodes, w + "q", q, self.weight, integer=True)
        elif self.weight.in_planes:
            items += others
            add_planes(items, nodes, w + "q", q.data, self.weight, integer=True)
        elif self.weight.is_narrow:
            items += [tensor(w + "p", q.data, bits=4), *others]
            cast = onnx.helper.make_node("Cast", [w + "p"], [w + "q"], to=onnx.TensorProto.INT8)
            nodes.append(cast)
        else:
            items += [tensor(w + "q", q.data), *others]
        return rows

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        if node.name != layer.nodes[0]:
            graph.write_float(node, None, None)
            return
        graph.use_part(layer, self)
        source = graph.float_name(node.input[0])
        graph.append(self._product(node, layer, source=source), [])

    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.use_part(layer, self)
        table.write_rows(node, layer, graph, block=0, weight=self.weight)

    def _product(self, node: Any, layer: Layer, *, source: str) -> list[Any]:
        """Return the nodes that stand in for the layer's own node."""
        import onnx

        make = onnx.helper.make_node
        w, output = layer.weight or "", node.output[0]
        is_conv, bias = node.op_type == "Conv", bool(layer.bias)
        views = [source + "D", source + "S", source + "Z"]
        nodes = [make("DynamicQuantizeLinear", [source], views)]
        data = views[0]
        if node.op_type == "Gemm" and attribute(node, "transA"):  # rare, but legal
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
            make("Mul", [output + "f", output + "X"], [output + "m" if bias else output]),
        ]
        if bias:
            nodes.append(make("Add", [output + "m", w + "b"], [output]))
        return nodes


def _matrix(node: Any, layer: Layer, constants: Constants) -> Floats:
    """Return the weight as the integer op wants it."""
    values = constants.weight(layer)
    if node.op_type != "Gemm":
        return values
    if attribute(node, "transB"):
        values = np.ascontiguousarray(values.T)
    return (values * np.float32(attribute(node, "alpha", 1.0))).astype(np.float32)


def _scales(w: str, q: Quantized, *, is_conv: bool) -> list[Any]:
    scale = q.scale
    if q.axis is not None and is_conv:
        scale = scale.reshape(1, -1, *([1] * (q.data.ndim - 2)))
    zero = q.zero_point if q.axis is None or not is_conv else q.zero_point[:1].reshape(())
    return [tensor(w + "s", scale), tensor(w + "z", zero)]

"""n-bit: integer weights that stay integers in memory, multiplied by the runtime's n-bit kernel.

DequantizeLinear → MatMul, by column (eight bits; five and six are stored in two tensors and become
eight at load) or in blocks (six bits and less, opset 21): ONNX Runtime loads it as MatMulNBits. Its
kernel quantizes the input too, to int8 with a scale for each row and block, so that an answer does
not depend on what else is in the batch. With a level the node is written as MatMulNBits itself,
which only ONNX Runtime has: level 0 multiplies in float32, level 4 in int8 (onnxruntime#29849: that
can flip answers).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqto.errors import PlanError
from seqto.model.graph import attribute
from seqto.records import Layer
from seqto.schemes import table
from seqto.schemes.code import Coded, read_words
from seqto.schemes.half_precision import add_floats, with_half_scales
from seqto.schemes.integers import Floats, Quantized
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
from seqto.schemes.stored_planes import add_planes, planes_problem
from seqto.schemes.types import (
    BLOCK_OPSET,
    BLOCKS,
    LEVELS,
    S4,
    S5,
    S6,
    S8,
    U4,
    Arithmetic,
    IntType,
    Kernel,
    Rounding,
)
from seqto.schemes.weight_only import block_problem

CONTRIB_DOMAIN = "com.microsoft"
BY_COLUMN = (S8, S6, S5)  # weights with one scale a column; the kernel has eight bits of all
IN_BLOCKS = (S6, S5, S4, U4)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NBit(Coded):
    """Integer weights in memory too; the input is quantized by row and block as it runs."""

    weight: IntType = S8
    rounding: Rounding = Rounding.NEAREST
    block: int = 0  # 0: one scale a column, for more than four bits
    level: int | None = None  # accuracy level, written as a contrib op; None: standard operators
    code: str = field(init=False)
    kind: ClassVar[str] = "nbit"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.NBIT
    is_float: ClassVar[bool] = False
    activation: ClassVar[IntType | None] = None
    per_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        words = weight_words(self.weight, True, self.rounding, self.block)
        level = () if self.level is None else (f"level{self.level}",)
        object.__setattr__(self, "code", "-".join((self.kind, *words[:2], *level, *words[2:])))
        check_weight(self.code, self.weight, True, self.rounding, self.block)
        options = IN_BLOCKS if self.block else BY_COLUMN
        if self.weight not in options:
            raise PlanError(f"{self.code}: use s8-channel, s6 or s5, or s4 or u4 with a block")
        if self.block and self.block not in BLOCKS:
            raise PlanError(f"{self.code}: a block has one of {', '.join(map(str, BLOCKS))}")
        if self.level is not None and self.weight.in_planes:
            raise PlanError(f"{self.code}: MatMulNBits reads four or eight bits: use no level")
        if self.level is not None and self.level not in LEVELS:
            raise PlanError(f"{self.code}: a level is one of {', '.join(map(str, LEVELS))}")

    @staticmethod
    def parse(code: str) -> NBit:
        fields = ("per_channel", "rounding", "block", "level")
        words = read_words(code, fields=fields, types=1)
        if not words.types or words.per_channel is False:
            raise PlanError(f"unknown scheme {code!r}: use nbit-s8-channel or nbit-s4-block32")
        rounding = words.rounding or Rounding.NEAREST
        return NBit(words.types[0], rounding, words.block or 0, words.level)

    @property
    def kernel(self) -> Kernel:
        weight = S4 if self.weight.bits == 4 else S8
        return Kernel(Arithmetic.NBIT, weight, level=self.level)

    @property
    def bits(self) -> tuple[int, ...]:
        return (self.weight.tensor_bits,)

    @property
    def opset(self) -> int:
        return BLOCK_OPSET if self.block else self.weight.opset

    @property
    def contrib(self) -> bool:
        """Whether it is written with an operator that only ONNX Runtime has."""
        return self.level is not None

    def without_output_rounding(self) -> NBit:
        return dataclasses.replace(self, rounding=Rounding.NEAREST)

    def problem(self, layer: Layer) -> str | None:
        if layer.weight is None:
            return WEIGHTLESS
        if layer.storage:
            return STORED_ONLY
        if layer.op_type not in ("MatMul", "Gemm") or len(layer.weight_shape) != 2:
            return "the n-bit kernel multiplies by matrices only"
        if layer.table is not None and (self.weight is U4 or self.level is not None):
            return table.TIED
        return self._block_problem(layer) or planes_problem(layer, self.weight)

    def _block_problem(self, layer: Layer) -> str | None:
        if self.level is not None or layer.table is not None:
            return block_problem(layer, self.block or BLOCKS[0])
        length = table.summed_length(layer)  # the last block may be a short one
        return f"{length} numbers are less than a block" if length < self.block else None

    def quantized_weight(self, layer: Layer, constants: Constants) -> Quantized:
        """Return the integers as the layer's own node has its weights; a table as its rows."""
        if layer.table is not None:
            rounded = self.rounding is Rounding.OUTPUT
            return table.quantized_rows(
                layer, self.weight, constants, block=self.block, rounded=rounded
            )
        q = quantized_weight(
            layer,
            self.weight,
            constants,
            per_channel=True,
            rounding=self.rounding,
            block=self.block,
        )
        if self.block:
            return q
        return with_half_scales(constants.weight(layer), q, self.weight, rounding=self.rounding)

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        restored = self.quantized_weight(layer, constants).restore()
        return restored.T if layer.table is not None else restored

    def size_bytes(self, layer: Layer, constants: Constants, *, input_scale: float) -> int:
        del input_scale
        size = table.rows_bytes(layer, weight=self.weight, block=self.block)
        if self.weight is U4:
            size += int(np.prod(layer.weight_shape, dtype=np.int64)) // self.block // 2
        bias = constants.bias(layer)
        return size + (0 if bias is None else 2 * bias.size)

    # ------------------------------------------------------------------------------- the part

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        del input_scale
        items: list[Any] = []
        nodes: list[Any] = []
        node, w = constants.node(layer), layer.weight or ""
        q = self.quantized_weight(layer, constants)
        restored = q.restore() if correct_bias else None
        if layer.table is not None:
            self._add_table(layer, q, items, nodes)
        else:
            columns = as_columns(q, node)
            if self.level is None:
                self._add_columns(w, columns, items, nodes)
            else:
                self._add_packed(w, columns, items, nodes)
        bias = constants.bias(layer)
        if bias is not None:
            if restored is not None:
                turned = restored.T if layer.table is not None else restored
                bias = constants.corrected_bias(layer, turned)
            if node.op_type == "Gemm":
                bias = (bias * np.float32(attribute(node, "beta", 1.0))).astype(np.float32)
            add_floats(items, nodes, layer.bias or "", bias, added=True)
        return part_of(items, nodes, weight=w, bias=layer.bias or "")

    def _add_table(self, layer: Layer, q: Quantized, items: list[Any], nodes: list[Any]) -> None:
        """Add the rows that a Gather reads; the product reads their transpose, made at load."""
        import onnx

        make, w = onnx.helper.make_node, layer.weight or ""
        table.add_rows(layer, q, items, nodes, weight=self.weight)
        stored = table.stored_name(layer)
        # the kernel reads four bits as they are stored, five and six as int8
        rows = table.integers_name(layer, self.weight) if self.weight.in_planes else stored + "q"
        nodes.append(make("Transpose", [rows], [w + "q"], perm=[1, 0]))
        if self.block:
            nodes.append(make("Transpose", [stored + "s"], [w + "s"], perm=[1, 0]))
        else:
            items.append(tensor(w + "n", np.array([-1], np.int64)))
            nodes.append(make("Reshape", [stored + "s", w + "n"], [w + "s"]))
        nodes.append(self._dequantize(w, zero=False))

    def _add_columns(self, w: str, q: Quantized, items: list[Any], nodes: list[Any]) -> None:
        if self.weight.in_planes:
            add_planes(items, nodes, w + "q", q.data, self.weight, integer=True)
        else:
            items.append(tensor(w + "q", q.data, bits=self.weight.bits))
        add_floats(items, nodes, w + "s", q.scale)
        if self.weight is U4:
            items.append(tensor(w + "z", q.zero_point, bits=4))
        nodes.append(self._dequantize(w, zero=self.weight is U4))

    def _dequantize(self, w: str, *, zero: bool) -> Any:
        import onnx

        how = {"axis": 0, "block_size": self.block} if self.block else {"axis": 1}
        inputs = [w + "q", w + "s", *([w + "z"] if zero else [])]
        return onnx.helper.make_node("DequantizeLinear", inputs, [w], **how)

    def _add_packed(self, w: str, q: Quantized, items: list[Any], nodes: list[Any]) -> None:
        """Add the bytes that MatMulNBits reads: [columns, blocks, bytes of a block]."""
        block = self.block or BLOCKS[0]
        rows = q.data.T
        count, length = rows.shape
        if self.weight is not U4:  # the kernel's numbers are unsigned around the middle
            rows = (rows.astype(np.int16) + (8 if self.weight is S4 else 128)).astype(np.uint8)
        blocks = np.ascontiguousarray(rows).reshape(count, length // block, block)
        if self.weight.bits == 4:
            blocks = (blocks[..., 0::2] | (blocks[..., 1::2] << 4)).astype(np.uint8)
        items.append(tensor(w + "p", blocks))
        scale = q.scale.T if self.block else np.repeat(q.scale[:, None], length // block, axis=1)
        add_floats(items, nodes, w + "s", np.ascontiguousarray(scale).reshape(-1))
        if self.weight is U4:
            zeros = q.zero_point.T.astype(np.uint8)
            if zeros.shape[1] % 2:
                zeros = np.pad(zeros, ((0, 0), (0, 1)))
            packed = (zeros[:, 0::2] | (zeros[:, 1::2] << 4)).astype(np.uint8)
            items.append(tensor(w + "z", np.ascontiguousarray(packed).reshape(-1)))

    # --------------------------------------------------------------------------------- the nodes

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        if node.name != layer.nodes[0]:
            graph.write_float(node, None, None)
        elif node.op_type == "MatMul" and self.level is None:
            graph.write_float(node, layer, self)
        else:
            graph.use_part(layer, self)
            graph.append(self._product(node, layer, graph), [])

    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.use_part(layer, self)
        table.write_rows(node, layer, graph, block=self.block, weight=self.weight)

    def _product(self, node: Any, layer: Layer, graph: NodeWriter) -> list[Any]:
        """Return a MatMul and an Add in place of a Gemm, or the contrib op."""
        import onnx

        make = onnx.helper.make_node
        w, output, source = layer.weight or "", node.output[0], graph.float_name(node.input[0])
        nodes: list[Any] = []
        if node.op_type == "Gemm" and attribute(node, "transA"):
            nodes.append(make("Transpose", [source], [source + "T"], perm=[1, 0]))
            source += "T"
        product = output + "m" if layer.bias else output
        if self.level is None:
            nodes.append(make("MatMul", [source, w], [product], name=node.name))
        else:
            nodes.append(self._contrib(node, layer, source, product))
        if layer.bias:
            nodes.append(make("Add", [product, layer.bias], [output]))
        return nodes

    def _contrib(self, node: Any, layer: Layer, source: str, product: str) -> Any:
        import onnx

        w = layer.weight or ""
        summed = table.summed_length(layer)
        return onnx.helper.make_node(
            "MatMulNBits",
            [source, w + "p", w + "s", *([w + "z"] if self.weight is U4 else [])],
            [product],
            name=node.name,
            domain=CONTRIB_DOMAIN,
            K=summed,
            N=int(np.prod(layer.weight_shape)) // summed,
            bits=self.weight.bits,
            block_size=self.block or BLOCKS[0],
            accuracy_level=self.level,
        )

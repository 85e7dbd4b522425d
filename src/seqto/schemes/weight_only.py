"""Weight-only: integer weights that become float32 when a session loads; arithmetic in float.

Cast → Mul by the scales, both folded at load. Tables keep their integers: rows become floats as
they are read (table.py).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from seqto.errors import PlanError
from seqto.records import Layer
from seqto.schemes import table
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
from seqto.schemes.read_rows import (
    add_finer_rows,
    finer_bytes,
    read_rows,
    restore_rows,
    write_finer_rows,
)
from seqto.schemes.stored_multiples import add_multiples
from seqto.schemes.stored_planes import add_planes, planes_problem
from seqto.schemes.types import FLOAT_KERNEL, S8, Arithmetic, IntType, Kernel, Rounding


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WeightOnly(SizedByPart, Coded):
    """Integer weights, float32 arithmetic."""

    weight: IntType = S8
    per_channel: bool = True
    rounding: Rounding = Rounding.NEAREST
    block: int = 0  # numbers that share a scale; 0: a whole channel or row does
    read8: bool = False  # rows of a table that calibration reads have eight bits (read_rows.py)
    code: str = field(init=False)
    kind: ClassVar[str] = "weight"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.FLOAT
    is_float: ClassVar[bool] = False
    activation: ClassVar[IntType | None] = None

    def __post_init__(self) -> None:
        words = weight_words(self.weight, self.per_channel, self.rounding, self.block)
        words = (*words, *(("read8",) if self.read8 else ()))
        object.__setattr__(self, "code", "-".join((self.kind, *words)))
        check_weight(self.code, self.weight, self.per_channel, self.rounding, self.block)
        if self.read8 and not (
            self.block and self.weight.bits == 4 and self.rounding is Rounding.NEAREST
        ):
            raise PlanError(f"{self.code}: rows of a table in blocks can be finer, as s4-block64")
        if not self.weight.signed:
            raise PlanError(f"{self.code}: weight-only needs a signed weight type")

    @staticmethod
    def parse(code: str) -> WeightOnly:
        words = read_words(code, fields=("per_channel", "rounding", "block", "read8"), types=1)
        if not words.types:
            raise PlanError(f"unknown scheme {code!r}: no weight type is given")
        return WeightOnly(
            words.types[0],
            per_channel=words.per_channel is not False,
            rounding=words.rounding or Rounding.NEAREST,
            block=words.block or 0,
            read8=bool(words.read8),
        )

    @property
    def kernel(self) -> Kernel:
        return FLOAT_KERNEL

    @property
    def bits(self) -> tuple[int, ...]:
        return (self.weight.tensor_bits,)

    @property
    def opset(self) -> int:
        return self.weight.opset

    def without_output_rounding(self) -> WeightOnly:
        return dataclasses.replace(self, rounding=Rounding.NEAREST)

    def problem(self, layer: Layer) -> str | None:
        if layer.weight is None:
            return WEIGHTLESS
        if self.weight.multiples and layer.storage:
            return f"{self.weight} is for products: use s4"
        if not self.per_channel and table.is_table(layer):
            return "tables and constants have a scale per row or block: use channel"
        if self.rounding is Rounding.OUTPUT and layer.storage:
            return "no product reads it: there is no output to round for"
        return (
            self._rows_problem(layer)
            or block_problem(layer, self.block)
            or planes_problem(layer, self.weight)
        )

    def _rows_problem(self, layer: Layer) -> str | None:
        if self.block and self.weight.in_planes and not layer.storage:
            return f"blocks of matrices have four bits here: use nbit-{self.weight}"
        if self.read8 and not (layer.storage and layer.nodes):
            return "calibration knows the rows that are read of tables alone"
        return None

    def quantized_weight(self, layer: Layer, constants: Constants) -> Quantized:
        if table.is_table(layer):
            rounded = self.rounding is Rounding.OUTPUT
            return table.quantized_rows(
                layer, self.weight, constants, block=self.block, rounded=rounded
            )
        return quantized_weight(
            layer,
            self.weight,
            constants,
            per_channel=self.per_channel,
            rounding=self.rounding,
            block=self.block,
        )

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        q = self.quantized_weight(layer, constants)
        if self.read8:
            rows, read = table.rows_of(layer, constants), read_rows(layer, constants)
            return restore_rows(rows, q, self.weight, read)
        restored = q.restore()
        if layer.table is not None:
            return restored.T
        return restored.reshape(constants.weight(layer).shape) if layer.storage else restored

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        del input_scale
        w = layer.weight or ""
        items: list[Any] = []
        nodes: list[Any] = []
        q = self.quantized_weight(layer, constants)
        if table.is_table(layer):
            table.add_rows(layer, q, items, nodes, weight=self.weight)
            if self.read8:
                add_finer_rows(layer, q, items, nodes, weight=self.weight, constants=constants)
            if not (layer.storage and layer.nodes):
                table.add_restored(layer, q, items, nodes, weight=self.weight)
        elif self.block:
            self._add_blocks(w, q, items, nodes)
        else:
            q = with_half_scales(constants.weight(layer), q, self.weight, rounding=self.rounding)
            self._add_channels(w, q, items, nodes)
        bias = constants.bias(layer)
        if bias is not None:
            if correct_bias:
                restored = q.restore().T if layer.table is not None else q.restore()
                bias = constants.corrected_bias(layer, restored)
            add_floats(items, nodes, layer.bias or "", bias, added=True)
        return part_of(items, nodes, weight=w, bias=layer.bias or "")

    def _add_channels(self, w: str, q: Quantized, items: list[Any], nodes: list[Any]) -> None:
        import onnx

        make = onnx.helper.make_node
        scale = q.scale
        if q.axis is not None:
            shape = [1] * q.data.ndim
            shape[q.axis] = -1
            scale = scale.reshape(shape)
        is_plain = not (self.weight.multiples or self.weight.in_planes)
        if self.weight.multiples:
            add_multiples(items, nodes, w + "c", q, self.weight, integer=False)
        elif self.weight.in_planes:
            add_planes(items, nodes, w + "c", q.data, self.weight, integer=False)
        else:
            items.append(tensor(w + "q", q.data, bits=self.weight.bits))
        add_floats(items, nodes, w + "s", scale)
        if is_plain:  # behind the scales: files of earlier runs keep their bytes
            nodes.append(make("Cast", [w + "q"], [w + "c"], to=onnx.TensorProto.FLOAT))
        nodes.append(make("Mul", [w + "c", w + "s"], [w]))

    def _add_blocks(self, w: str, q: Quantized, items: list[Any], nodes: list[Any]) -> None:
        """Add integers with one axis more, of the numbers in a block; at load it goes again."""
        import onnx

        make, axis = onnx.helper.make_node, q.axis or 0
        split = list(q.data.shape)
        split[axis : axis + 1] = [q.data.shape[axis] // q.block, q.block]
        items.append(tensor(w + "q", q.data.reshape(split), bits=self.weight.bits))
        add_floats(items, nodes, w + "s", np.expand_dims(q.scale, axis + 1))
        items.append(tensor(w + "o", np.array(q.data.shape, np.int64)))
        nodes += [
            make("Cast", [w + "q"], [w + "c"], to=onnx.TensorProto.FLOAT),
            make("Mul", [w + "c", w + "s"], [w + "m"]),
            make("Reshape", [w + "m", w + "o"], [w]),
        ]

    def size_bytes(self, layer: Layer, constants: Constants, *, input_scale: float) -> int:
        if table.is_table(layer) or self.block:
            bias = constants.bias(layer)
            added = 0 if bias is None else 2 * bias.size
            if self.read8:
                added += finer_bytes(layer, constants, block=self.block)
            return table.rows_bytes(layer, weight=self.weight, block=self.block) + added
        part = self.part(layer, constants, input_scale=input_scale, correct_bias=False)
        return part.size_bytes

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.write_float(node, layer, self)

    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.use_part(layer, self)
        if self.read8:
            write_finer_rows(node, layer, graph, block=self.block, weight=self.weight)
            return
        table.write_rows(node, layer, graph, block=self.block, weight=self.weight)


def block_problem(layer: Layer, block: int) -> str | None:
    """Return why the layer's weights cannot be divided into such blocks, or None."""
    if not block:
        return None
    is_matrix = layer.op_type in ("MatMul", "Gemm") and len(layer.weight_shape) == 2
    if not is_matrix and not layer.storage:
        return "blocks are for matrices, tables and constants"
    length = table.summed_length(layer)
    return f"{length} numbers in a row are no multiple of {block}" if length % block else None

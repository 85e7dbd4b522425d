"""fp16: weights stored in half precision, cast to float32 when a session loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.records import Layer
from seqto.schemes.code import read_words
from seqto.schemes.float_kind import FloatKind
from seqto.schemes.half_precision import add_floats
from seqto.schemes.integers import Floats
from seqto.schemes.part import WEIGHTLESS, Constants, NodeWriter, Part, part_of, tensor
from seqto.schemes.table import stored_name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Float16(FloatKind):
    """Half the bytes, float32 arithmetic."""

    code: str = field(default="fp16", init=False)
    kind: ClassVar[str] = "fp16"

    @staticmethod
    def parse(code: str) -> Float16:
        read_words(code, fields=())
        return Float16()

    @property
    def bits(self) -> tuple[int, ...]:
        return (16,)

    def without_output_rounding(self) -> Float16:
        return self

    def problem(self, layer: Layer) -> str | None:
        return WEIGHTLESS if layer.weight is None else None

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        return self._half(layer, constants).astype(np.float32)

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        import onnx

        del input_scale, correct_bias
        make = onnx.helper.make_node
        w, stored, half = layer.weight or "", stored_name(layer), self._half(layer, constants)
        whole = w if layer.table is None else stored + "f"
        items = [tensor(stored + "h", half if layer.table is None else half.T)]
        nodes = [make("Cast", [stored + "h"], [whole], to=onnx.TensorProto.FLOAT)]
        if layer.table is not None:
            nodes.append(make("Transpose", [whole], [w], perm=[1, 0]))
        elif layer.nodes and layer.storage:
            nodes = []  # rows are cast, not the table
        bias = constants.bias(layer)
        if bias is not None:
            add_floats(items, nodes, layer.bias or "", bias, added=True)
        return part_of(items, nodes, weight=w, bias=layer.bias or "")

    def _half(self, layer: Layer, constants: Constants) -> NDArray[np.float16]:
        limit = np.finfo(np.float16).max
        return np.clip(constants.weight(layer), -limit, limit).astype(np.float16)

    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        """Read rows of halves; only these become float32."""
        import onnx

        make, output = onnx.helper.make_node, node.output[0]
        graph.use_part(layer, self)
        inputs = [stored_name(layer) + "h", graph.float_name(node.input[1])]
        nodes = [
            make("Gather", inputs, [output + "h"], name=node.name),
            make("Cast", [output + "h"], [output], to=onnx.TensorProto.FLOAT),
        ]
        graph.append(nodes, [])

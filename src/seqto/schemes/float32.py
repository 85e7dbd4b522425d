"""fp32: the layer as the float model has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from seqto.records import Layer
from seqto.schemes.code import read_words
from seqto.schemes.float_kind import FloatKind
from seqto.schemes.integers import Floats
from seqto.schemes.part import Constants, NodeWriter, Part, part_of


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Float32(FloatKind):
    """Weights and arithmetic of the float model."""

    code: str = field(default="fp32", init=False)
    kind: ClassVar[str] = "fp32"

    @staticmethod
    def parse(code: str) -> Float32:
        read_words(code, fields=())
        return Float32()

    @property
    def bits(self) -> tuple[int, ...]:
        return ()

    def without_output_rounding(self) -> Float32:
        return self

    def problem(self, layer: Layer) -> str | None:
        del layer
        return None

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats:
        return constants.weight(layer)

    def part(
        self, layer: Layer, constants: Constants, *, input_scale: float, correct_bias: bool
    ) -> Part:
        """Return the float model's own constants, not copies: they are the largest of all parts."""
        import onnx

        del input_scale, correct_bias
        if layer.table is not None:  # stored once; the product's side is made at load
            w = layer.weight or ""
            turned = onnx.helper.make_node("Transpose", [layer.table], [w], perm=[1, 0])
            items = [constants.initializer(x) for x in (layer.table, layer.bias) if x]
            return part_of(items, [turned], weight=w, bias=layer.bias or "")
        items = [constants.initializer(name) for name in (layer.weight, layer.bias) if name]
        return part_of(items, [], weight=layer.weight or "", bias=layer.bias or "")

    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None:
        del layer
        graph.write_float(node, None, None)

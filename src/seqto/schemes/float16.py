"""fp16: weights stored in half precision, cast to float32 when a session loads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.records import Layer
from seqto.schemes.code import read_words
from seqto.schemes.float_kind import FloatKind
from seqto.schemes.half_precision import add_floats
from seqto.schemes.integers import Floats
from seqto.schemes.part import WEIGHTLESS, Constants, Part, part_of, tensor


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
        w = layer.weight or ""
        items = [tensor(w + "h", self._half(layer, constants))]
        nodes = [onnx.helper.make_node("Cast", [w + "h"], [w], to=onnx.TensorProto.FLOAT)]
        bias = constants.bias(layer)
        if bias is not None:
            add_floats(items, nodes, layer.bias or "", bias, added=True)
        return part_of(items, nodes, weight=w, bias=layer.bias or "")

    def _half(self, layer: Layer, constants: Constants) -> NDArray[np.float16]:
        limit = np.finfo(np.float16).max
        return np.clip(constants.weight(layer), -limit, limit).astype(np.float16)

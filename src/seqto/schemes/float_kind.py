"""Properties that the float kinds share: no integer types, the float kernel, any opset."""

from __future__ import annotations

from typing import Any, ClassVar

from seqto.records import Layer
from seqto.schemes.code import Coded
from seqto.schemes.part import NodeWriter, PartScheme, SizedByPart
from seqto.schemes.types import FLOAT_KERNEL, Arithmetic, IntType, Kernel, Rounding


class FloatKind(SizedByPart, Coded):
    """A layer with float weights and float arithmetic."""

    __slots__ = ()
    kind: ClassVar[str]
    arithmetic: ClassVar[Arithmetic] = Arithmetic.FLOAT
    is_float: ClassVar[bool] = True
    weight: ClassVar[IntType | None] = None
    activation: ClassVar[IntType | None] = None
    per_channel: ClassVar[bool] = True
    rounding: ClassVar[Rounding] = Rounding.NEAREST

    @property
    def kernel(self) -> Kernel:
        return FLOAT_KERNEL

    @property
    def opset(self) -> int:
        return 0

    def write(self: PartScheme, node: Any, layer: Layer, graph: NodeWriter) -> None:
        graph.write_float(node, layer, self)

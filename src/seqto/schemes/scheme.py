"""The scheme of a layer: how its weights and activations are kept. One file has each kind."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from seqto.errors import PlanError, nearest
from seqto.model.prepare import LOWEST_OPSET
from seqto.records import Layer
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.float16 import Float16
from seqto.schemes.float32 import Float32
from seqto.schemes.integers import Floats
from seqto.schemes.nbit import NBit
from seqto.schemes.part import Constants, NodeWriter
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import Arithmetic, IntType, Kernel, Rounding
from seqto.schemes.weight_only import WeightOnly


class Scheme(Protocol):
    """How one layer is kept: a value of one of the kinds.

    `str(scheme)` is its code, the stable name on disk and in tables; `Scheme.parse(code)` is the
    value again. Values are equal if their codes are.
    """

    kind: ClassVar[str]  # fp32 | fp16 | static | dynamic | weight | nbit
    arithmetic: ClassVar[Arithmetic]
    is_float: ClassVar[bool]  # fp32 or fp16: nothing is rounded to integers

    @property
    def code(self) -> str: ...

    @property
    def weight(self) -> IntType | None: ...  # None: a float kind, or a layer without weights

    @property
    def activation(self) -> IntType | None: ...  # None: inputs and output are not calibrated

    @property
    def per_channel(self) -> bool: ...

    @property
    def rounding(self) -> Rounding: ...

    @property
    def kernel(self) -> Kernel: ...

    @property
    def bits(self) -> tuple[int, ...]: ...  # of the numbers other than float32

    @property
    def opset(self) -> int: ...  # the lowest that has all it needs; 0: any that seqto writes

    def without_output_rounding(self) -> Scheme: ...

    def problem(self, layer: Layer) -> str | None: ...  # why ONNX cannot keep this layer so

    def restored_weight(self, layer: Layer, constants: Constants) -> Floats: ...

    def size_bytes(self, layer: Layer, constants: Constants, *, input_scale: float) -> int: ...

    def write(self, node: Any, layer: Layer, graph: NodeWriter) -> None: ...

    # the Gather that reads rows of the layer's table
    def write_rows(self, node: Any, layer: Layer, graph: NodeWriter) -> None: ...

    @staticmethod
    def parse(code: str) -> Scheme:
        """Return the scheme that a code names. Each kind parses its own codes."""
        return _parse(code)


KINDS: Mapping[str, type[Scheme]] = {
    "fp32": Float32,
    "fp16": Float16,
    "static": StaticInt,
    "dynamic": DynamicInt,
    "weight": WeightOnly,
    "nbit": NBit,
}


@functools.lru_cache(maxsize=4096)
def _parse(code: str) -> Scheme:
    word = code.partition("-")[0]
    kind = KINDS.get(word)
    if kind is None:
        suggestion, known = nearest(word, list(KINDS)), ", ".join(KINDS)
        raise PlanError(f"unknown scheme {code!r}: it starts with none of {known}{suggestion}")
    return kind.parse(code)


FP32 = Float32()


FP16 = Float16()


def opset_needed(scheme: Scheme) -> int:
    return max(LOWEST_OPSET, scheme.opset)


def is_contrib(scheme: Scheme) -> bool:
    """Return whether a scheme is written with an operator that only ONNX Runtime has."""
    return isinstance(scheme, NBit) and scheme.contrib


def depends_on_batch(scheme: Scheme) -> bool:
    """Return whether a sample's answer may depend on what else is in its batch.

    A dynamic scheme takes one range for all of the input, padding and other samples included.
    """
    return scheme.arithmetic is Arithmetic.DYNAMIC


def unfit(layer: Layer, scheme: Scheme, *, max_opset: int | None = None) -> str | None:
    """Return why a layer cannot be kept so by ONNX itself, or None. Devices have their own say."""
    if scheme == FP32:
        return None
    if max_opset is not None and opset_needed(scheme) > max_opset:
        return f"it needs opset {opset_needed(scheme)} and max_opset is {max_opset}"
    return scheme.problem(layer)

"""Small constants (scales, biases) stored in half precision, where that is safe and pays."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqto.schemes import integers
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.part import tensor
from seqto.schemes.types import IntType, Rounding

HALF_PAYS = 32  # numbers: two bytes saved on each must pay for a Cast node
HALF_ERROR = 1e-3  # relative; more than this and numbers stay float32


def fits_half(values: Floats, *, added: bool = False) -> bool:
    """Return whether half precision keeps these numbers to three digits: none over- or underflows.

    Numbers that are added to others (biases) may be off by as much of their usual size: half
    precision loses digits of what is tiny, where they do not matter.
    """
    usual = float(np.sqrt(np.mean(np.square(values.astype(np.float64))))) if added else 0.0
    with np.errstate(over="ignore"):
        back = values.astype(np.float16).astype(np.float32)
    return bool(np.all(np.abs(back - values) <= HALF_ERROR * np.maximum(np.abs(values), usual)))


def with_half_scales(
    values: Floats, q: Quantized, weight: IntType, *, rounding: Rounding = Rounding.NEAREST
) -> Quantized:
    """Return the same with scales that half precision holds exactly: storing them so is free."""
    if q.scale.size < HALF_PAYS or not fits_half(q.scale):
        return q
    scale = q.scale.astype(np.float16).astype(np.float32)
    if rounding is Rounding.OUTPUT:
        return Quantized(q.data, scale, q.zero_point, q.axis)
    return integers.requantize(values, scale, q.zero_point, weight, axis=q.axis)


def add_floats(
    items: list[Any], nodes: list[Any], name: str, values: Floats, *, added: bool = False
) -> None:
    """Store numbers as float16 behind a Cast, folded at load, where that is safe and pays."""
    import onnx

    if values.size < HALF_PAYS or not fits_half(values, added=added):
        items.append(tensor(name, values))
        return
    items.append(tensor(name + "h", values.astype(np.float16)))
    nodes.append(onnx.helper.make_node("Cast", [name + "h"], [name], to=onnx.TensorProto.FLOAT))

"""Channels of all but vanished weights become zero, so that their bias survives.

A channel of weights near 1e-8 has a weight scale near 1e-10; times the input's scale it is the
scale of the int32 bias, which then saturates and takes the channel's whole answer with it
(MobileNetV3's squeeze-and-excite layers). Zero weights get the scale 1. This is a correction: the
outputs may move, by what those weights had contributed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqto.errors import ConfigError
from seqto.model.graph import weight_axis
from seqto.model.prepare import Prepared
from seqto.records import Layer
from seqto.transforms.editable_model import EditableModel
from seqto.transforms.transform import Applied, Peaks


@dataclass(frozen=True, slots=True)
class Denormals:
    """below: an output channel whose largest weight is smaller than this is set to zero."""

    below: float = 1e-7
    kind: ClassVar[str] = "denormals"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.below) and self.below > 0):
            raise ConfigError(f"denormals: below is {self.below}, use a number above 0, as 1e-7")

    def apply(self, prepared: Prepared, peaks: Peaks) -> Applied:
        """Zero the vanished channels of every layer; `peaks` are not needed."""
        draft = EditableModel(prepared)
        touched, notes, total = [], [], 0
        for layer in prepared.layers:
            if layer.weight is None or layer.storage or layer.table is not None:
                continue
            values = draft.array(layer.weight)
            axis = _output_axis(draft, layer)
            others = None if axis is None else tuple(i for i in range(values.ndim) if i != axis)
            vanished = np.abs(values).max(axis=others, keepdims=True) < self.below
            lost = int(np.count_nonzero(values * vanished))
            if lost == 0:
                continue
            draft.put(layer.weight, np.where(vanished, 0.0, values))
            touched.append(layer.name)
            channels = int(np.count_nonzero(vanished))
            notes.append(f"{layer.name}: {lost} weights of {channels} channels set to zero")
            total += lost
        notes.append(f"{total} weights below {self.below:g} set to zero in all")
        return Applied(draft.finish(), tuple(touched), (), False, tuple(notes))


def _output_axis(draft: EditableModel, layer: Layer) -> int | None:
    """Return the axis of output channels; None where the weights have none to speak of."""
    node = next(n for n in draft.readers[str(layer.weight)] if n.name == layer.nodes[0])
    if len(draft.readers[str(layer.weight)]) > 1:
        return None  # others may read the same weights along another axis
    rank = draft.array(str(layer.weight)).ndim
    if layer.op_type == "ConvTranspose" or (layer.op_type == "MatMul" and rank != 2):
        return None
    return weight_axis(node, rank)

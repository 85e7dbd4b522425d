"""Upper bounds of the values in front of a Clip: a proof, not a sample.

Fifty calibration pictures do not show where a rarely active channel ends: with channels judged by
their calibrated peaks (at most 0.9 of ReLU6's 6), unseen pictures moved the logits of three
mobile networks by 3 to 9 % of the largest one. Interval arithmetic from clip to clip is coarse
behind wide convolutions and good behind depthwise ones, where equalization matters most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqto.model.graph import attribute
from seqto.transforms.editable_model import EditableModel, Floats, Weighted
from seqto.transforms.links import clip_range
from seqto.transforms.transform import Peaks

SAME_BOUNDS = frozenset(("MaxPool", "GlobalAveragePool", "GlobalMaxPool", "Identity"))


@dataclass(frozen=True, slots=True)
class Interval:
    """Lowest and highest value of each channel (axis 1)."""

    low: Floats
    high: Floats


def bounds_before_clips(draft: EditableModel, peaks: Peaks) -> dict[str, Floats]:
    """Return a Clip's output → the largest magnitude that can reach the Clip, for each channel.

    Holds for all inputs that are nowhere larger than the calibration samples. Clips of which
    nothing can be said are left out.
    """
    known: dict[str, Interval] = {}
    for value in draft.proto.graph.input:
        peak = peaks.get(value.name)
        if peak is not None:
            known[value.name] = Interval(-peak.astype(np.float64), peak.astype(np.float64))
    bound_of: dict[str, Floats] = {}
    for node in draft.proto.graph.node:
        inside = known.get(node.input[0]) if node.op_type == "Clip" else None
        if inside is not None:
            low, _ = clip_range(draft, node)
            below = 0.0 if low == 0 else np.abs(inside.low)
            bound_of[node.output[0]] = np.maximum(np.maximum(inside.high, 0.0), below)
        result = _interval(draft, node, known)
        if result is not None:
            known[node.output[0]] = result
    return bound_of


def _interval(draft: EditableModel, node: Any, known: Mapping[str, Interval]) -> Interval | None:
    """Return the interval of a node's output from those of its inputs; None if unknown."""
    if node.op_type == "Clip":
        return _behind_clip(draft, node, known.get(node.input[0]))
    inside = known.get(node.input[0]) if node.input else None
    if inside is None:
        return None
    layer = draft.weighted.get(node.name)
    result: Interval | None = None
    if isinstance(layer, Weighted) and len(inside.low) == layer.inputs:
        result = _behind_weights(draft, layer, node, inside)
    elif node.op_type == "AveragePool":
        result = _with_zero(inside)  # its padding counts as zeros
    elif node.op_type in SAME_BOUNDS:
        result = inside
    elif node.op_type == "Relu":
        result = Interval(np.maximum(inside.low, 0.0), np.maximum(inside.high, 0.0))
    elif node.op_type == "Add" and node.input[1] in known:
        other = known[node.input[1]]
        if len(other.low) == len(inside.low):
            result = Interval(inside.low + other.low, inside.high + other.high)
    return result


def _behind_clip(draft: EditableModel, node: Any, inside: Interval | None) -> Interval | None:
    low, high = clip_range(draft, node)
    if inside is None:
        shape = draft.shapes.get(node.output[0], ())
        if len(shape) < 2 or shape[1] is None or not np.isfinite([low, high]).all():
            return None
        return Interval(np.full(shape[1], low), np.full(shape[1], high))
    return Interval(np.clip(inside.low, low, high), np.clip(inside.high, low, high))


def _behind_weights(
    draft: EditableModel, layer: Weighted, node: Any, inside: Interval
) -> Interval | None:
    if any(attribute(node, name, 1.0) != 1.0 for name in ("alpha", "beta")):
        return None
    inside = _with_zero(inside)  # what a convolution pads with
    weights = draft.array(layer.weight)
    if layer.depthwise:
        repeat = layer.outputs // layer.inputs
        rows = weights.reshape(layer.outputs, -1)
        positive, negative = np.maximum(rows, 0.0).sum(1), np.minimum(rows, 0.0).sum(1)
        low, high = np.repeat(inside.low, repeat), np.repeat(inside.high, repeat)
        lowest, highest = positive * low + negative * high, positive * high + negative * low
    else:
        matrix = np.moveaxis(weights, (layer.out_axis, layer.in_axis), (0, 1))
        taps = matrix.reshape(layer.outputs, layer.inputs, -1)
        plus, minus = np.maximum(taps, 0.0).sum(2), np.minimum(taps, 0.0).sum(2)
        lowest = plus @ inside.low + minus @ inside.high
        highest = plus @ inside.high + minus @ inside.low
    bias = draft.array(node.input[2]) if len(node.input) > 2 and node.input[2] else np.zeros(1)
    if bias.ndim > 1 and bias.size != bias.shape[-1]:
        return None
    return Interval(lowest + bias.reshape(-1), highest + bias.reshape(-1))


def _with_zero(inside: Interval) -> Interval:
    return Interval(np.minimum(inside.low, 0.0), np.maximum(inside.high, 0.0))

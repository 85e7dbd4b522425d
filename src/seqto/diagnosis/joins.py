"""Layers that put tensors of unlike ranges on one scale: a detector's boxes with its scores."""

from __future__ import annotations

import math

from seqto.diagnosis.subject import Subject
from seqto.model.layers import OUTPUT_OP
from seqto.records import Json
from seqto.schemes.static_int import StaticInt

FEW_STEPS = 8  # of 256: a tensor that has fewer on the common scale has lost five of its bits


def unlike_joins(subject: Subject) -> list[Json]:
    """Return Concat layers of which one input has few steps on the common scale, worst first.

    {layer, ranges: [[low, high], …] of its inputs, step: of the common scale, steps: that the
    narrowest input has}
    """
    joins = []
    known = subject.assembler.statistics.ranges
    for layer, scheme in subject.layers():
        if layer.op_type != "Concat" or not isinstance(scheme, StaticInt):
            continue
        ranges = [known[t]["minmax"] for t in layer.inputs if "minmax" in known.get(t, {})]
        widths = [high - low for low, high in ranges]
        if len(widths) < 2 or not all(math.isfinite(w) and w > 0 for w in widths):
            continue
        low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
        step = (max(high, 0.0) - min(low, 0.0)) / (2**scheme.activation.bits - 1)
        steps = min(widths) / step
        if steps < FEW_STEPS:
            rows = [[float(a), float(b)] for a, b in ranges]
            joins.append({"layer": layer.name, "ranges": rows, "step": step, "steps": steps})
    return sorted(joins, key=lambda row: row["steps"])


def layers_to_keep_float(subject: Subject, joins: list[Json]) -> list[str]:
    """Return the joins, and the model's outputs that they make."""
    named = {row["layer"] for row in joins}
    layers = subject.assembler.prepared.layers
    join_outputs = {x.output for x in layers if x.name in named}
    return [
        x.name
        for x in layers
        if x.name in named or (x.op_type == OUTPUT_OP and x.output in join_outputs)
    ]

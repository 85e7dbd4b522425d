"""Figures of models with attention: outlier channels, masks, tables, norms, batches.

Only models in which two activations are multiplied have them; of others nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from seqto.diagnosis import isolated_layers
from seqto.diagnosis.isolated_layers import Values
from seqto.diagnosis.subject import Subject
from seqto.model.layers import multiplies_activations
from seqto.model.prepare import Prepared
from seqto.records import Json
from seqto.schemes.types import Arithmetic
from seqto.transforms.affine import NORMS

MASKED = -1e4  # what lies below is a mask, not a score
LOWEST = float(np.finfo(np.float32).min)
MOVES = frozenset(("Reshape", "Flatten", "Transpose", "Identity", "Cast"))


def about_attention(subject: Subject) -> Json:
    """Return the figures; {} where no two activations are multiplied."""
    prepared = subject.assembler.prepared
    if not any(map(multiplies_activations, prepared.layers)):
        return {}
    dense = [x for x in prepared.layers if x.weight and x.op_type in ("MatMul", "Gemm")]
    scores = _score_tensors(prepared)
    names = list(dict.fromkeys([*(x.inputs[0] for x in dense), *scores]))
    run = isolated_layers.open_float(prepared, names)
    peaks: dict[str, Any] = {}
    masks: dict[str, Json] = {}
    for feeds in subject.samples:
        values = run(feeds)
        for layer in dense:
            value = np.abs(values[layer.inputs[0]])
            peak = value.reshape(-1, value.shape[-1]).max(axis=0)
            peaks[layer.name] = np.maximum(peak, peaks.get(layer.name, 0.0))
        for name in scores:
            _look_at_scores(masks, name, values[name])
        subject.alive()
    return {
        "channels": {name: _channels(peak) for name, peak in peaks.items()},
        "masks": {scores[name]: row for name, row in masks.items()},
        "tables": dict(_tables(prepared)),
        "norms": _norms(prepared),
        "batch": _batch(subject),
    }


def _channels(peak: Any) -> Json:
    middle = float(np.median(peak)) or 1.0
    return {"ratio": float(peak.max()) / middle, "loud": int((peak > 8 * middle).sum())}


def _score_tensors(prepared: Prepared) -> dict[str, str]:
    """Return tensor that a Softmax reads, before what only moves it → the Softmax."""
    makers = {o: n for n in prepared.proto.graph.node for o in n.output}
    softmax_of: dict[str, str] = {}
    for node in prepared.proto.graph.node:
        if node.op_type != "Softmax":
            continue
        tensor = node.input[0]
        while tensor in makers and makers[tensor].op_type in MOVES:
            tensor = makers[tensor].input[0]
        if tensor in makers:
            softmax_of[tensor] = node.name
    return softmax_of


def _look_at_scores(masks: dict[str, Json], name: str, value: Any) -> None:
    real = value[value > MASKED]
    row = masks.setdefault(name, {"lowest": 0.0, "low": 0.0, "high": 0.0})
    # masks of −inf, as torch writes them, are as good as the lowest number
    row["lowest"] = min(row["lowest"], max(float(value.min()), LOWEST))
    if real.size:
        row["low"] = min(row["low"], float(real.min()))
        row["high"] = max(row["high"], float(real.max()))


def _tables(prepared: Prepared) -> Iterator[tuple[str, Json]]:
    from onnx import numpy_helper

    constants = {t.name: t for t in prepared.proto.graph.initializer}
    total = sum(t.ByteSize() for t in constants.values()) or 1
    for node in prepared.proto.graph.node:
        table = constants.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or len(table.dims) != 2 or table.data_type != 1:
            continue
        peaks = np.abs(numpy_helper.to_array(table)).max(axis=1)
        middle = float(np.median(peaks)) or 1.0
        share = table.ByteSize() / total
        yield node.name, {"share": share, "ratio": float(peaks.max()) / middle}


def _norms(prepared: Prepared) -> Json:
    """Count norms that are ops, and those written as single ops (Div by a Sqrt)."""
    makers = {o: n for n in prepared.proto.graph.node for o in n.output}
    apart = [
        node.name
        for node in prepared.proto.graph.node
        if node.op_type == "Div"
        and node.input[1] in makers
        and makers[node.input[1]].op_type == "Sqrt"
    ]
    whole = sum(n.op_type in NORMS for n in prepared.proto.graph.node)
    return {"apart": apart, "ops": whole}


def _batch(subject: Subject) -> Json:
    """Measure how far the plan's answers move when samples share a batch; {} where none can."""
    plan = subject.plan
    dynamic = [n for n, s in plan.schemes if s.arithmetic is Arithmetic.DYNAMIC]
    alike = _alike(subject.samples)
    if not dynamic or len(alike) < 2:
        return {}
    session = subject.device.open(subject.assembler.assemble(plan).data, threads=1)
    position = list(subject.assembler.prepared.outputs).index(subject.judged[0])
    try:
        alone = [session.run(feeds)[position] for feeds in alike]
        joined = {k: np.concatenate([f[k] for f in alike]) for k in alike[0]}
        together = session.run(joined)[position]
    finally:
        session.close()
    want, together = (np.asarray(x, np.float64) for x in (np.concatenate(alone), together))
    if want.shape != together.shape:
        return {}
    spread = float(np.square(want - want.mean()).mean()) or 1.0
    moved = float(np.square(want - together).mean()) / spread
    return {"samples": len(alike), "damage": moved, "layers": len(dynamic)}


def _alike(samples: Sequence[Values]) -> list[Values]:
    """Return the most samples of one shape, each alone in its batch."""
    groups: dict[Any, list[Values]] = {}
    for feeds in samples:
        if all(len(v) == 1 for v in feeds.values()):
            groups.setdefault(tuple(v.shape for v in feeds.values()), []).append(feeds)
    return max(groups.values(), key=len, default=[])

"""Errors that quantization makes at the output of each layer.

qdq_err      a layer's output before and after its own quantize–dequantize, alone
xmodel_err   a layer's output in the float model against the fully quantized model, so all that
             went wrong before it counts too

Both are ‖x − y‖ / ‖x‖ over the samples: higher is worse. onnxruntime's debug tool returns the
same comparison as SQNR in dB, where *lower* is worse (the published tool sorts those the wrong
way round); the dB figures are kept beside the errors. A layer whose output is not quantized
(dynamic, weight-only) has its weights' round trip as qdq_err.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.model.batch import without_filling
from seqto.model.float_session import with_outputs
from seqto.model.layers import OUTPUT_OP
from seqto.model.ort_session import open_session
from seqto.records import Json, Layer, LayerError
from seqto.schemes import integers
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt


def layer_errors(
    assembler: Assembler,
    plan: Plan,
    samples: Iterable[Mapping[str, NDArray[Any]]],
    *,
    exact: bool = False,
    alive: Callable[[], None] = lambda: None,
) -> list[Json]:
    """Return [{layer, qdq_err, xmodel_err}] for every layer that the plan quantizes."""
    schemes = plan.as_dict()
    layers = [x for x in assembler.prepared.layers if x.op_type != OUTPUT_OP and x.name in schemes]
    if not layers:  # a session that is asked for no output gives all of them
        return []
    float_run = _open(assembler.prepared.proto, [x.output for x in layers], exact=False)
    quantized = _proto(assembler.assemble(plan).data)
    views = _views(quantized, layers)
    quantized_run = _open(quantized, list(views.values()), exact=exact)
    signal: dict[str, float] = {}
    own: dict[str, float] = {}
    whole: dict[str, float] = {}
    for feeds in samples:
        float_values, quantized_values = float_run(feeds), quantized_run(feeds)
        for layer in layers:
            x, y = float_values[layer.output], quantized_values[views[layer.name]]
            signal[layer.name] = signal.get(layer.name, 0.0) + _energy(x)
            whole[layer.name] = whole.get(layer.name, 0.0) + _energy(x - y)
            noise = _own_noise(assembler, layer, schemes[layer.name], x)
            own[layer.name] = own.get(layer.name, 0.0) + noise
        alive()
    rows = []
    for layer in layers:
        scheme, power = schemes[layer.name], max(signal[layer.name], 1e-30)
        if isinstance(scheme, StaticInt):
            qdq = math.sqrt(own[layer.name] / power)
        else:
            qdq = _weight_error(assembler, layer, scheme)
        rows.append(
            {
                "layer": layer.name,
                "qdq_err": qdq,
                "xmodel_err": math.sqrt(whole[layer.name] / power),
            }
        )
    return rows


def rank(
    rows: Sequence[Json],
    *,
    qdq_weight: float = 0.5,
    xmodel_weight: float = 0.5,
    damage: Mapping[str, float] | None = None,
) -> tuple[LayerError, ...]:
    """Rank layers, worst first, by the weighted mean of the two errors, each min–max normalised."""
    qdq = _normalised([r["qdq_err"] for r in rows])
    xmodel = _normalised([r["xmodel_err"] for r in rows])
    error = [qdq_weight * a + xmodel_weight * b for a, b in zip(qdq, xmodel, strict=True)]
    order = sorted(range(len(rows)), key=lambda i: (-error[i], rows[i]["layer"]))
    return tuple(
        LayerError(
            layer=rows[i]["layer"],
            qdq_err=rows[i]["qdq_err"],
            xmodel_err=rows[i]["xmodel_err"],
            error=error[i],
            qdq_sqnr_db=decibel(rows[i]["qdq_err"]),
            xmodel_sqnr_db=decibel(rows[i]["xmodel_err"]),
            rank=position,
            damage=(damage or {}).get(rows[i]["layer"]),
        )
        for position, i in enumerate(order)
    )


def decibel(error: float) -> float:
    """Return SQNR of a relative error; 200 dB stands for no error at all."""
    return min(200.0, -20.0 * math.log10(max(error, 1e-10)))


def _normalised(values: Sequence[float]) -> list[float]:
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [(v - low) / (high - low) if high > low else 0.0 for v in values]


def _energy(x: NDArray[Any]) -> float:
    flat = x.reshape(-1).astype(np.float32, copy=False)
    return float(np.dot(flat, flat))


def _own_noise(assembler: Assembler, layer: Layer, scheme: Scheme, x: NDArray[Any]) -> float:
    if not isinstance(scheme, StaticInt):
        return 0.0
    low, high = assembler.statistics.range_of(layer.output, scheme.ranges)
    scale, zero = integers.affine(
        np.float32(low), np.float32(high), scheme.activation, symmetric=False
    )
    q = integers.Quantized(
        integers.round_to(x, scale, zero, scheme.activation), scale, zero, axis=None
    )
    return _energy(x - q.restore())


def _weight_error(assembler: Assembler, layer: Layer, scheme: Scheme) -> float:
    if layer.weight is None:
        return 0.0
    values = assembler.weight(layer)
    restored = scheme.restored_weight(layer, assembler)
    return math.sqrt(_energy(values - restored) / max(_energy(values), 1e-30))


def _proto(data: bytes) -> Any:
    import onnx

    return onnx.load_from_string(data)


def _views(quantized: Any, layers: Sequence[Layer]) -> dict[str, str]:
    """Return by layer the tensor of the quantized model that has its dequantized output."""
    tensors = {o for n in quantized.graph.node for o in n.output}
    views = {}
    for layer in layers:
        dequantized = layer.output + "d"
        views[layer.name] = dequantized if dequantized in tensors else layer.output
    return views


def _open(
    proto: Any, names: Sequence[str], *, exact: bool
) -> Callable[[Mapping[str, NDArray[Any]]], dict[str, NDArray[Any]]]:
    unique_names = list(dict.fromkeys(names))
    session = open_session(
        with_outputs(proto, unique_names).SerializeToString(), optimize=not exact
    )

    def run(feeds: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        values = zip(unique_names, session.run(unique_names, dict(feeds)), strict=True)
        return {name: without_filling(value, feeds) for name, value in values}

    return run

"""Run the float model over the calibration samples once: ranges and means of its tensors.

Streaming: one batch's activations are in memory at a time, whatever the number of samples
(onnxruntime's own calibrators keep them all: onnxruntime#10503, #11020, #21979). Ranges other
than min-max come from histograms, which need a second pass over the same batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assemble import Statistics
from seqto.errors import DataError, ModelError
from seqto.files import write_file
from seqto.layers import CONVOLUTIONS, input_axis
from seqto.model import Prepared
from seqto.samples import rows_that_count, without_filling

Batches = Callable[[], Iterable[Mapping[str, NDArray[Any]]]]

BINS = 2048
VALUES_PER_TENSOR = 65_536  # a histogram looks at this many values of a tensor and batch
PERCENTILE = 99.99


@dataclass
class _Running:
    """What is known of one tensor so far."""

    axes: frozenset[int]  # its channels' axis; several: by some readers this, by others that
    low: float = np.inf
    high: float = -np.inf
    total: NDArray[np.float64] | None = None
    peak: NDArray[np.float32] | None = None
    count: int = 0
    histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))


@dataclass(frozen=True, slots=True)
class Calibration:
    """Statistics, and what only transforms need."""

    statistics: Statistics
    peaks: Mapping[str, NDArray[np.float32]]  # tensor → largest magnitude per channel
    samples: int


def calibrate(
    prepared: Prepared, batches: Batches, *, methods: Sequence[str] = ("minmax",)
) -> Calibration:
    """Ranges by each method for every tensor between layers."""
    names = tensors_of(prepared)
    session = session_with_outputs(prepared, names, exact=True)
    axes = channel_axes(prepared)
    running = {name: _Running(axes.get(name, frozenset())) for name in names}
    samples = 0
    for feeds in batches():
        samples += rows_that_count(feeds)
        for name, value in run_for(session, names, feeds).items():
            _look(running[name], value, name=name)
    if samples == 0:
        raise DataError("no calibration samples: set data.calibration to at least 1")
    ranges = {n: {"minmax": (r.low, r.high)} for n, r in running.items()}
    wanted = [m for m in methods if m != "minmax"]
    if wanted:
        _histograms(session, names, batches, running)
        for name, r in running.items():
            for method in wanted:
                ranges[name][method] = range_by(method, r.histogram, r.low, r.high)
    means = {
        n: (r.total / r.count).astype(np.float32) for n, r in running.items() if r.total is not None
    }
    peaks = {n: r.peak for n, r in running.items() if r.peak is not None}
    return Calibration(Statistics(ranges, means), peaks, samples)


def tensors_of(prepared: Prepared) -> list[str]:
    """Every tensor that a plan might quantize."""
    names: dict[str, None] = {}
    for layer in prepared.layers:
        for name in (*layer.inputs, layer.output):
            names[name] = None
    return list(names)


def channel_axes(prepared: Prepared) -> dict[str, frozenset[int]]:
    """Tensor → the axis that the layers behind it, else the layer before it, have channels on."""
    nodes = {n.name: n for n in prepared.proto.graph.node}
    read: dict[str, frozenset[int]] = {}
    made: dict[str, frozenset[int]] = {}
    for layer in prepared.layers:
        if layer.weight:
            node = nodes[layer.nodes[0]]
            made[layer.output] = frozenset({1 if node.op_type in CONVOLUTIONS else -1})
            read[layer.inputs[0]] = read.get(layer.inputs[0], frozenset()) | {input_axis(node)}
    return {**made, **read}


def session_with_outputs(prepared: Prepared, names: Sequence[str], *, exact: bool) -> Any:
    """The float model with inner tensors among its outputs; exact: no kernel is fused."""
    import onnx
    import onnxruntime as ort

    model = onnx.ModelProto()
    model.CopyFrom(prepared.proto)
    public = {o.name for o in model.graph.output} | {i.name for i in model.graph.input}
    for name in names:
        if name not in public:
            model.graph.output.add().name = name
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if exact:  # as onnxruntime's own calibrators run it: fused kernels move ranges by the last bit
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    else:  # one of several workers that do the same
        options.intra_op_num_threads = 1
    try:
        return ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # ORT raises many types without a root
        raise ModelError(f"the model does not load for calibration: {error}") from error


def run_for(
    session: Any, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Tensor → value, inputs of the model among them."""
    asked = [n for n in names if n not in feeds]
    values: dict[str, NDArray[Any]] = {}
    if asked:
        values = dict(zip(asked, session.run(asked, dict(feeds)), strict=True))
    values.update({n: feeds[n] for n in names if n in feeds})
    return {n: without_filling(value, feeds) for n, value in values.items()}


def _look(running: _Running, value: NDArray[Any], *, name: str) -> None:
    axis = _channel_axis(running.axes, value.ndim)
    by_channel = axis is not None and np.issubdtype(value.dtype, np.floating)
    others = tuple(i for i in range(value.ndim) if i != axis) if by_channel else None
    lows, highs = value.min(axis=others), value.max(axis=others)
    low, high = float(lows.min()), float(highs.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise DataError(f"tensor {name!r} is not finite on a calibration sample: check its input")
    running.low, running.high = min(running.low, low), max(running.high, high)
    if axis is None or not by_channel:
        return
    peak = np.maximum(highs, -lows).astype(np.float32)
    total = value.sum(axis=others, dtype=np.float64)
    if running.total is None or running.total.shape == total.shape:
        running.total = total if running.total is None else running.total + total
        running.peak = peak if running.peak is None else np.maximum(running.peak, peak)
        running.count += value.size // value.shape[axis]


def _channel_axis(axes: frozenset[int], rank: int) -> int | None:
    """The axis of a tensor's channels; None where it has none, or readers differ about it."""
    if rank < 2:
        return None
    if not axes:  # no layer with weights tells: NCHW, or last in a matrix
        return 1 if rank == 4 else rank - 1
    found = {axis % rank for axis in axes}
    return found.pop() if len(found) == 1 else None


def _histograms(
    session: Any, names: list[str], batches: Batches, running: Mapping[str, _Running]
) -> None:
    for feeds in batches():
        for name, value in run_for(session, names, feeds).items():
            r = running[name]
            flat = value.reshape(-1)
            step = max(1, flat.size // VALUES_PER_TENSOR)
            width = (r.high - r.low) / BINS
            if width <= 0:
                continue
            index = ((flat[::step] - r.low) / width).astype(np.int64)
            r.histogram += np.bincount(np.clip(index, 0, BINS - 1), minlength=BINS)


# -------------------------------------------------------------------------- ranges from histograms


def range_by(
    method: str, histogram: NDArray[np.int64], low: float, high: float
) -> tuple[float, float]:
    """A range that clips what is rare, by the rule of `method`."""
    if histogram.sum() == 0 or high <= low:
        return low, high
    if method == "percentile":
        return _percentile(histogram, low, high)
    if method == "mse":
        return _search(histogram, low, high, _squared_error)
    if method == "entropy":
        return _search(histogram, low, high, _divergence)
    raise DataError(f"unknown calibration method {method!r}: minmax, percentile, entropy or mse")


def _percentile(histogram: NDArray[np.int64], low: float, high: float) -> tuple[float, float]:
    share = np.cumsum(histogram) / histogram.sum()
    width = (high - low) / BINS
    rest = (1.0 - PERCENTILE / 100.0) / 2.0
    first = int(np.searchsorted(share, rest))
    last = int(np.searchsorted(share, 1.0 - rest))
    new_low = low if low >= 0 else low + first * width
    return new_low, low + (last + 1) * width


def _search(
    histogram: NDArray[np.int64],
    low: float,
    high: float,
    cost: Callable[[NDArray[np.float64], NDArray[np.float64], float, float], float],
) -> tuple[float, float]:
    """The best of some shrunken ranges; both ends shrink towards zero independently."""
    centers = low + (np.arange(BINS) + 0.5) * (high - low) / BINS
    weights = histogram.astype(np.float64) / histogram.sum()
    shares = np.linspace(1.0, 0.2, 33)
    best_high = min(shares, key=lambda s: cost(centers, weights, low, high * s))
    top = high * best_high
    if low >= 0:
        return low, top
    best_low = min(shares, key=lambda s: cost(centers, weights, low * s, top))
    return low * best_low, top


def _levels(low: float, high: float) -> tuple[float, float, float]:
    low, high = min(low, 0.0), max(high, 0.0)
    return low, high, max((high - low) / 255.0, 1e-30)


def _squared_error(
    centers: NDArray[np.float64], weights: NDArray[np.float64], low: float, high: float
) -> float:
    low, high, step = _levels(low, high)
    rounded = np.round((np.clip(centers, low, high) - low) / step) * step + low
    # values inside a bin are spread: rounding costs at least step²/12 within the range
    inside = (centers >= low) & (centers <= high)
    error = np.where(inside, step * step / 12.0, (centers - rounded) ** 2)
    return float((error * weights).sum())


def _divergence(
    centers: NDArray[np.float64], weights: NDArray[np.float64], low: float, high: float
) -> float:
    """Kullback–Leibler divergence of the clipped, 256-level histogram from the full one."""
    low, high, step = _levels(low, high)
    level = np.round((np.clip(centers, low, high) - low) / step).astype(np.int64)
    mass = np.bincount(level, weights=weights, minlength=256)
    filled = np.bincount(level, weights=(weights > 0).astype(np.float64), minlength=256)
    inside = (centers >= low) & (centers <= high)
    spread = np.where(filled[level] > 0, mass[level] / np.maximum(filled[level], 1), 0.0)
    model = np.where((weights > 0) & inside, spread, 1e-12)
    model = model / model.sum()
    known = weights > 0
    return float((weights[known] * np.log(weights[known] / np.maximum(model[known], 1e-30))).sum())


# ------------------------------------------------------------------------------------- on disk


def save_statistics(statistics: Statistics, path: str | Path) -> None:
    """Ranges and means in one .npz, without pickles."""
    import io

    arrays: dict[str, NDArray[Any]] = {}
    index: dict[str, Any] = {"ranges": statistics.ranges, "means": []}
    for i, (name, mean) in enumerate(statistics.means.items()):
        index["means"].append(name)
        arrays[f"m{i}"] = mean
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    write_file(path, stream.getvalue())


def load_statistics(path: str | Path) -> Statistics:
    with np.load(path, allow_pickle=False) as archive:
        index = json.loads(archive["index"].tobytes())
        ranges = {
            n: {m: (float(v[0]), float(v[1])) for m, v in by.items()}
            for n, by in index["ranges"].items()
        }
        means = {name: archive[f"m{i}"] for i, name in enumerate(index["means"])}
    return Statistics(ranges, means)


def element_counts(prepared: Prepared, feeds: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """How many numbers each tensor between layers holds for one sample."""
    names = tensors_of(prepared)
    session = session_with_outputs(prepared, names, exact=True)
    rows = len(next(iter(feeds.values())))
    return {n: int(v.size) // rows for n, v in run_for(session, names, feeds).items()}

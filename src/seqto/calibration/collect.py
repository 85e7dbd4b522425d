"""Run the float model over the calibration samples once: ranges and means of its tensors.

Streaming: one batch's activations are in memory at a time, whatever the number of samples
(onnxruntime's own calibrators keep them all: onnxruntime#10503, #11020, #21979). Ranges other
than min-max come from histograms, which need a second pass over the same batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.ranges import BINS, range_by
from seqto.calibration.statistics import Statistics
from seqto.errors import DataError
from seqto.model.batch import rows_that_count
from seqto.model.float_session import run_for, session_with_outputs, tensors_of
from seqto.model.graph import CONVOLUTIONS, input_axis
from seqto.model.prepare import Prepared

Batches = Callable[[], Iterable[Mapping[str, NDArray[Any]]]]


VALUES_PER_TENSOR = 65_536  # a histogram looks at this many values of a tensor and batch


@dataclass
class _Running:
    """Running statistics of one tensor."""

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
    """Return ranges by each method for every tensor between layers."""
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
    histogram_methods = [m for m in methods if m != "minmax"]
    if histogram_methods:
        _histograms(session, names, batches, running)
        for name, r in running.items():
            for method in histogram_methods:
                ranges[name][method] = range_by(method, r.histogram, r.low, r.high)
    means = {
        n: (r.total / r.count).astype(np.float32) for n, r in running.items() if r.total is not None
    }
    peaks = {n: r.peak for n, r in running.items() if r.peak is not None}
    return Calibration(Statistics(ranges, means), peaks, samples)


def channel_axes(prepared: Prepared) -> dict[str, frozenset[int]]:
    """Return tensor → axis on which layers behind it, else the layer before it, have channels."""
    nodes = {n.name: n for n in prepared.proto.graph.node}
    read: dict[str, frozenset[int]] = {}
    written: dict[str, frozenset[int]] = {}
    for layer in prepared.layers:
        if layer.weight and not layer.storage:
            node = nodes[layer.nodes[0]]
            written[layer.output] = frozenset({1 if node.op_type in CONVOLUTIONS else -1})
            read[layer.inputs[0]] = read.get(layer.inputs[0], frozenset()) | {input_axis(node)}
    return {**written, **read}


def _look(running: _Running, value: NDArray[Any], *, name: str) -> None:
    if not value.size:  # a cache before the first token
        return
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
    """Return the axis of a tensor's channels.

    None where it has none, or readers differ about it.
    """
    if rank < 2:
        return None
    if not axes:  # no layer with weights tells: NCHW, or last in a matrix
        return 1 if rank == 4 else rank - 1
    positions = {axis % rank for axis in axes}
    return positions.pop() if len(positions) == 1 else None


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

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
from seqto.calibration.row_reads import RowCounter
from seqto.calibration.statistics import Statistics
from seqto.errors import DataError
from seqto.model.batch import rows_that_count
from seqto.model.float_session import run_for, session_with_outputs, tensors_of
from seqto.model.graph import CONVOLUTIONS, input_axis
from seqto.model.prepare import Prepared

Batches = Callable[[], Iterable[Mapping[str, NDArray[Any]]]]


VALUES_PER_TENSOR = 65_536  # a histogram looks at this many values of a tensor and batch
LARGEST = float(np.finfo(np.float32).max)


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
    rows = RowCounter(prepared)
    looked_at = [*names, *(n for n in rows.tensors if n not in names)]
    session = session_with_outputs(prepared, looked_at, exact=True)
    axes = channel_axes(prepared)
    running = {name: _Running(axes.get(name, frozenset())) for name in names}
    numbers = _always_finite(prepared)
    samples = 0
    for feeds in batches():
        samples += rows_that_count(feeds)
        values = run_for(session, looked_at, feeds)
        rows.look(values)
        for name in names:
            if not _look(running[name], values[name], masked=name not in numbers):
                fed = (n for n, x in feeds.items() if not np.isfinite(x).all())
                raise DataError(_not_finite(prepared, next(fed, name)))
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
    return Calibration(Statistics(ranges, means, rows.row_reads()), peaks, samples)


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


def _always_finite(prepared: Prepared) -> frozenset[str]:
    """Return the tensors that hold no mask: what goes in, and what layers with weights compute."""
    weighted = [layer for layer in prepared.layers if layer.weight and not layer.storage]
    read = {name for layer in weighted for name in layer.inputs}
    written = {layer.output for layer in weighted}
    return frozenset({spec.name for spec in prepared.inputs} | read | written)


def _not_finite(prepared: Prepared, name: str) -> str:
    """Return a message about a tensor, named after the node that makes it."""
    makers = {output: node.name for node in prepared.proto.graph.node for output in node.output}
    what = f"the result of node {makers[name]!r}" if name in makers else f"input {name!r}"
    return f"{what} is not finite on a calibration sample: check the samples"


def _look(running: _Running, value: NDArray[Any], *, masked: bool) -> bool:
    """Add the values of one batch to the statistics; False where one is not finite.

    masked: the tensor may be a mask, whose infinity counts as the largest float32.
    """
    if not value.size:  # a cache before the first token
        return True
    axis = _channel_axis(running.axes, value.ndim)
    by_channel = axis is not None and np.issubdtype(value.dtype, np.floating)
    others = tuple(i for i in range(value.ndim) if i != axis) if by_channel else None
    lows, highs = value.min(axis=others), value.max(axis=others)
    low, high = float(lows.min()), float(highs.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        if not masked or np.isnan(low) or np.isnan(high):
            return False
        return _look(running, np.clip(value, -LARGEST, LARGEST), masked=True)
    running.low, running.high = min(running.low, low), max(running.high, high)
    if axis is None or not by_channel:
        return True
    peak = np.maximum(highs, -lows).astype(np.float32)
    total = value.sum(axis=others, dtype=np.float64)
    if running.total is None or running.total.shape == total.shape:
        running.total = total if running.total is None else running.total + total
        running.peak = peak if running.peak is None else np.maximum(running.peak, peak)
        running.count += value.size // value.shape[axis]
    return True


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
            looked = flat[::step]
            if max(-r.low, r.high) >= LARGEST:  # a mask: differences are beyond float32
                looked = np.clip(looked.astype(np.float64), -LARGEST, LARGEST)
            index = ((looked - r.low) / width).astype(np.int64)
            r.histogram += np.bincount(np.clip(index, 0, BINS - 1), minlength=BINS)

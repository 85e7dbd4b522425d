"""Errors of each layer alone: on the device, in exact arithmetic, and under other schemes.

Every layer runs on float inputs (isolated_layers.py), so that its error is its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.devices.device import Session
from seqto.diagnosis import isolated_layers
from seqto.diagnosis.isolated_layers import IsolatedLayers, Values
from seqto.diagnosis.remedies import with_scheme_fields, without_saturation
from seqto.diagnosis.subject import Subject, with_ranges
from seqto.model.layers import OUTPUT_OP, SAME_SCALE_OPS
from seqto.records import Json, Layer
from seqto.schemes import integers
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import MINMAX, S7, Rounding

# One step of the output may go to rounding (a kernel that multiplies by a reciprocal instead of
# dividing); a layer alone cannot be off by more without another cause …
STEPS = 1.5
# … except where an input lay between two integers and a large weight carries it on. That is rarer
# than one value in ten thousand.
OFF_SHARE = 1e-4
# One of eight bits: what 0.01 % of the values may take from the rest before they are outliers.
OUTLIER_RATIO = 2.0
TINY_WEIGHT = 1e-7  # weights that training has switched off (a blog on MobileNetV3 names this)


@dataclass
class _ErrorSums:
    """Sums over samples for one layer of one run."""

    signal: float = 0.0
    exact: float = 0.0
    device: float = 0.0
    gap: float = 0.0
    off: int = 0
    count: int = 0


@dataclass
class _IsolatedRun:
    """One plan layer by layer, in exact arithmetic and, where asked, on the device."""

    subject: Subject
    plan: Plan
    first: Values
    on_device: bool = False
    sums_by_layer: dict[str, _ErrorSums] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.isolated = IsolatedLayers(self.subject.assembler, self.plan, self.first)
        model = self.isolated.model(self.plan)
        self.device: Session | None = None
        self.exact = self.subject.exact.open(isolated_layers.in_float_arithmetic(model), threads=1)
        try:
            if self.on_device:
                self.device = self.subject.device.open(model, threads=1)
        except BaseException:
            self.exact.close()
            raise
        self.steps = {x.name: _step(self.subject.assembler, x) for x in self.isolated.layers}
        self.subject.alive()

    def close(self) -> None:
        """Close the sessions; the sums stay."""
        self.exact.close()
        if self.device is not None:
            self.device.close()

    def add_sample(self, values: Values) -> None:
        feeds = self.isolated.feeds(values)
        exact = [np.asarray(x, np.float32) for x in self.exact.run(feeds)]
        device = exact
        if self.device is not None:
            device = [np.asarray(x, np.float32) for x in self.device.run(feeds)]
        for layer, a, b in zip(self.isolated.layers, exact, device, strict=True):
            want = values[layer.output]
            sums = self.sums_by_layer.setdefault(layer.name, _ErrorSums())
            sums.signal += energy(want)
            sums.exact += energy(a - want)
            sums.device += energy(b - want)
            sums.gap += energy(a - b)
            sums.off += int(np.count_nonzero(np.abs(a - b) > STEPS * self.steps[layer.name]))
            sums.count += a.size
        self.subject.alive()

    def error(self, name: str, *, device: bool = False) -> float:
        """Return ‖float − quantized‖ / ‖float‖ of a layer's output."""
        sums = self.sums_by_layer[name]
        return math.sqrt((sums.device if device else sums.exact) / max(sums.signal, 1e-30))

    def off_share(self, name: str) -> float:
        """Return the share of outputs in which device and exact arithmetic are steps apart."""
        return self.sums_by_layer[name].off / max(1, self.sums_by_layer[name].count)

    def saturating(self) -> list[str]:
        return [n for n in self.sums_by_layer if self.off_share(n) >= OFF_SHARE]


def by_layer(subject: Subject) -> Json:
    """Return [{layer, device_err, exact_err, off_share, …}] with what is known of each cause."""
    subject = with_ranges(subject)
    float_run = isolated_layers.open_float(
        subject.assembler.prepared,
        isolated_layers.tensors_for(subject.assembler.prepared, subject.plan),
    )
    first = float_run(subject.samples[0])
    schemes = subject.plan.as_dict()
    tensorwise = [n for n, s in schemes.items() if s.weight and not s.per_channel]
    outliers = outlier_ratios(subject)
    troubled = bias_troubles(subject)
    cured: dict[str, _IsolatedRun | None] = {}
    with contextlib.ExitStack() as stack:

        def closed_at_exit(view: _IsolatedRun | None) -> _IsolatedRun | None:
            return None if view is None else stack.enter_context(contextlib.closing(view))

        planned = _IsolatedRun(subject, subject.plan, first, on_device=True)
        closed_at_exit(planned)
        views = {
            "channel": closed_at_exit(
                _only(subject, tensorwise, first, on_device=True, per_channel=True)
            ),
            "percentile": closed_at_exit(
                _only(subject, list(outliers), first, ranges="percentile")
            ),
            "mse": closed_at_exit(_only(subject, list(outliers), first, ranges="mse")),
            "bias_float": closed_at_exit(
                _only(subject, list(troubled), first, on_device=True, float_bias=True)
            ),
            "bias_held": closed_at_exit(_held(subject, list(troubled), first)),
        }
        _add_samples(subject, float_run, [planned, *(v for v in views.values() if v)])
        saturating = planned.saturating()
        if saturating:
            for name, plan in without_saturation(subject.restricted(saturating)).items():
                cured[name] = closed_at_exit(_IsolatedRun(subject, plan, first, on_device=True))
            _add_samples(subject, float_run, [v for v in cured.values() if v])
    rows = []
    for layer, scheme in subject.layers():
        row = _row(layer, scheme, planned)
        if layer.weight is not None:
            row["channel_spread"] = channel_spread(subject.assembler, layer)
        row |= _errors(layer.name, {**views, **cured})
        if layer.name in outliers:
            row["outlier_ratio"] = outliers[layer.name]
        if layer.name in troubled:
            row["bias"] = troubled[layer.name]
        rows.append(row)
    return {"rows": rows, "samples": len(subject.samples), "cpu_flags": cpu_flags()}


def _row(layer: Layer, scheme: Scheme, planned: _IsolatedRun) -> Json:
    return {
        "layer": layer.name,
        "op_type": layer.op_type,
        "depthwise": layer.depthwise,
        "parameters": layer.parameters,
        "scheme": str(scheme),
        "device_err": planned.error(layer.name, device=True),
        "exact_err": planned.error(layer.name),
        "off_share": planned.off_share(layer.name),
    }


def _errors(name: str, views: Mapping[str, _IsolatedRun | None]) -> Json:
    """Return a layer's errors under other schemes, in simulation and on the device."""
    figures: Json = {}
    for what, view in views.items():
        if view is None or name not in view.sums_by_layer:
            continue
        figures[f"{what}_err"] = view.error(name)
        if view.on_device:
            figures[f"{what}_device_err"] = view.error(name, device=True)
            figures[f"{what}_off_share"] = view.off_share(name)
    return figures


def _add_samples(
    subject: Subject, float_run: Callable[[Values], Values], views: Sequence[_IsolatedRun]
) -> None:
    for feeds in subject.samples:
        values = float_run(feeds)
        for view in views:
            view.add_sample(values)


def _only(
    subject: Subject, names: Sequence[str], first: Values, *, on_device: bool = False, **fields: Any
) -> _IsolatedRun | None:
    if not names:
        return None
    plan = with_scheme_fields(subject.restricted(names), only=names, **fields)
    return _IsolatedRun(subject, plan, first, on_device=on_device)


def _held(subject: Subject, names: Sequence[str], first: Values) -> _IsolatedRun | None:
    """Return a run with weight scales raised to hold an int32 bias.

    Weights are s7, so that nothing else saturates.
    """
    if not names:
        return None
    schemes = subject.plan.as_dict()
    raised = {
        n: dataclasses.replace(s, weight=S7, float_bias=False, rounding=Rounding.NEAREST)
        for n, s in schemes.items()
        if n in names and isinstance(s, StaticInt)
    }
    return _IsolatedRun(subject, subject.restricted(names).replace(raised), first, on_device=True)


# ----------------------------------------------------------------------- what needs no running


def channel_spread(assembler: Assembler, layer: Layer) -> float:
    """Return the largest channel range of a weight over the median one.

    Dead channels do not count.
    """
    values = assembler.weight(layer)
    axis = assembler.channel_axis(layer)
    peaks = np.abs(values).max(axis=tuple(i for i in range(values.ndim) if i != axis))
    living = peaks[peaks > TINY_WEIGHT]
    return float(living.max() / np.median(living)) if living.size else 1.0


def outlier_ratios(subject: Subject) -> dict[str, float]:
    """Return layer → full range over that of 99.99 % of the values, where it is large.

    Looked at are the tensors that the layer itself quantizes: its output, and inputs that reach
    it in float. Layers whose ranges are clipped already are left out.
    """
    statistics = subject.assembler.statistics
    prepared = subject.assembler.prepared
    schemes = subject.plan.as_dict()
    static = {x.output for x, s in subject.layers() if isinstance(s, StaticInt)}
    kept_float = {
        x.output for x in prepared.layers if x.op_type == OUTPUT_OP and x.name not in schemes
    }
    ratio_of: dict[str, float] = {}
    for layer, scheme in subject.layers():
        if not isinstance(scheme, StaticInt) or scheme.ranges != MINMAX:
            continue
        tensors = [t for t in layer.inputs if t not in static]
        if layer.op_type not in SAME_SCALE_OPS and layer.output not in kept_float:
            tensors.append(layer.output)
        ratios = [
            _width(statistics.range_of(t, "minmax"))
            / max(_width(statistics.range_of(t, "percentile")), 1e-30)
            for t in tensors
        ]
        if ratios and max(ratios) >= OUTLIER_RATIO:
            ratio_of[layer.name] = max(ratios)
    return ratio_of


def bias_troubles(subject: Subject) -> dict[str, Json]:
    """Return layers whose int32 bias saturates, or would if weight scales were not raised for it.

    A float bias is looked at too: ONNX Runtime makes it int32 when it loads a static layer.
    """
    troubles: dict[str, Json] = {}
    for layer, scheme in subject.layers():
        bias = subject.assembler.bias(layer) if layer.weight else None
        if bias is None or not isinstance(scheme, StaticInt):
            continue
        low, high = subject.assembler.statistics.range_of(layer.inputs[0], scheme.ranges)
        bounds = np.asarray(low, np.float32), np.asarray(high, np.float32)
        scale, _ = integers.affine(*bounds, scheme.activation, symmetric=False)
        q = scheme.quantized_weight(layer, subject.assembler)
        if layer.op_type == "Gemm" and q.axis is not None:
            bias = integers.one_per_channel(bias, q.scale)
        plain = integers.bias_scale(float(scale), q.scale, bias)
        _, without = integers.quantize_bias(bias, plain)
        as_float = scheme.float_bias
        held = q.scale
        if scheme.holds_bias:
            held = integers.scale_that_holds_bias(
                q.scale, float(scale), bias, per_channel=q.axis is not None
            )
        bias_scale = integers.bias_scale(float(scale), held, bias)
        _, saturated = integers.quantize_bias(bias, bias_scale)
        raised = int(np.count_nonzero(held != q.scale))
        if without or raised:
            weights = np.abs(subject.assembler.weight(layer))
            troubles[layer.name] = {
                "float": as_float,
                "saturated": 0 if as_float else saturated,
                "saturated_without_adjustment": without,
                "raised_scales": raised,
                "tiny_weights": int(np.count_nonzero((weights > 0) & (weights < TINY_WEIGHT))),
                "values": int(bias.size),
            }
    return troubles


def cpu_flags() -> list[str]:
    """Return the CPU's instructions for 8-bit dot products; empty where Linux does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            lines = [x for x in stream if x.startswith(("flags", "Features"))]
    except OSError:
        return []
    flags = lines[0].split(":", 1)[1].split() if lines else []
    return sorted(f for f in flags if "vnni" in f or f in ("avx2", "asimddp", "i8mm", "amx_int8"))


def energy(x: NDArray[Any]) -> float:
    flat = np.asarray(x, dtype=np.float64).reshape(-1)
    return float(np.dot(flat, flat))


def _width(bounds: tuple[float, float]) -> float:
    return max(bounds[1], 0.0) - min(bounds[0], 0.0)


def _step(assembler: Assembler, layer: Layer) -> float:
    """Return one of 255 steps of the layer's output.

    Also the measure where the output stays float.
    """
    return max(_width(assembler.statistics.range_of(layer.output, "minmax")) / 255.0, 1e-30)

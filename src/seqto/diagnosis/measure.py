"""What a diagnosis rests on: figures that a worker measures, layer by layer and at the output.

Three parts, each a job of its own, so that workers share them:

    layers   every layer alone on float inputs (apart.py): its error on the device and in exact
             arithmetic, and what other schemes would make of it
    damage   what each layer's own error does to the model's output, in exact arithmetic
    whole    the output of the whole model as planned and with cures, on the device and exact

Exact arithmetic is the same model without graph optimization: every QuantizeLinear and
DequantizeLinear is computed as written and the products are float, so no kernel can saturate.
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
from seqto.calibration.collect import calibrate
from seqto.calibration.statistics import Statistics
from seqto.devices.device import Device, Session
from seqto.diagnosis import isolated_layers
from seqto.diagnosis.isolated_layers import Apart, Values
from seqto.diagnosis.remedies import cures, with_scheme_fields, without_saturation
from seqto.errors import DeviceError, PlanError
from seqto.model import outputs as model_outputs
from seqto.model.batch import rows_fed, rows_that_count
from seqto.model.layers import OUTPUT_OP, SAME_SCALE_OPS
from seqto.records import Json, Layer
from seqto.schemes import integers
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import MINMAX, S7, Rounding

PARTS = ("layers", "damage", "whole")


DAMAGE_SAMPLES = 4  # of the samples: one run for each layer and sample is what costs time


# One step of the output may go to rounding (a kernel that multiplies by a reciprocal instead of
# dividing); a layer alone cannot be off by more without another cause …
STEPS = 1.5


# … except where an input lay between two integers and a large weight carries it on. That is rarer
# than one value in ten thousand.
OFF_SHARE = 1e-4


# One of eight bits: what 0.01 % of the values may take from the rest before they are outliers.
OUTLIER_RATIO = 2.0


TINY_WEIGHT = 1e-7  # weights that training has switched off (a blog on MobileNetV3 names this)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a worker has at hand."""

    assembler: Assembler
    plan: Plan
    samples: Sequence[Values]
    device: Device
    exact: Device
    alive: Callable[[], None] = lambda: None
    output: str = ""  # the judged one; empty: the first

    @property
    def judged(self) -> str:
        return self.output or self.assembler.prepared.outputs[0]

    def layers(self) -> list[tuple[Layer, Scheme]]:
        schemes = self.plan.as_dict()
        found = isolated_layers.quantized_layers(self.assembler.prepared, self.plan)
        return [(x, schemes[x.name]) for x in found]

    def restricted(self, names: Sequence[str]) -> Plan:
        """Only these layers, and the outputs, which say what the layers before them hand on."""
        outputs = [x.name for x in self.assembler.prepared.layers if x.op_type == OUTPUT_OP]
        kept = {n: c for n, c in self.plan.schemes if n in names or n in outputs}
        return self.plan.with_schemes(kept)


def gather(part: str, scene: Scene) -> Json:
    """The figures of one part."""
    if not scene.layers():
        raise PlanError("the plan quantizes no layer: there is nothing to diagnose")
    makers = {"layers": by_layer, "damage": damage_by_layer, "whole": at_the_output}
    if part not in makers:
        raise PlanError(f"unknown part of a diagnosis: {part!r}")
    return makers[part](scene)


# ------------------------------------------------------------------------------- part: layers


@dataclass
class _Tally:
    """Sums over samples for one layer of one view."""

    signal: float = 0.0
    exact: float = 0.0
    device: float = 0.0
    gap: float = 0.0
    off: int = 0
    count: int = 0


@dataclass
class _View:
    """One plan layer by layer, in exact arithmetic and, where asked, on the device."""

    scene: Scene
    plan: Plan
    first: Values
    on_device: bool = False
    tallies: dict[str, _Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.apart = Apart(self.scene.assembler, self.plan, self.first)
        model = self.apart.model(self.plan)
        self.device: Session | None = None
        self.exact = self.scene.exact.open(isolated_layers.in_float_arithmetic(model), threads=1)
        try:
            if self.on_device:
                self.device = self.scene.device.open(model, threads=1)
        except BaseException:
            self.exact.close()
            raise
        self.steps = {x.name: _step(self.scene.assembler, x) for x in self.apart.layers}
        self.scene.alive()

    def close(self) -> None:
        """The sums stay; the sessions go."""
        self.exact.close()
        if self.device is not None:
            self.device.close()

    def look(self, values: Values) -> None:
        feeds = self.apart.feeds(values)
        exact = [np.asarray(x, np.float32) for x in self.exact.run(feeds)]
        device = exact
        if self.device is not None:
            device = [np.asarray(x, np.float32) for x in self.device.run(feeds)]
        for layer, a, b in zip(self.apart.layers, exact, device, strict=True):
            want = values[layer.output]
            tally = self.tallies.setdefault(layer.name, _Tally())
            tally.signal += energy(want)
            tally.exact += energy(a - want)
            tally.device += energy(b - want)
            tally.gap += energy(a - b)
            tally.off += int(np.count_nonzero(np.abs(a - b) > STEPS * self.steps[layer.name]))
            tally.count += a.size
        self.scene.alive()

    def error(self, name: str, *, device: bool = False) -> float:
        """‖float − quantized‖ / ‖float‖ of a layer's output."""
        tally = self.tallies[name]
        return math.sqrt((tally.device if device else tally.exact) / max(tally.signal, 1e-30))

    def off_share(self, name: str) -> float:
        """Share of the output's values where device and exact arithmetic are steps apart."""
        return self.tallies[name].off / max(1, self.tallies[name].count)

    def saturating(self) -> list[str]:
        return [n for n in self.tallies if self.off_share(n) >= OFF_SHARE]


def by_layer(scene: Scene) -> Json:
    """[{layer, device_err, exact_err, off_share, …}] with what is known of each cause."""
    scene = with_ranges(scene)
    float_run = isolated_layers.open_float(
        scene.assembler.prepared, isolated_layers.tensors_for(scene.assembler.prepared, scene.plan)
    )
    first = float_run(scene.samples[0])
    schemes = scene.plan.as_dict()
    tensorwise = [n for n, s in schemes.items() if s.weight and not s.per_channel]
    outliers = outlier_ratios(scene)
    troubled = bias_troubles(scene)
    cured: dict[str, _View | None] = {}
    with contextlib.ExitStack() as stack:

        def kept(view: _View | None) -> _View | None:
            return None if view is None else stack.enter_context(contextlib.closing(view))

        planned = _View(scene, scene.plan, first, on_device=True)
        kept(planned)
        views = {
            "channel": kept(_only(scene, tensorwise, first, on_device=True, per_channel=True)),
            "percentile": kept(_only(scene, list(outliers), first, ranges="percentile")),
            "mse": kept(_only(scene, list(outliers), first, ranges="mse")),
            "bias_float": kept(
                _only(scene, list(troubled), first, on_device=True, float_bias=True)
            ),
            "bias_held": kept(_held(scene, list(troubled), first)),
        }
        _look(scene, float_run, [planned, *(v for v in views.values() if v)])
        saturating = planned.saturating()
        if saturating:
            for name, plan in without_saturation(scene.restricted(saturating)).items():
                cured[name] = kept(_View(scene, plan, first, on_device=True))
            _look(scene, float_run, [v for v in cured.values() if v])
    rows = []
    for layer, scheme in scene.layers():
        row = _row(layer, scheme, planned)
        if layer.weight is not None:
            row["channel_spread"] = channel_spread(scene.assembler, layer)
        row |= _errors(layer.name, {**views, **cured})
        if layer.name in outliers:
            row["outlier_ratio"] = outliers[layer.name]
        if layer.name in troubled:
            row["bias"] = troubled[layer.name]
        rows.append(row)
    return {"rows": rows, "samples": len(scene.samples), "cpu_flags": cpu_flags()}


def _row(layer: Layer, scheme: Scheme, planned: _View) -> Json:
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


def _errors(name: str, views: Mapping[str, _View | None]) -> Json:
    """What other schemes would make of a layer: errors, and where the device was looked at too."""
    found: Json = {}
    for what, view in views.items():
        if view is None or name not in view.tallies:
            continue
        found[f"{what}_err"] = view.error(name)
        if view.on_device:
            found[f"{what}_device_err"] = view.error(name, device=True)
            found[f"{what}_off_share"] = view.off_share(name)
    return found


def _look(scene: Scene, float_run: Callable[[Values], Values], views: Sequence[_View]) -> None:
    for feeds in scene.samples:
        values = float_run(feeds)
        for view in views:
            view.look(values)


def _only(
    scene: Scene, names: Sequence[str], first: Values, *, on_device: bool = False, **fields: Any
) -> _View | None:
    if not names:
        return None
    plan = with_scheme_fields(scene.restricted(names), only=names, **fields)
    return _View(scene, plan, first, on_device=on_device)


def _held(scene: Scene, names: Sequence[str], first: Values) -> _View | None:
    """Weight scales raised so that they hold an int32 bias; s7, so that nothing else saturates."""
    if not names:
        return None
    schemes = scene.plan.as_dict()
    raised = {
        n: dataclasses.replace(s, weight=S7, float_bias=False, rounding=Rounding.NEAREST)
        for n, s in schemes.items()
        if n in names and isinstance(s, StaticInt)
    }
    return _View(scene, scene.restricted(names).replace(raised), first, on_device=True)


def with_ranges(scene: Scene) -> Scene:
    """Percentile and MSE ranges beside those that were calibrated; few samples will do here."""
    made = scene.assembler
    known = made.statistics
    missing = [m for m in ("percentile", "mse") if any(m not in by for by in known.ranges.values())]
    if not missing:
        return scene
    found = calibrate(made.prepared, lambda: scene.samples, methods=["minmax", *missing])
    scene.alive()
    fresh = found.statistics.ranges
    merged = {n: {**fresh.get(n, {}), **by} for n, by in known.ranges.items()}
    assembler = Assembler(
        made.prepared,
        Statistics(merged, known.means),
        rounded=made.rounded,
        max_opset=made.max_opset,
    )
    return dataclasses.replace(scene, assembler=assembler)


# ----------------------------------------------------------------------- what needs no running


def channel_spread(assembler: Assembler, layer: Layer) -> float:
    """Largest channel range of a weight over the median one; dead channels do not count."""
    values = assembler.weight(layer)
    axis = assembler.channel_axis(layer)
    peaks = np.abs(values).max(axis=tuple(i for i in range(values.ndim) if i != axis))
    living = peaks[peaks > TINY_WEIGHT]
    return float(living.max() / np.median(living)) if living.size else 1.0


def outlier_ratios(scene: Scene) -> dict[str, float]:
    """Layer → full range over that of 99.99 % of the values, where it is large.

    Looked at are the tensors that the layer itself quantizes: its output, and inputs that reach
    it in float. Layers whose ranges are clipped already are left out.
    """
    statistics = scene.assembler.statistics
    prepared = scene.assembler.prepared
    schemes = scene.plan.as_dict()
    static = {x.output for x, s in scene.layers() if isinstance(s, StaticInt)}
    kept_float = {
        x.output for x in prepared.layers if x.op_type == OUTPUT_OP and x.name not in schemes
    }
    found: dict[str, float] = {}
    for layer, scheme in scene.layers():
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
            found[layer.name] = max(ratios)
    return found


def bias_troubles(scene: Scene) -> dict[str, Json]:
    """Layers whose int32 bias saturates, or would if weight scales were not raised for it.

    A float bias is looked at too: ONNX Runtime makes it int32 when it loads a static layer.
    """
    found: dict[str, Json] = {}
    for layer, scheme in scene.layers():
        bias = scene.assembler.bias(layer) if layer.weight else None
        if bias is None or not isinstance(scheme, StaticInt):
            continue
        low, high = scene.assembler.statistics.range_of(layer.inputs[0], scheme.ranges)
        bounds = np.asarray(low, np.float32), np.asarray(high, np.float32)
        scale, _ = integers.affine(*bounds, scheme.activation, symmetric=False)
        q = scheme.quantized_weight(layer, scene.assembler)
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
        kept = integers.bias_scale(float(scale), held, bias)
        _, saturated = integers.quantize_bias(bias, kept)
        raised = int(np.count_nonzero(held != q.scale))
        if without or raised:
            weights = np.abs(scene.assembler.weight(layer))
            found[layer.name] = {
                "float": as_float,
                "saturated": 0 if as_float else saturated,
                "saturated_without_adjustment": without,
                "raised_scales": raised,
                "tiny_weights": int(np.count_nonzero((weights > 0) & (weights < TINY_WEIGHT))),
                "values": int(bias.size),
            }
    return found


def cpu_flags() -> list[str]:
    """Which of the CPU's 8-bit dot products there are; empty where Linux does not tell."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            lines = [x for x in stream if x.startswith(("flags", "Features"))]
    except OSError:
        return []
    flags = lines[0].split(":", 1)[1].split() if lines else []
    return sorted(f for f in flags if "vnni" in f or f in ("avx2", "asimddp", "i8mm", "amx_int8"))


# ------------------------------------------------------------------------------- part: damage


def damage_by_layer(scene: Scene) -> Json:
    """Layer → squared error at the model's output over the outputs' variance, layer alone."""
    prepared = scene.assembler.prepared
    samples = scene.samples[:DAMAGE_SAMPLES]
    float_run = isolated_layers.open_float(
        prepared, isolated_layers.tensors_for(prepared, scene.plan)
    )
    first = float_run(samples[0])
    view = Apart(scene.assembler, scene.plan, first)
    model = isolated_layers.in_float_arithmetic(view.model(scene.plan))
    run = isolated_layers.open_deltas(prepared, view.layers, output=scene.judged)
    squares = dict.fromkeys((x.name for x in view.layers), 0.0)
    references: list[NDArray[Any]] = []
    with contextlib.closing(scene.exact.open(model, threads=1)) as exact:
        for feeds in samples:
            values = float_run(feeds)
            outputs = exact.run(view.feeds(values))
            want = _answers(scene, run(feeds, {}), feeds)
            references.append(want)
            for layer, got in zip(view.layers, outputs, strict=True):
                delta = got - values[layer.output]
                moved = _answers(scene, run(feeds, {layer.output: delta}), feeds)
                squares[layer.name] += float(model_outputs.squared_gaps(want, moved).sum())
                scene.alive()
    spread = variance(references)
    rows = sum(len(r) for r in references)
    return {
        "damage": {name: value / rows / spread for name, value in squares.items()},
        "samples": len(samples),
    }


# -------------------------------------------------------------------------------- part: whole


def at_the_output(scene: Scene) -> Json:
    """{name: {device, exact}}: damage at the model's output, as planned and with cures."""
    scene = with_ranges(scene)
    prepared = scene.assembler.prepared
    float_run = isolated_layers.open_float(prepared, [scene.judged])
    references = [_answers(scene, float_run(f)[scene.judged], f) for f in scene.samples]
    spread = variance(references)
    found: Json = {}
    for name, plan in {"planned": scene.plan, **cures(scene.plan)}.items():
        try:
            found[name] = _damages(scene, plan, references, spread)
        except (DeviceError, PlanError) as error:
            if name == "planned":
                raise
            # a cure that this device or opset cannot take is none: said, not hidden
            found[name] = {"error": str(error)}
    return {"whole": found, "samples": len(scene.samples)}


def _damages(scene: Scene, plan: Plan, references: Sequence[NDArray[Any]], spread: float) -> Json:
    by_name = {x.name: x for x in scene.assembler.prepared.layers}
    for name, scheme in plan.as_dict().items():
        reason = scene.device.refuses(by_name[name], scheme)
        if reason:
            raise PlanError(f"layer {name!r} cannot be {scheme}: {reason}")
    model = scene.assembler.assemble(plan).data
    rows = sum(len(r) for r in references)
    position = scene.assembler.prepared.outputs.index(scene.judged)
    figures = {}
    for where, device in (("device", scene.device), ("exact", scene.exact)):
        data = model if where == "device" else isolated_layers.in_float_arithmetic(model)
        total = 0.0
        with contextlib.closing(device.open(data, threads=1)) as session:
            for feeds, want in zip(scene.samples, references, strict=True):
                got = _answers(scene, session.run(feeds)[position], feeds)
                total += float(model_outputs.squared_gaps(want, got).sum())
                scene.alive()
        figures[where] = total / rows / spread
    return figures


# ----------------------------------------------------------------------------------- figures


def energy(x: NDArray[Any]) -> float:
    flat = np.asarray(x, dtype=np.float64).reshape(-1)
    return float(np.dot(flat, flat))


def variance(outputs: Sequence[NDArray[Any]]) -> float:
    """What damage is measured against, as in judge.py."""
    return model_outputs.spread(outputs)


def _answers(scene: Scene, value: Any, feeds: Values) -> NDArray[Any]:
    """The judged output, one row a sample, without what only fills a fixed batch."""
    rows, fed = rows_that_count(feeds), rows_fed(feeds)
    return model_outputs.by_sample(value, name=scene.judged, fed=fed, rows=rows)


def _width(bounds: tuple[float, float]) -> float:
    return max(bounds[1], 0.0) - min(bounds[0], 0.0)


def _step(assembler: Assembler, layer: Layer) -> float:
    """One of 255 steps of the layer's output; also the measure where the output stays float."""
    return max(_width(assembler.statistics.range_of(layer.output, "minmax")) / 255.0, 1e-30)

"""Figures that a diagnosis rests on, measured by a worker, by layer and at the output.

Four parts, each a job of its own, so that workers share them:

    layers      every layer alone on float inputs (measure_layers.py): its error on the device and
                in exact arithmetic, and what other schemes would make of it
    damage      what each layer's own error does to the task's signal, in exact arithmetic
    whole       signal and answers of the whole model, as planned and with cures, on the device
                and exact
    attention   outlier channels, masks, tables, norms and batches (attention.py)

A fifth part, `exact`, is the damage of one plan in exact arithmetic, for the chain of steps.py.

Exact arithmetic is the same model without graph optimization: every QuantizeLinear and
DequantizeLinear is computed as written and the products are float, so no kernel can saturate.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqto.assembly.plan import Plan
from seqto.devices.device import Device
from seqto.diagnosis import isolated_layers
from seqto.diagnosis.attention import about_attention
from seqto.diagnosis.isolated_layers import IsolatedLayers
from seqto.diagnosis.joins import layers_to_keep_float, unlike_joins
from seqto.diagnosis.measure_layers import by_layer
from seqto.diagnosis.remedies import cures
from seqto.diagnosis.subject import Judged, Subject, with_ranges
from seqto.errors import DeviceError, PlanError
from seqto.records import Json
from seqto.tasks.task import Answers, WeightedTask, word_for_loss

PARTS = ("layers", "damage", "whole", "attention")
DAMAGE_SAMPLES = 4  # of the samples: one run for each layer and sample is what costs time


def gather(part: str, subject: Subject) -> Json:
    """Return the figures of one part."""
    if not subject.layers():
        raise PlanError("the plan quantizes no layer: there is nothing to diagnose")
    makers = {
        "layers": by_layer,
        "damage": damage_by_layer,
        "whole": at_the_output,
        "exact": in_exact_arithmetic,
        "attention": about_attention,
    }
    if part not in makers:
        raise PlanError(f"unknown part of a diagnosis: {part!r}")
    return makers[part](subject)


# ------------------------------------------------------------------------------- part: damage


def damage_by_layer(subject: Subject) -> Json:
    """Return layer → squared error of the signal over its variance, only this layer quantized."""
    prepared = subject.assembler.prepared
    samples = subject.samples[:DAMAGE_SAMPLES]
    float_run = isolated_layers.open_float(
        prepared, isolated_layers.tensors_for(prepared, subject.plan)
    )
    first = float_run(samples[0])
    view = IsolatedLayers(subject.assembler, subject.plan, first)
    model = isolated_layers.in_float_arithmetic(view.model(subject.plan))
    run = isolated_layers.open_deltas(prepared, view.layers, outputs=subject.judged)
    squares = dict.fromkeys((x.name for x in view.layers), 0.0)
    references: list[Judged] = []
    with contextlib.closing(subject.exact.open(model, threads=1)) as exact:
        for feeds in samples:
            values = float_run(feeds)
            outputs = exact.run(view.feeds(values))
            want = subject.judge(run(feeds, {}), feeds)
            references.append(want)
            for layer, quantized in zip(view.layers, outputs, strict=True):
                delta = quantized - values[layer.output]
                outputs_then = run(feeds, {layer.output: delta})
                moved = subject.judge(outputs_then, feeds, reference=want)
                squares[layer.name] += float(subject.gaps(want, moved).sum())
                subject.alive()
    spread = subject.spread(references)
    rows = sum(len(r.signal) for r in references)
    return {
        "damage": {name: value / rows / spread for name, value in squares.items()},
        "samples": len(samples),
    }


# -------------------------------------------------------------------------------- part: whole


def at_the_output(subject: Subject) -> Json:
    """Return {name: {device, exact, changed}}: damage and loss, as planned and with cures."""
    subject = with_ranges(subject)
    want = _float_answers(subject)
    by_plan: Json = {}
    plans = {"planned": subject.plan, **cures(subject.plan)}
    joins = unlike_joins(subject)
    if joins:
        float_layers = layers_to_keep_float(subject, joins)
        others = {n: s for n, s in subject.plan.as_dict().items() if n not in float_layers}
        plans["joins"] = subject.plan.with_schemes(others)
    for name, plan in plans.items():
        try:
            by_plan[name] = _damages(subject, plan, want)
        except (DeviceError, PlanError) as error:
            if name == "planned":
                raise
            # a cure that this device or opset cannot take is none: said, not hidden
            by_plan[name] = {"error": str(error)}
    word = word_for_loss(subject.task)
    figures = {"whole": by_plan, "samples": len(subject.samples), "changed": word}
    return {**figures, "joins": joins}


def _loss(subject: Subject, want: Sequence[Judged], judged: Sequence[Judged]) -> float | None:
    """Return the mean distance of the answers, by the task's weights where it has some."""
    task = subject.task
    known = [[x.answers for x in some if x.answers is not None] for some in (want, judged)]
    if task is None or not all(known):
        return None
    first, second = (Answers.joined(parts) for parts in known)
    distances = np.asarray(task.distance(first, second), np.float64)
    if not isinstance(task, WeightedTask):
        return float(distances.mean())
    weights = np.asarray(task.weights(first, second), np.float64)
    return float(np.average(distances, weights=weights)) if weights.sum() else 0.0


def in_exact_arithmetic(subject: Subject) -> Json:
    """Return {exact: damage of the plan in exact arithmetic}: a step of steps.py.

    No kernel counts.
    """
    subject = with_ranges(subject)
    want = _float_answers(subject)
    model = subject.assembler.assemble(subject.plan).data
    data = isolated_layers.in_float_arithmetic(model)
    return {"exact": _damage(subject, want, _judged(subject, subject.exact, data, want))}


def _damages(subject: Subject, plan: Plan, want: Sequence[Judged]) -> Json:
    by_name = {x.name: x for x in subject.assembler.prepared.layers}
    for name, scheme in plan.as_dict().items():
        reason = subject.device.refuses(by_name[name], scheme)
        if reason:
            raise PlanError(f"layer {name!r} cannot be {scheme}: {reason}")
    model = subject.assembler.assemble(plan).data
    figures: Json = {}
    for where, device in (("device", subject.device), ("exact", subject.exact)):
        data = model if where == "device" else isolated_layers.in_float_arithmetic(model)
        judged = _judged(subject, device, data, want)
        figures[where] = _damage(subject, want, judged)
        if where == "device":
            figures["changed"] = _loss(subject, want, judged)
    return figures


def _float_answers(subject: Subject) -> list[Judged]:
    """Return the task's answers to the float model's outputs, one entry for each run."""
    run = isolated_layers.open_float(subject.assembler.prepared, subject.judged)
    values = [run(feeds) for feeds in subject.samples]
    outputs = [[tensors[name] for name in subject.judged] for tensors in values]
    return [subject.judge(o, feeds) for o, feeds in zip(outputs, subject.samples, strict=True)]


def _judged(subject: Subject, device: Device, model: bytes, want: Sequence[Judged]) -> list[Judged]:
    runs = zip(_outputs(subject, device, model), subject.samples, want, strict=True)
    return [subject.judge(o, feeds, reference=float_) for o, feeds, float_ in runs]


def _damage(subject: Subject, want: Sequence[Judged], judged: Sequence[Judged]) -> float:
    gaps = [subject.gaps(a, b) for a, b in zip(want, judged, strict=True)]
    return float(np.concatenate(gaps).mean()) / subject.spread(want)


def _outputs(subject: Subject, device: Device, model: bytes) -> list[list[Any]]:
    """Return the judged outputs of each run."""
    positions = [subject.assembler.prepared.outputs.index(name) for name in subject.judged]
    rows = []
    with contextlib.closing(device.open(model, threads=1)) as session:
        for feeds in subject.samples:
            outputs = session.run(feeds)
            rows.append([outputs[i] for i in positions])
            subject.alive()
    return rows

"""The report as plain JSON: a pure function of a run's state, of unfinished runs too.

All other reports are made from what `build_report` returns, so they agree by construction.
docs/report-schema.md says what each field means; assets/report.schema.json says it to machines.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seqto.record.events import Finding, PlanProfiled, StepFailed
from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.records import EVALUATION, LABELLED, REPORT, Json, Latency, Measurement
from seqto.report import portability, wording
from seqto.report.diagnosis import build_diagnosis
from seqto.report.examples import shown_examples
from seqto.report.picks import pick_rows
from seqto.report.warnings import warnings
from seqto.selection.objectives import OBJECTIVES, figure_of, figures_of_float
from seqto.selection.progress import hypervolume_curve
from seqto.selection.recommend import Recommendation, kept_float, quantizable_layers, recommend
from seqto.selection.speed import speed_of

SCHEMA = 1


def build_report(state: RunState) -> Json:
    """Return the whole result as plain JSON. Needs no file, no clock and no model."""
    chosen = recommend(state)
    open_layers = quantizable_layers(state)
    # each is made finite by itself: of a long run, a second copy of all trials takes much memory
    trials = [_finite(_trial(state, t, open_layers)) for t in _with_copies(state.numbered)]
    report: Json = {
        "schema": SCHEMA,
        "status": state.status,
        "seconds": state.ended.seconds if state.ended else None,
        "spent": state.ended.spent if state.ended else None,
        "hypervolume": [list(step) for step in hypervolume_curve(state)],
        **_of_header(state, open_layers),
        "nodes": dict(state.nodes),
        "settings": state.settings,
        "int8_products": _int8_products(state),
        "placement": _placement(state, chosen),
        "analysis": None
        if state.analysis is None
        else {"samples": state.analysis.samples, "seconds": state.analysis.seconds},
        "output": state.baseline.output if state.baseline else None,
        "baseline": _baseline(state),
        "objectives": list(chosen.objectives),
        "ranked_by": list(chosen.ranked_by),
        "counts": {
            "trials": len(trials),
            "failed": sum(t["error"] is not None for t in trials),
            "stopped_early": sum(t["stopped_early"] for t in trials),
            "same_model": sum(t["same_as"] is not None for t in trials),
            "probes": len(state.probes),
        },
        "trials": trials,
        "front": list(chosen.front),
        "recommended": dict(chosen.picks),
        "goal": None if chosen.answer is None else chosen.answer.to_json(),
        "fully_quantized": chosen.fully_quantized,
        "unconstrained": chosen.unconstrained,
        "findings": [_without_tag(f) for f in state.findings],
        "failures": [_without_tag(f) for f in state.failures],
        "profile": [_without_tag(p) for p in state.profiles.values()],
    }
    report["diagnosis"] = _diagnosis(report["findings"])
    if state.settings.get("analysis", {}).get("examples", True):
        report["examples"] = shown_examples(chosen.best, state.examples)
    report["picks"] = pick_rows(report)
    report["portability_cost"] = portability.cost(report)
    report["sentence"] = wording.recommendation(report)
    report["warnings"] = warnings(report)
    if report["diagnosis"] is None and any(f["kind"] == "diagnosis" for f in report["findings"]):
        report["warnings"].append(
            "The diagnosis in the journal has figures of another form, so that only its sentences "
            "are shown: was the journal changed?"
        )
    return {key: trials if key == "trials" else _finite(value) for key, value in report.items()}


def _diagnosis(findings: Sequence[Json]) -> Json | None:
    """Return the diagnosis; None where its figures are of another form: its sentences are shown."""
    try:
        diagnosis = build_diagnosis(findings)
        return diagnosis if diagnosis is None or _has_figures(diagnosis) else None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None


def _has_figures(diagnosis: Json) -> bool:
    """Return whether all that is to be shown as a figure is one, or is missing."""
    figures = [diagnosis["start"], diagnosis["changed"]]
    for step in diagnosis["steps"]:
        figures += [step[key] for key in ("before", "after", "share")]
    for row in diagnosis["layers"]:
        keys = ("device_err", "exact_err", "damage", "cured_err", "share")
        figures += [row[key] for key in keys]
    return all(x is None or isinstance(x, int | float) for x in figures)


def _of_header(state: RunState, open_layers: Sequence[str]) -> Json:
    header = state.header
    model = {} if header is None else {k: v for k, v in header.model.items() if k != "layers"}
    return {
        "model": {**model, "layers": _layers(state, open_layers)},
        "prepared": header.prepared if header else None,
        "environment": {
            "seqto": header.seqto if header else None,
            **(header.environment if header else {}),
        },
        "data": header.data if header else {},
        "device": header.device if header else {},
    }


def _without_tag(event: Finding | StepFailed | PlanProfiled) -> Json:
    return {k: v for k, v in event.to_json().items() if k != "event"}


def _int8_products(state: RunState) -> Json | None:
    tested = state.int8_products
    if tested is None:
        return None
    return {
        "result": tested.result,
        "operators": dict(tested.operators),
        "reason": tested.reason,
    }


def _placement(state: RunState, chosen: Recommendation) -> Json | None:
    """Return where each layer of the recommended trial ran and in which type, measured.

    {trial, providers: {provider: [layer]}, kernels: {op: [layer]}}
    """
    if chosen.best is None:
        return None
    key = state.trials[chosen.best].plan.key
    for profile in state.profiles.values():
        if profile.plan_key == key and profile.placement:
            return {
                "trial": chosen.best,
                "providers": _layers_by_value(profile.placement),
                "kernels": _layers_by_value(profile.kernels or {}),
            }
    return None


def _layers_by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for layer, value in values.items():
        groups.setdefault(value, []).append(layer)
    return groups


_ERRORS = ("qdq_err", "xmodel_err", "error", "damage", "rank", "qdq_sqnr_db", "xmodel_sqnr_db")


def _layers(state: RunState, open_layers: Sequence[str]) -> list[Json]:
    ranking = {row.layer: row for row in state.analysis.ranking} if state.analysis else {}
    rows = []
    reads = _layer_inputs(state)
    for position, layer in enumerate(state.header.layers if state.header else ()):
        error = ranking.get(layer.name)
        rows.append(
            {
                "name": layer.name,
                "op_type": layer.op_type,
                "nodes": list(layer.nodes),
                "parameters": layer.parameters,
                "depthwise": layer.depthwise,
                "output": layer.output,
                "inputs": reads[position],
                "quantizable": layer.name in open_layers,
                **{k: None if error is None else getattr(error, k) for k in _ERRORS},
            }
        )
    return rows


def _layer_inputs(state: RunState) -> list[list[int]]:
    """Return which layers each one reads, by position in the list of layers: earlier ones.

    Runs of earlier versions have no edges that go through nodes outside of layers.
    """
    if state.header is None:
        return []
    layers, recorded = state.header.layers, state.header.layer_inputs
    count = len(layers)
    if recorded is not None and len(recorded) == count:
        return [[p for p in row if 0 <= p < i] for i, row in enumerate(recorded)]
    makers = {layer.output: position for position, layer in enumerate(layers) if layer.nodes}
    return [
        sorted({makers[name] for name in layer.inputs if makers.get(name, i) < i})
        for i, layer in enumerate(layers)
    ]


def _baseline(state: RunState) -> Json | None:
    if state.baseline is None:
        return None
    accuracy = {**_float_accuracy(state.trials.values()), **state.baseline.accuracy}
    return {
        "size_bytes": state.baseline.size_bytes,
        "latency_ms": _latency(state.baseline.latency),
        "accuracy": accuracy.get(EVALUATION),
        "objectives": figures_of_float(state.baseline),
        "report_split": {"accuracy": accuracy.get(REPORT)},
    }


def _float_accuracy(trials: Iterable[Trial]) -> dict[str, float]:
    """Return accuracy by split, as measured beside a trial: the report split is run at the end."""
    measured = [m for t in trials for m in t.measurements.values() if not m.stopped_early]
    scores = [(m.split, m.baseline_scores.get("accuracy")) for m in measured]
    return {split: value for split, value in scores if value is not None}


def _latency(latency: Latency | None) -> Json | None:
    if latency is None:
        return None
    return {**latency.to_json(), "float_median": round(latency.float_ms, 4)}


def _speed(latency: Latency | None) -> Json | None:
    """Return what the latency shows, by the whole interval of its ratio to float."""
    if latency is None:
        return None
    data = latency.to_json()
    return {"verdict": speed_of(data).value, "text": wording.speed(data)}


def _measured(measurement: Measurement | None) -> Json:
    """Return loss and the task's figures on a split; null where they were not measured."""
    names = ("accuracy", "baseline_accuracy", "top_k_loss", "kendall_tau")
    if measurement is None:
        empty: Json = {"scores": {}, "figures": {}, "baseline_scores": {}, "score_kinds": {}}
        return {"loss": None, **dict.fromkeys(names), **empty}
    # the per-sample bits stay in the journal: they are long, and only a resumed run needs them
    loss = {k: v for k, v in measurement.loss.to_json().items() if k != "agreement"}
    scores, before = measurement.scores, measurement.baseline_scores
    figures = measurement.figures
    values = (scores.get("accuracy"), before.get("accuracy"), *map(figures.get, names[2:]))
    return {
        "loss": loss,
        **dict(zip(names, values, strict=True)),
        "scores": dict(scores),
        "figures": dict(figures),
        "baseline_scores": dict(before),
        "score_kinds": _score_kinds(measurement),
    }


def _score_kinds(measurement: Measurement) -> Json:
    return {name: measurement.kind_of_score(name).to_json() for name in measurement.scores}


def _labelled(measurement: Measurement | None) -> Json | None:
    """Return scores on the labelled set, and the float model's; null where it was not measured."""
    if measurement is None:
        return None
    return {
        "samples": measurement.loss.samples,
        "scores": dict(measurement.scores),
        "baseline_scores": dict(measurement.baseline_scores),
        "score_kinds": _score_kinds(measurement),
        "score_drops": {k: list(ends) for k, ends in measurement.score_drops.items()},
    }


def _expected_loss(measurement: Measurement | None) -> Json | None:
    expected = None if measurement is None else measurement.expected_loss
    return None if expected is None else expected.to_json()


def _trial(state: RunState, trial: Trial, open_layers: Sequence[str]) -> Json:
    evaluated, held_out = trial.measurements.get(EVALUATION), trial.measurements.get(REPORT)
    plan = trial.plan.to_json()
    return {
        "number": trial.number,
        "key": trial.plan.key,
        "plan": plan["schemes"],
        "transforms": plan["transforms"],
        "excluded": kept_float(trial.plan, open_layers),
        **_measured(evaluated),
        "damage": None if evaluated is None else evaluated.damage,
        "expected_loss": _expected_loss(evaluated),
        "stopped_early": evaluated is not None and evaluated.stopped_early,
        "report_split": None if held_out is None else _measured(held_out),
        "labelled": _labelled(trial.measurements.get(LABELLED)),
        "objectives": {name: figure_of(trial, name, state.baseline) for name in OBJECTIVES},
        "size_bytes": trial.size_bytes,
        "sha256": trial.sha256,
        "latency_ms": _latency(trial.latency),
        "speed": _speed(trial.latency),
        "error": None if trial.error is None else trial.error.to_json(),
        "seconds": trial.seconds,
        "note": trial.note,
        "same_as": trial.same_as,
        "node": trial.node or None,
        "devices": _by_device(trial),
        "may_saturate": None if trial.may_saturate is None else list(trial.may_saturate),
    }


def _by_device(trial: Trial) -> Json:
    """Return loss on both splits and latency of a trial by device, of a run on several."""
    evaluated, held_out = trial.measurements.get(EVALUATION), trial.measurements.get(REPORT)
    names = dict.fromkeys(
        [
            *(evaluated.devices if evaluated else ()),
            *(trial.latency.devices if trial.latency else ()),
        ]
    )

    def loss_of(measured: Measurement | None, name: str) -> Json | None:
        one = measured.devices.get(name) if measured else None
        return None if one is None else _measured(one)["loss"]

    return {
        name: {
            "loss": loss_of(evaluated, name),
            "held_out": loss_of(held_out, name),
            "latency_ms": _latency(trial.latency.devices.get(name) if trial.latency else None),
        }
        for name in names
    }


def _with_copies(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials; one that is byte for byte an earlier one has that one's figures."""
    by_number = {t.number: t for t in trials}
    shown = []
    for trial in trials:
        twin = None if trial.same_as is None else by_number.get(trial.same_as)
        if twin is None or trial.loss is not None or trial.error is not None:
            shown.append(trial)
            continue
        copied = {k: getattr(twin, k) for k in ("measurements", "latency", "error")}
        size, sha256 = trial.size_bytes or twin.size_bytes, trial.sha256 or twin.sha256
        shown.append(dataclasses.replace(trial, size_bytes=size, sha256=sha256, **copied))
    return shown


def _finite(value: Any) -> Any:
    """Return figures with null for infinity (a lossless layer's SQNR), which JSON lacks."""
    if value is None or isinstance(value, str | int):
        return value  # most values of a report; asking for a Mapping takes longer
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value

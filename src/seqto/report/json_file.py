"""report.json: a pure function of the journal's events, partial journals included.

All other reports are made from what `build_report` returns, so they agree by construction.
docs/report-schema.md says what each field means; assets/report.schema.json says it to machines.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.files import write_file
from seqto.records import EVALUATION, REPORT, Json, Measurement
from seqto.report import wording
from seqto.selection.objectives import OBJECTIVES, figure_of
from seqto.selection.recommend import TOLERANCE

Writer = Callable[[Path, bytes], None]


SCHEMA = 1


FILE_NAME = "report.json"


FLOAT_KINDS = ("fp32", "fp16")


@dataclass(slots=True)
class _Told:
    """What the events said, sorted by kind; later events of the same thing win."""

    header: Json = field(default_factory=dict)
    settings: Json = field(default_factory=dict)  # of the last call
    default_key: str | None = None  # plan of the fully quantized model
    ranking: dict[str, Json] = field(default_factory=dict)
    analysis: Json | None = None
    baseline: Json | None = None
    int8_products: Json | None = None
    trials: dict[int, Json] = field(default_factory=dict)
    latencies: dict[int, Json] = field(default_factory=dict)
    footprints: dict[int, Json] = field(default_factory=dict)  # memory and time to load
    measurements: dict[tuple[int, str], Json] = field(default_factory=dict)
    probes: int = 0
    quantized: set[str] = field(default_factory=set)  # layers that some plan does quantize
    findings: list[Json] = field(default_factory=list)
    failures: list[Json] = field(default_factory=list)
    profiles: dict[tuple[str, str], Json] = field(default_factory=dict)
    status: str = "running"
    seconds: float | None = None


def build_report(events: Sequence[Mapping[str, Any]]) -> Json:
    """The whole result as plain JSON. Needs no file, no clock and no model."""
    told = _sort(events)
    objectives = _objectives(told.settings)
    baseline = _baseline(told)
    layers = _layers(told)
    open_layers = [row["name"] for row in layers if row["quantizable"]]
    trials = [_trial(told, number, open_layers) for number in sorted(told.trials)]
    trials = _with_copies(trials)
    ranked_by = _known_objectives(trials, objectives, baseline)
    full = _fully_quantized(trials, told.default_key)
    front, recommended = _choose(
        trials, ranked_by, baseline, told.settings.get("search", {}), fully_quantized=full
    )
    model = {k: v for k, v in told.header.get("model", {}).items() if k != "layers"}
    report: Json = {
        "schema": SCHEMA,
        "status": told.status,
        "seconds": told.seconds,
        "model": {**model, "layers": layers},
        "prepared": told.header.get("prepared"),
        "environment": {
            "seqto": told.header.get("seqto"),
            **told.header.get("environment", {}),
        },
        "settings": told.settings,
        "data": told.header.get("data", {}),
        "device": told.header.get("device", {}),
        "int8_products": told.int8_products,
        "placement": _placement(told.profiles.values(), trials, recommended),
        "analysis": told.analysis,
        "output": (told.baseline or {}).get("output"),
        "baseline": baseline,
        "objectives": objectives,
        "ranked_by": ranked_by,
        "counts": {
            "trials": len(trials),
            "failed": sum(t["error"] is not None for t in trials),
            "stopped_early": sum(t["stopped_early"] for t in trials),
            "same_model": sum(t["same_as"] is not None for t in trials),
            "probes": told.probes,
        },
        "trials": trials,
        "front": front,
        "recommended": recommended,
        "fully_quantized": full,
        "findings": told.findings,
        "failures": told.failures,
        "profile": list(told.profiles.values()),
    }
    report["warnings"] = wording.warnings(report)
    finite: Json = _finite(report)
    return finite


def write_report(
    folder: str | os.PathLike[str],
    events: Sequence[Mapping[str, Any]],
    *,
    write: Writer = write_file,
) -> Json:
    """Make report.json in a run folder, whole or not at all, and return what it says."""
    report = build_report(events)
    text = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write(Path(folder) / FILE_NAME, text.encode())
    return report


def _sort(events: Iterable[Mapping[str, Any]]) -> _Told:
    told = _Told()
    for event in events:
        kind = event.get("event")
        if kind in ("trial", "probe"):
            _hear_trial(told, event)
        elif kind in ("header", "settings", "tried"):
            _hear_beginning(told, event)
        elif kind == "analysis":
            told.ranking = {row["layer"]: row for row in event["ranking"]}
            told.analysis = {"samples": event.get("samples"), "seconds": event.get("seconds")}
        elif kind == "baseline":
            told.baseline = dict(event)
        elif kind == "int8_products":
            told.int8_products = {k: event[k] for k in ("result", "operators", "reason")}
        elif kind == "latency":
            told.latencies[event["number"]] = event["latency"]
        elif kind == "footprint":
            told.footprints[event["number"]] = {k: event[k] for k in FOOTPRINT}
        elif kind == "measurement":
            measured = event["measurement"]
            told.measurements[event["number"], measured["split"]] = measured
        elif kind in ("finding", "profile", "failure"):
            _hear_remark(told, event)
        elif kind == "end":
            told.status, told.seconds = event["reason"], event.get("seconds")
    return told


def _hear_beginning(told: _Told, event: Mapping[str, Any]) -> None:
    """What each call settles before it searches."""
    if event["event"] == "tried":
        told.default_key = event.get("default_key")
        return
    told.status, told.seconds = "running", None
    told.settings = dict(event.get("settings", {}))
    # another call may have another menu: what was not offered then is said anew
    told.findings = [f for f in told.findings if f.get("kind") != "menu"]
    if event["event"] == "header":
        told.header = dict(event)


def _hear_trial(told: _Told, event: Mapping[str, Any]) -> None:
    trial = event["trial"]
    told.status, told.seconds = "running", None  # what follows an end is a resumed run
    told.quantized.update(_quantized_layers(trial["plan"]["schemes"]))
    if event["event"] == "probe":
        told.probes += 1
    else:
        told.trials[trial["number"]] = trial


def _hear_remark(told: _Told, event: Mapping[str, Any]) -> None:
    remark = {k: v for k, v in event.items() if k != "event"}
    if event["event"] == "failure":
        told.failures.append(remark)
    elif event["event"] == "profile":
        told.profiles[str(remark.get("plan_key")), str(remark.get("scheme"))] = remark
    elif remark not in told.findings:  # a resumed run may find the same again
        told.findings.append(remark)


def _placement(
    profiles: Iterable[Json], trials: Sequence[Json], recommended: Mapping[str, int]
) -> Json | None:
    """Where and as what the layers of the recommended trial ran, measured.

    {trial, providers: {provider: [layer]}, kernels: {op: [layer]}}
    """
    number = recommended.get("balanced", recommended.get("loss"))
    key = next((t["key"] for t in trials if t["number"] == number), None)
    for profile in profiles:
        if profile.get("plan_key") == key and profile.get("placement"):
            return {
                "trial": number,
                "providers": _layers_by_value(profile["placement"]),
                "kernels": _layers_by_value(profile.get("kernels", {})),
            }
    return None


def _layers_by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for layer, value in values.items():
        found.setdefault(value, []).append(layer)
    return found


def _objectives(settings: Mapping[str, Any]) -> list[str]:
    asked = settings.get("search", {}).get("objectives")
    known = [name for name in asked or () if name in OBJECTIVES]
    return known or ["loss", "size"]


def _quantized_layers(schemes: Mapping[str, str]) -> list[str]:
    return [layer for layer, code in schemes.items() if code.split("-")[0] not in FLOAT_KINDS]


def _layers(told: _Told) -> list[Json]:
    rows = []
    for layer in told.header.get("layers", []):
        name = layer["name"]
        error = told.ranking.get(name, {})
        rows.append(
            {
                "name": name,
                "op_type": layer["op_type"],
                "nodes": list(layer["nodes"]),
                "parameters": layer["parameters"],
                "depthwise": bool(layer.get("depthwise", False)),
                "output": layer.get("output"),
                "quantizable": name in told.ranking or name in told.quantized,
                **{k: error.get(k) for k in ("qdq_err", "xmodel_err", "error", "damage", "rank")},
                **{k: error.get(k) for k in ("qdq_sqnr_db", "xmodel_sqnr_db")},
            }
        )
    return rows


def _baseline(told: _Told) -> Json | None:
    if told.baseline is None:
        return None
    accuracy = {**_float_accuracy(told), **(told.baseline.get("accuracy") or {})}
    return {
        "size_bytes": told.baseline["size_bytes"],
        "latency_ms": _latency(told.baseline.get("latency")),
        "accuracy": accuracy.get(EVALUATION),
        "report_split": {"accuracy": accuracy.get(REPORT)},
    }


def _float_accuracy(told: _Told) -> dict[str, float]:
    """By split, as measured beside a trial: the report split is run only at the end."""
    own = [m for t in told.trials.values() for m in t.get("measurements", {}).values()]
    whole = [m for m in own if not m.get("stopped_early")]
    found = [(m["split"], _figures(m)["baseline_accuracy"]) for m in whole]
    found += [
        (split, _figures(m)["baseline_accuracy"]) for (_, split), m in told.measurements.items()
    ]
    return {split: value for split, value in found if value is not None}


def _figures(measurement: Mapping[str, Any] | None) -> Json:
    """The task's figures; those of a classifier also by the names that they have always had."""
    if measurement is None:
        return {**dict.fromkeys(_CLASSIFIER), "scores": {}, "baseline_scores": {}}
    found = Measurement.from_json(dict(measurement))
    return {
        "accuracy": found.scores.get("accuracy"),
        "baseline_accuracy": found.baseline_scores.get("accuracy"),
        "top_k_loss": found.figures.get("top_k_loss"),
        "kendall_tau": found.figures.get("kendall_tau"),
        "scores": dict(found.scores),
        "baseline_scores": dict(found.baseline_scores),
    }


FOOTPRINT = ("peak_memory_bytes", "load_ms")


_CLASSIFIER = ("accuracy", "baseline_accuracy", "top_k_loss", "kendall_tau")


def _latency(
    latency: Mapping[str, Any] | None, footprint: Mapping[str, Any] | None = None
) -> Json | None:
    return {**latency, **(footprint or {})} if latency else None


def _loss(measurement: Mapping[str, Any] | None) -> Json | None:
    if measurement is None:
        return None
    # the per-sample bits stay in the journal: they are long, and only a resumed run needs them
    return {k: v for k, v in measurement["loss"].items() if k != "agreement"}


def _trial(told: _Told, number: int, open_layers: Sequence[str]) -> Json:
    trial = told.trials[number]
    schemes: Mapping[str, str] = trial["plan"]["schemes"]
    measured = {
        **trial.get("measurements", {}),
        **{split: m for (owner, split), m in told.measurements.items() if owner == number},
    }
    seen = measured.get(EVALUATION)
    held_out = measured.get(REPORT)
    error = trial.get("error")
    return {
        "number": number,
        "key": trial["key"],
        "plan": dict(schemes),
        "transforms": list(trial["plan"].get("transforms", ())),
        "excluded": [
            name for name in open_layers if schemes.get(name, "fp32").split("-")[0] in FLOAT_KINDS
        ],
        "loss": _loss(seen),
        **_figures(seen),
        "damage": (seen or {}).get("damage"),
        "stopped_early": bool((seen or {}).get("stopped_early", False)),
        "report_split": None
        if held_out is None
        else {
            "loss": _loss(held_out),
            **_figures(held_out),
            "score_drops": dict(held_out.get("score_drops", {})),
        },
        "size_bytes": trial["size_bytes"],
        "sha256": trial["sha256"],
        "latency_ms": _latency(
            told.latencies.get(number, trial.get("latency")), told.footprints.get(number)
        ),
        "error": dict(error) if error else None,
        "seconds": trial["seconds"],
        "note": trial.get("note", ""),
        "same_as": trial.get("same_as"),
    }


_COPIED = (
    "loss",
    "accuracy",
    "baseline_accuracy",
    "top_k_loss",
    "kendall_tau",
    "scores",
    "baseline_scores",
    "damage",
    "stopped_early",
    "report_split",
    "latency_ms",
    "error",
)


def _with_copies(trials: Sequence[Json]) -> list[Json]:
    """A trial that is byte for byte an earlier one has that one's figures."""
    by_number = {t["number"]: t for t in trials}
    result = []
    for trial in trials:
        twin = by_number.get(trial["same_as"])
        if twin is not None and trial["loss"] is None and trial["error"] is None:
            trial = {**trial, **{k: twin[k] for k in _COPIED}}  # noqa: PLW2901
            trial["size_bytes"] = trial["size_bytes"] or twin["size_bytes"]
            trial["sha256"] = trial["sha256"] or twin["sha256"]
        result.append(trial)
    return result


def _known_objectives(
    trials: Sequence[Json], objectives: Sequence[str], baseline: Json | None
) -> list[str]:
    """Those that some trial has a figure for: latency comes late, and a front is wanted before."""
    return [
        name
        for name in objectives
        if any(figure_of(trial, name, baseline) is not None for trial in trials)
    ]


def _choose(
    trials: Sequence[Json],
    objectives: Sequence[str],
    baseline: Json | None,
    search: Mapping[str, Any],
    *,
    fully_quantized: int | None,
) -> tuple[list[int], dict[str, int]]:
    """The first front and the trials to recommend; a copy never stands beside its original."""
    rows: list[tuple[Json, list[float]]] = []
    for trial in trials:
        figures = [figure_of(trial, name, baseline) for name in objectives]
        row = [f for f in figures if f is not None]
        if trial["same_as"] is None and len(row) == len(objectives):
            rows.append((trial, row))
    from seqto.selection import recommend

    return recommend.choose(
        rows,
        names=list(objectives),
        fully_quantized=next((t for t in trials if t["number"] == fully_quantized), None),
        float_bytes=None if baseline is None else baseline["size_bytes"],
        tolerance=float(search.get("tolerance", TOLERANCE)),
        within_tolerance=search.get("strategy", "stepwise") != "stepwise",
    )


def _fully_quantized(trials: Sequence[Json], default_key: str | None) -> int | None:
    """The trial of the default plan, if it ran: every layer by the mode, minus what is refused.

    Older journals do not name that plan: there it is the first trial that keeps nothing float
    which could be quantized.
    """
    for trial in trials:
        if not trial["plan"] or trial["error"] is not None:
            continue
        first = not trial["excluded"] and trial["same_as"] is None
        if trial["key"] == default_key if default_key else first:
            number: int = trial["number"]
            return number
    return None


def _finite(value: Any) -> Any:
    """JSON has no infinity (a lossless layer's SQNR): such figures are null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value

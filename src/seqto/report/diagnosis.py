"""The diagnosis as figures: one chain of what each cause costs, and a table of the layers.

Made from the findings alone, so that a run's report, `seqto diagnose`, the page and Markdown show
the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqto.diagnosis.steps import CAUSE, LABELS
from seqto.record.events import DIAGNOSIS, MENU, TREATMENT, UNSUPPORTED
from seqto.records import Json
from seqto.text import plain

Findings = Sequence[Mapping[str, Any]]

WORTH_NAMING = 0.01  # of the damage: a layer below it, and without a cause, is no row of the table


def build_diagnosis(findings: Findings) -> Json | None:
    """Return {start, steps, causes, layers, skipped}; None where nothing was diagnosed."""
    causes = [f for f in findings if f["kind"] == DIAGNOSIS]
    if not causes:
        return None
    measured = next((f["figures"] for f in causes if f["figures"].get("cause") == CAUSE), None)
    return {
        "start": None if measured is None else measured["start"],
        "changed": _changed(causes),
        "steps": [] if measured is None else [_step(s, measured) for s in measured["steps"]],
        "causes": [
            {
                "cause": f["figures"].get("cause", ""),
                "message": f["message"],
                "layers": list(f["layers"]),
            }
            for f in causes
            if f["figures"].get("cause") != CAUSE
        ],
        "layers": _layer_rows(causes, {} if measured is None else measured["layers"]),
        "skipped": skipped(findings),
    }


def _changed(causes: Findings) -> float | None:
    """Return the loss of the fully quantized model on the samples of the diagnosis."""
    for f in causes:
        if f["figures"].get("cause") == "output":
            value: float | None = f["figures"]["damage"]["planned"].get("changed")
            return value
    return None


def _step(step: Mapping[str, Any], measured: Mapping[str, Any]) -> Json:
    label, cure = LABELS.get(step["step"], (step["step"], ""))
    count = len(measured["sensitive"])
    if step["step"] == "sensitive" and count:
        label = f"{count} sensitive layer{'s' if count > 1 else ''}"
    start = measured["start"]
    return {
        **step,
        "label": label,
        "cure": cure,
        "share": (step["before"] - step["after"]) / start if start else 0.0,
    }


# ------------------------------------------------------------------------------------ the layers


def _layer_rows(causes: Findings, errors: Mapping[str, Mapping[str, Any]]) -> list[Json]:
    """Return one row for each layer that has a cause or does damage, worst first."""
    rows: dict[str, Json] = {
        name: {"layer": name, "causes": [], "cure": "", "cured_err": None, **figures}
        for name, figures in errors.items()
    }
    for f in causes:
        for name, cause, cure, after in _cured(f):
            row = rows.setdefault(name, _unknown(name))
            row["causes"].append(cause)
            better = after is not None and (row["cured_err"] is None or after < row["cured_err"])
            if better or not row["cure"]:
                row["cure"], row["cured_err"] = cure, after if better else row["cured_err"]
    total = sum(row["damage"] or 0.0 for row in rows.values())
    for row in rows.values():
        row["share"] = (row["damage"] or 0.0) / total if total else None
    worth_naming = [r for r in rows.values() if r["causes"] or (r["share"] or 0.0) >= WORTH_NAMING]
    return sorted(worth_naming, key=lambda r: (-(r["damage"] or 0.0), -(r["device_err"] or 0.0)))


def _unknown(name: str) -> Json:
    figures = dict.fromkeys(("device_err", "exact_err", "damage", "cured_err"))
    return {"layer": name, "causes": [], "cure": "", **figures}


Cured = tuple[str, str, str, float | None]  # layer, cause, cure, error after it


def _cured(finding: Mapping[str, Any]) -> Iterator[Cured]:
    """Yield what a finding says of each layer that it names."""
    figures = finding["figures"]
    of_layer = figures.get("layers", {}) if isinstance(figures.get("layers"), Mapping) else {}
    for name in finding["layers"]:
        row = of_layer.get(name, {})
        match figures.get("cause"):
            case "saturation":
                yield (name, "saturation", *_best(row, _SATURATION))
            case "ranges":
                yield (name, "ranges", *_best(row, {"channel_err": "a scale a channel"}))
            case "bias":
                yield (name, "bias", *_best(row, _BIAS))
            case "outliers":
                helped = name in figures.get("helped_by_clipping", ())
                ways = _CLIPPING if helped else {}
                yield (name, "outliers", *_best(row, ways, otherwise="smooth"))
            case "sensitive":
                yield (name, "sensitive", "keep float", 0.0)
            case "slower":
                yield (name, "slower", "keep float", None)


_SATURATION = {
    "u8_device_err": "u8 weights",
    "p8_device_err": "p8 weights",
    "s7_device_err": "s7 weights",
}
_BIAS = {
    "bias_float_device_err": "a float bias",
    "bias_float_err": "a float bias",
    "bias_held_device_err": "s7 weights that hold it",
}
_CLIPPING = {"mse_err": "mse ranges", "percentile_err": "percentile ranges"}


def _best(
    row: Mapping[str, Any], ways: Mapping[str, str], *, otherwise: str = ""
) -> tuple[str, float | None]:
    """Return the cure with the smallest error, and that error."""
    known = [(row[key], what) for key, what in ways.items() if row.get(key) is not None]
    if not known:
        return otherwise or next(iter(ways.values()), ""), None
    error, what = min(known)
    return what, error


# ------------------------------------------------------------------------- what was not done


def skipped(findings: Findings) -> list[Json]:
    """Count what was tried and skipped, by reason: [{what, reason, count}], most first."""
    counts: Counter[tuple[str, str]] = Counter()
    for f in findings:
        if f["kind"] == TREATMENT:
            name = plain(f["figures"].get("name", "transform"))
            for text in f["figures"].get("skipped", ()):
                counts[name, _reason(text)] += 1
        elif f["kind"] in (MENU, UNSUPPORTED):
            counts["schemes", plain(f["message"])] += len(f["layers"]) or 1
    return [
        {"what": what, "reason": reason, "count": count}
        for (what, reason), count in counts.most_common()
    ]


def _reason(text: str) -> str:
    """Return a reason without names of layers: 'a → b: /x/Add (Add) mixes …' → 'Add mixes …'."""
    reason = plain(text).partition(": ")[2] or plain(text)
    match = re.fullmatch(r"\S+ \((\w+)\) (.*)", reason)
    return f"{match[1]} {match[2]}" if match else reason

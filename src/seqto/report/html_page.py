"""report.html: one file with its charts, its data and nothing to fetch.

Names in a report come from strangers. They reach the page in two ways only: escaped by
`html.escape` (title, heading, sentence), or inside a JSON data block whose `<`, `>` and `&` are
written as \\u escapes; the page's script then sets them as text. On top of that a content
security policy admits exactly the scripts whose hashes it names and no connection at all (the
live view: to its own server).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from seqto import text
from seqto.files import write_file
from seqto.records import Json
from seqto.report import examples, wording
from seqto.report.columns import Column, Medium, Row, columns
from seqto.report.fleet_table import device_cell
from seqto.report.json_file import Writer
from seqto.report.shown_trials import shown_numbers
from seqto.schemes.scheme import Scheme
from seqto.selection.objectives import OBJECTIVES
from seqto.selection.recommend import title_of
from seqto.text import utf8

FILE_NAME = "report.html"


_LIBRARIES = ("d3.min.js", "plot.umd.min.js")


_OURS = tuple(
    f"page_{name}.js"
    for name in [
        "facts",
        "front",
        "charts",
        "time",
        "tables",
        "picks",
        "diagnosis",
        "graph",
        "main",
    ]
)


_PLAN_BASE = 48  # the sign '0'; page_facts.js has the same figure


_ESCAPES = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


MOST_TRIALS = 3000  # that the page holds


def write_page(
    folder: str | os.PathLike[str], report: Mapping[str, Any], *, write: Writer = write_file
) -> Path:
    """Make report.html in a run folder."""
    path = Path(folder) / FILE_NAME
    write(path, utf8(render(report, folder=os.fspath(folder))))
    return path


def render(report: Mapping[str, Any], *, folder: str, live: bool = False) -> str:
    """Return the whole page as text; `folder` is what the export command names."""
    scripts = [_asset(name) for name in _LIBRARIES] + [_own_script()]
    name = html.escape(wording.model_name(report))
    values = {
        "LIVE": "true" if live else "false",
        "CSP": html.escape(_policy(scripts, live=live), quote=True),
        "TITLE": f"{name} – seqto",
        "NAME": name,
        "SENTENCE": html.escape(wording.recommendation(report)),
        "EXAMPLES": examples.section(report),
        "CSS": _asset("page.css"),
        "DATA": embed(page_data(report, folder=folder)),
        "SCRIPTS": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    # one pass, so that a name which looks like a placeholder is not filled in turn
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: values[match[1]], _asset("page.html"))


def embed(value: object) -> str:
    """Return JSON that can stand inside a script element whatever its texts say."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # a lone surrogate is legal in JSON but not in a UTF-8 file
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)


def page_data(report: Mapping[str, Any], *, folder: str) -> Json:
    """Return the report as the page wants it.

    Plans are one sign a layer, else 500 of them weigh 10 MB.
    """
    layers = report["model"]["layers"]
    extra = columns(report, Medium.PAGE)
    trials, left_out = shown_trials(report)
    schemes = ["fp32"]
    index_of = {"fp32": 0}
    for trial in trials:
        for code in trial["plan"].values():
            if code not in index_of:
                index_of[code] = len(schemes)
                schemes.append(code)
    return {
        "name": wording.model_name(report),
        "sentence": wording.recommendation(report),
        "changed": wording.changed(report),
        "change_words": wording.change_words(report),
        "commands": {
            pick: wording.export_command(report, folder=folder, pick=pick)
            for pick in report["recommended"]
        },
        "int8_products": wording.int8_products(report),
        "model": {k: v for k, v in report["model"].items() if k != "layers"},
        "layers": [_layer(row, index) for index, row in enumerate(layers)],
        "schemes": schemes,
        "kinds": {code: Scheme.parse(code).kind for code in schemes},
        "trials": [
            {**_trial(trial, layers, index_of), "cells": _cells(report, trial, extra)}
            for trial in trials
        ],
        "picks": report["picks"],
        "diagnosis": _rounded(report["diagnosis"]),
        "columns": [{"name": column.name, "title": column.title} for column in extra],
        "objective_table": [
            {**objective.to_json(), "label": wording.objective_label(report, objective.name)}
            for objective in OBJECTIVES.values()
        ],
        "pick_titles": {pick: title_of(pick) for pick in report["recommended"]},
        "profile": [_profile(profile, layers) for profile in report["profile"]],
        "findings": [{"kind": f["kind"], "message": f["message"]} for f in report["findings"]],
        "warnings": [*report["warnings"], *left_out],
        **{
            k: report[k]
            for k in (
                "status", "counts", "baseline", "objectives", "front", "recommended",
                "fully_quantized", "settings", "environment", "device", "placement",
                "data", "nodes", "seconds", "spent", "hypervolume",
            )
        },
    }  # fmt: skip


def shown_trials(report: Mapping[str, Any]) -> tuple[list[Json], list[str]]:
    """Return the trials that the page holds, and a sentence where they are not all.

    A day's run has ten thousand trials, which no browser draws quickly: the front, the picks and
    an even sample of the others are shown then.
    """
    trials: list[Json] = report["trials"]
    if len(trials) <= MOST_TRIALS:
        return trials, []
    numbers = shown_numbers(report, most=MOST_TRIALS)
    shown = [t for t in trials if t["number"] in numbers]
    sentence = (
        f"This page holds {len(shown):,} of {len(trials):,} trials: the front, the picks and an "
        "even sample of the others. report.json has them all."
    )
    return shown, [sentence]


def _layer(row: Mapping[str, Any], index: int) -> Json:
    fields = ("name", "op_type", "inputs", "parameters", "depthwise", "quantizable", "rank")
    errors = ("qdq_err", "xmodel_err", "damage")
    return {"index": index, **{k: row[k] for k in fields}, **{k: _short(row[k]) for k in errors}}


def _trial(trial: Mapping[str, Any], layers: list[Json], index_of: Mapping[str, int]) -> Json:
    plan = trial["plan"]
    fields = (
        "number", "key", "transforms", "loss", "accuracy", "baseline_accuracy", "stopped_early",
        "report_split", "size_bytes", "sha256", "latency_ms", "speed", "error", "seconds", "note",
        "same_as",
    )  # fmt: skip
    return {
        **{k: trial[k] for k in fields},
        "loss": _figures(trial["loss"]),
        "latency_ms": _figures(trial["latency_ms"]),
        "times": wording.both_ms(trial["latency_ms"]) if trial["latency_ms"] else "",
        "kept": len(trial["excluded"]),
        "on_devices": {name: device_cell(figures) for name, figures in trial["devices"].items()},
        "objectives": _figures(trial["objectives"]),
        "plan": "".join(
            chr(_PLAN_BASE + index_of[plan.get(row["name"], "fp32")]) for row in layers
        ),
    }


def _cells(report: Mapping[str, Any], trial: Json, extra: list[Column]) -> Json:
    """Return value and text of each column that the page does not draw itself."""
    row = Row(report, trial)
    return {c.name: [_short(c.value(row)), c.text_in(Medium.PAGE, row)] for c in extra}


def _figures(figures: Mapping[str, Any] | None) -> Json | None:
    return {k: _short(v) for k, v in figures.items()} if figures else None


def _profile(profile: Mapping[str, Any], layers: list[Json]) -> Json:
    times = profile.get("layers_ms", {})
    return {
        "plan_key": profile.get("plan_key"),
        "scheme": profile.get("scheme"),
        "layers_ms": [_short(times.get(row["name"])) for row in layers],
    }


def _short(value: Any) -> Any:
    """Return a figure with six digits, more than any chart shows; report.json has them all."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _rounded(value: Any) -> Any:
    """Return all figures of nested JSON with as many digits as a page shows."""
    if isinstance(value, Mapping):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return _short(value)


@functools.cache
def _asset(name: str) -> str:
    return (resources.files("seqto.report") / "assets" / name).read_text("utf-8")


@functools.cache
def _own_script() -> str:
    parts = "\n".join(_asset(name) for name in _OURS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();'


def _policy(scripts: list[str], *, live: bool) -> str:
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {hashes}",
            # Observable Plot writes a style element into each chart; styles cannot run anything
            "style-src 'unsafe-inline'",
            "img-src data:",
            "connect-src 'self'" if live else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def render_index(rows: list[Json], *, folder: str, live: bool = True) -> str:
    """Return the list of runs in a folder; each row has href, name, status, trials and sentence."""
    again = "<meta http-equiv='refresh' content='5'>" if live else ""
    heads = "".join(f"<th scope='col'>{h}</th>" for h in ("run", "status", "trials", "result"))
    body = "".join(
        "<tr>"
        f"<td class='name'><a href='{html.escape(row['href'], quote=True)}'>"
        f"{html.escape(text.shorten(row['name'], 80))}</a></td>"
        f"<td>{html.escape(str(row['status']))}</td><td class='number'>{int(row['trials'])}</td>"
        f"<td>{html.escape(text.plain(row['sentence']))}</td></tr>"
        for row in rows
    )
    empty = "<p class='hint'>No run yet; this page looks again every few seconds.</p>"
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    # no script at all: the browser itself loads the list again
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"{again}<link rel='icon' href='data:,'>"
        f"<title>seqto runs</title><style>{_asset('page.css')}{DARK_WITHOUT_SCRIPT}</style>"
        "</head><body>"
        f"<header><div class='bar'><span class='brand'>seqto</span><h1>Runs in "
        f"{html.escape(text.shorten(folder, 80))}</h1></div></header><main><section>"
        f"{table if rows else empty}</section></main></body></html>"
    )


DARK_WITHOUT_SCRIPT = (
    "@media (prefers-color-scheme: dark){:root{color-scheme:dark;--paper:#12161b;--card:#1a2027;"
    "--ink:#e8ecf1;--soft:#a3afbc;--line:#343d48;--accent:#6cb6ff}}a{color:var(--accent)}"
)

"""The model card of a trial: Markdown with the YAML head that model hubs read.

A pure function of the report. Names come from strangers: in the head every text is a JSON string,
which YAML reads as it is; in the body they pass the escapes of `markdown`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqto.records import Json
from seqto.report import portability, wording
from seqto.report.markdown import escape
from seqto.selection.recommend import title_of
from seqto.text import milliseconds, percent, plain, size, times

Report = Mapping[str, Any]

MARK = "<!-- Written by seqto: a later export replaces this file. -->"

# kind of task → the hub's name for it (its list of pipeline tags)
PIPELINES = {
    "classification": "image-classification",
    "multi-label": "image-classification",
    "detection": "object-detection",
    "segmentation": "image-segmentation",
    "text-classification": "text-classification",
    "token-classification": "token-classification",
    "embedding": "feature-extraction",
    "language-model": "text-generation",
    "seq2seq": "translation",
}
# identifiers of the hub's list are short words; a licence text of a stranger is none
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,40}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
SHOWN_LAYERS = 20


def model_card(
    report: Report, trial: Json, *, files: Mapping[str, str], figure: str = "", pick: str = ""
) -> str:
    """Return the card of one trial; `files` are names → sha256, `figure` an address of a picture.

    `pick` is the name under which the trial is recommended, for the command that makes it again.
    """
    name = wording.model_name(report)
    lines = ["---", *_head(report, trial), "---", "", MARK, ""]
    lines += [f"# {escape(name)}, quantized", ""]
    lines += [_sentence(wording.measured_sentence(report, trial)), ""]
    if figure:
        lines += [f"![The front: changed answers against size]({figure})", ""]
    lines += ["## Figures", "", *_figures(report, trial), ""]
    lines += ["## Measured on", "", *_measured_on(report, trial), ""]
    lines += ["## What was kept in float, and why", "", *_kept_float(report, trial), ""]
    lines += ["## Files", "", *_files(files), ""]
    lines += ["## Make it again", "", *_commands(report, trial, pick)]
    return "\n".join(lines) + "\n"


# ------------------------------------------------------------------------------------------ head


def _head(report: Report, trial: Json) -> Iterator[str]:
    yield from _lines("license", license_id(report))
    yield from _lines("base_model", base_model(report))
    if base_model(report):
        yield "base_model_relation: quantized"
    yield from _lines("pipeline_tag", PIPELINES.get(task_kind(report) or ""))
    yield "library_name: onnx"
    yield from _lines("tags", ["onnx", "quantized", "seqto", *_kinds(trial)])
    results = _results(report, trial)
    if results:
        yield from _lines("model-index", [{"name": wording.model_name(report), "results": results}])


def _lines(key: str, value: Any) -> list[str]:
    """Return one line, since what JSON writes is YAML too; none for a value that is not known."""
    return [] if not value else [f"{key}: {json.dumps(value, ensure_ascii=True)}"]


def license_id(report: Report) -> str | None:
    """Return the licence of the base model, where the hub's list has a word of that form."""
    name = str(report["model"].get("license") or "").strip().lower()
    return name if _LICENSE.fullmatch(name) else None


def base_model(report: Report) -> str | None:
    """Return OWNER/NAME of the repository that the float model came from, if it did."""
    origin = report["model"].get("origin") or {}
    repo = str(origin.get("repo") or "")
    return repo if origin.get("kind") == "hub" and _REPOSITORY.fullmatch(repo) else None


def task_kind(report: Report) -> str | None:
    """Return the kind of task, as set or as guessed."""
    named: str | None = report["settings"].get("task", {}).get("kind")
    guessed = [f["figures"].get("kind") for f in report["findings"] if f["kind"] == "guess"]
    return named or next(iter(guessed), None)


def _kinds(trial: Json) -> list[str]:
    """Return 'int8', 'int4', 'fp16': the number formats that the plan has."""
    codes = " ".join(trial["plan"].values()) if isinstance(trial["plan"], Mapping) else ""
    forms = {"int8": r"[su]8|int8", "int4": r"[su]4|int4", "fp16": r"fp16|f16|float16"}
    return [name for name, form in forms.items() if re.search(form, codes)]


def _results(report: Report, trial: Json) -> list[Json]:
    """Return the figures in the form of the hub's model index, intervals as `args`."""
    measured = trial["report_split"] or trial
    metrics: list[Json] = []
    for name, value in (measured.get("scores") or {}).items():
        before = (measured.get("baseline_scores") or {}).get(name)
        args = {} if before is None else {"args": {"float": before}}
        metrics.append({"type": name, "name": name.replace("_", " "), "value": value, **args})
    loss, _ = wording.held_out(trial)
    if loss is not None:
        interval = {"low": loss["low"], "high": loss["high"], "samples": loss["samples"]}
        label = wording.changed_noun(report)
        metrics.append(
            {"type": "loss", "name": label, "value": loss["value"], "args": {"95%": interval}}
        )
    if not metrics:
        return []
    kind = task_kind(report) or "other"
    origin = report["data"].get("origin") or {}
    dataset = str(origin.get("name") or origin.get("repo") or report["data"].get("kind") or "own")
    split = "held-out samples" if trial["report_split"] else "samples of the search"
    return [
        {
            "task": {"type": PIPELINES.get(kind, "other")},
            "dataset": {"type": dataset, "name": f"{dataset}, {split}"},
            "metrics": metrics,
        }
    ]


# ------------------------------------------------------------------------------------------ body


def _sentence(text: str) -> str:
    return escape(text[:1].upper() + text[1:], width=600)


def _figures(report: Report, trial: Json) -> list[str]:
    baseline = report["baseline"] or {}
    rows = [["", "float", "quantized"], [":--", "--:", "--:"]]
    loss, unseen = wording.held_out(trial)
    if loss is not None:
        low, high = percent(loss["low"]), percent(loss["high"])
        where = "held-out samples" if unseen else "samples of the search"
        text = f"{percent(loss['value'])} (95 %: {low} to {high}, {loss['samples']:,} {where})"
        rows.append([escape(wording.changed(report)), "0", text])
    measured = trial["report_split"] or trial
    for name, value in (measured.get("scores") or {}).items():
        before = (measured.get("baseline_scores") or {}).get(name)
        shown = "–" if before is None else f"{before:.4g}"
        rows.append([escape(name.replace("_", " ")), shown, f"{value:.4g}"])
    if baseline.get("size_bytes"):
        rows.append(["file", size(baseline["size_bytes"]), size(trial["size_bytes"])])
    latency = trial["latency_ms"]
    if latency:
        before = milliseconds(wording.float_ms(latency))
        low, high = latency["ratio_low"], latency["ratio_high"]
        ratio = f"{times(latency['ratio'])} float's, 95 %: {low:.2f} to {high:.2f}"
        rows.append(["median latency", before, f"{milliseconds(latency['median'])} ({ratio})"])
    return [f"| {' | '.join(row)} |" for row in rows]


def _measured_on(report: Report, trial: Json) -> list[str]:
    environment, device = report["environment"], report["device"]
    data = report["data"]
    lines = [f"- device: {escape(device.get('name') or device.get('kind') or 'unknown')}"]
    lines += [
        f"- {key}: {escape(environment[key], width=120)}"
        for key in ("cpu", "cores", "platform", "onnxruntime", "onnx", "seqto")
        if environment.get(key)
    ]
    splits = ", ".join(f"{name} {count}" for name, count in (data.get("splits") or {}).items())
    lines.append(f"- data: {escape(data.get('kind') or 'unknown')}; samples: {escape(splits)}")
    products = wording.int8_products(report)
    holds = portability.holds(trial["may_saturate"])
    return [*lines, *(f"- {escape(text, width=400)}" for text in (products, holds) if text)]


def _kept_float(report: Report, trial: Json) -> list[str]:
    layers = [row for row in report["model"]["layers"] if row["quantizable"]]
    float_layers = set(trial["excluded"])
    if not float_layers:
        return [f"Nothing: all {len(layers)} layers are quantized."]
    errors = [row["error"] for row in layers if row.get("error") is not None]
    middle = sorted(errors)[len(errors) // 2] if errors else None
    lines = [
        f"{len(float_layers)} of {len(layers)} layers, by their error when quantized alone. One "
        "with a small error is float where the search measured better trials with it in float.",
        "",
    ]
    rows = [row for row in layers if row["name"] in float_layers]
    rows.sort(key=lambda row: -(row.get("error") or 0.0))
    for row in rows[:SHOWN_LAYERS]:
        reason = _reason(row, middle)
        lines.append(f"- {escape(row['name'])} ({escape(row['op_type'])}): {reason}")
    if len(rows) > SHOWN_LAYERS:
        lines.append(f"- and {len(rows) - SHOWN_LAYERS} more")
    return lines


def _reason(row: Mapping[str, Any], middle: float | None) -> str:
    error = row.get("error")
    if error is None:
        return "its error was not measured"
    text = f"relative error {error:.3g}"
    return f"{text}, {times(error / middle)} the median layer's" if middle else text


def _files(files: Mapping[str, str]) -> list[str]:
    return [f"- {escape(name)}: sha256 {escape(digest)}" for name, digest in files.items()]


def _commands(report: Report, trial: Json, pick: str) -> list[str]:
    """Return the commands: the settings that matter are in the run's journal."""
    source = base_model(report)
    origin = report["model"].get("origin") or {}
    model = f"hub:{source}/{origin.get('file')}@{origin.get('commit')}" if source else "MODEL.onnx"
    chosen = f"--pick {title_of(pick).replace(' ', '-')}" if pick else f"--trial {trial['number']}"
    search = report["settings"].get("search", {})
    options = f"--strategy {shlex.quote(plain(search.get('strategy') or 'frontier'))}"
    options += f" --seed {int(search.get('seed') or 0)}"
    lines = [
        f"seqto tune {shlex.quote(plain(model))} --data DATA --out RUN {options}",
        f"seqto export RUN {chosen} -o MODEL-int8.onnx",
    ]
    digest = str(report["model"].get("sha256") or "")
    longest = max((len(run) for run in re.findall("`+", "".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    said = f"The float model has sha256 {escape(digest)}; the plan's key is {escape(trial['key'])}."
    return [f"{fence}sh", *lines, fence, "", said]


def picks_of(report: Report, number: int) -> Sequence[str]:
    """Return the names under which a trial is recommended."""
    return [name for name, trial in report["recommended"].items() if trial == number]

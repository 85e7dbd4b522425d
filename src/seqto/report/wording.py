"""Plain words for figures: one wording for page, terminal, Markdown and report.json."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from seqto.record import events
from seqto.record.trial import main_score
from seqto.records import Json, ScoreKind
from seqto.selection.objectives import OBJECTIVES
from seqto.selection.recommend import title_of
from seqto.tasks.task import RELATIVE_ERROR
from seqto.text import milliseconds, percent, plain, shorten, times


def trial_of(report: Mapping[str, Any], number: int | None) -> Json | None:
    """The trial with a number, or None."""
    found: Json | None = next((t for t in report["trials"] if t["number"] == number), None)
    return found


def recommended_trial(report: Mapping[str, Any], pick: str = "balanced") -> Json | None:
    return trial_of(report, report["recommended"].get(pick))


def held_out(trial: Mapping[str, Any]) -> tuple[Json | None, bool]:
    """The loss to quote, and whether no search has seen its samples."""
    split = trial["report_split"]
    if split is not None and split["loss"] is not None:
        return split["loss"], True
    return trial["loss"], False


def gains(report: Mapping[str, Any], trial: Mapping[str, Any]) -> list[str]:
    """'3.9 × smaller', '1.6 × faster': what a trial wins over float, as far as measured."""
    parts = []
    baseline = report["baseline"]
    if baseline and baseline["size_bytes"] and trial["size_bytes"]:
        parts.append(_gain(baseline["size_bytes"] / trial["size_bytes"], "smaller", "larger"))
    latency = trial["latency_ms"]
    if latency and latency["ratio"]:
        parts.append(_gain(1 / latency["ratio"], "faster", "slower"))
    return parts


def _gain(factor: float, better: str, worse: str) -> str:
    if factor >= 0.995:
        return f"{times(factor)} {better}" if factor > 1.005 else f"not {better}"
    return f"{times(1 / factor)} {worse}"


def changed(report: Mapping[str, Any]) -> str:
    """'answers changed', 'boxes changed', 'relative error': what loss is, in the task's words."""
    word = (report.get("output") or {}).get("changed")
    if word == RELATIVE_ERROR:
        return RELATIVE_ERROR
    return f"{plain(word or 'answers')} changed"


def change_words(report: Mapping[str, Any]) -> str:
    """'of answers change', 'of boxes changed', 'relative error': what stands behind a loss."""
    word = (report.get("output") or {}).get("changed")
    if word == RELATIVE_ERROR:
        return RELATIVE_ERROR
    return "of answers change" if word is None else f"of {plain(word)} changed"


def change(loss: Mapping[str, Any] | None, report: Mapping[str, Any]) -> str:
    """'1.3 % of answers change, 95 % between 0.6 and 2.9 %'."""
    if loss is None:
        return "loss not measured"
    low = percent(loss["low"]).removesuffix(" %")
    return (
        f"{percent(loss['value'])} {change_words(report)}, "
        f"95 % between {low} and {percent(loss['high'])}"
    )


def interval(loss: Mapping[str, Any] | None) -> str:
    """'1.3 % (0.6–2.9)'."""
    if loss is None:
        return "–"
    digits = 0 if loss["value"] >= 0.1 else 1
    low, high = (f"{loss[k] * 100:.{digits}f}" for k in ("low", "high"))
    return f"{percent(loss['value'])} ({low}–{high})"


def labelled_scores(trial: Mapping[str, Any]) -> list[str]:
    """'mAP 36.6 → 36.1 % (paired interval −1.2 to +0.3)': scores on the labelled set."""
    found = trial.get("labelled") or {"scores": {}}
    texts = (score_change(found, name) for name in found["scores"])
    return [text for text in texts if text]


def score_change(measured: Mapping[str, Any], name: str) -> str:
    """'mAP 36.6 → 36.1 %', 'perplexity 12.31 → 12.9 (lower is better)': one score and float's.

    `measured` is the part of a report that has the scores of one split.
    """
    after, before = measured["scores"].get(name), measured["baseline_scores"].get(name)
    if after is None or before is None:
        return ""
    kind = measured.get("score_kinds", {}).get(name) or ScoreKind().to_json()
    share = kind["share"] and min(after, before) >= 0 and max(after, before) <= 1
    first, second = ((f"{x * 100:.1f}" if share else f"{x:.4g}") for x in (before, after))
    text = f"{plain(name)} {first} → {second}{' %' if share else ''}"
    notes = ["lower is better"] if kind["lower_is_better"] else []
    drop = measured.get("score_drops", {}).get(name)
    if drop and None not in drop:
        change = drop if kind["lower_is_better"] else [-end for end in reversed(drop)]
        low, high = ((f"{x * 100:+.1f}" if share else f"{x:+.3g}") for x in change)
        notes.append(f"paired interval {low} to {high}".replace("-", "−"))
    return f"{text} ({'; '.join(notes)})" if notes else text


def recommendation(report: Mapping[str, Any]) -> str:
    """The one sentence that the whole run is for."""
    trial = recommended_trial(report)
    if trial is None:
        counts = report["counts"]
        if report["status"] == "running":
            return "No trial is measured yet; the recommendation appears with the first ones."
        if counts["trials"] and counts["failed"] == counts["trials"]:
            return f"All {counts['trials']} trials failed, so there is nothing to recommend."
        return "No trial has all the figures that were asked for, so there is none to recommend."
    loss, unseen = held_out(trial)
    parts = [*gains(report, trial), change(loss, report)]
    score = _accuracy(report, trial) or _first_score(trial)
    if score:
        parts.append(score)
    parts += labelled_scores(trial)[:1]
    kept = len(trial["excluded"])
    layers = sum(row["quantizable"] for row in report["model"]["layers"])
    what = f"keeps {kept} of {layers} layers float" if kept else f"quantizes all {layers} layers"
    where = ""
    if loss is not None:
        kind = "random inputs" if is_random(report) else "samples"
        where = f" (on {loss['samples']:,} {kind}{' that no search has seen' if unseen else ''})"
    return f"{', '.join(parts)}: trial {trial['number']} {what}{where}."


def _accuracy(report: Mapping[str, Any], trial: Mapping[str, Any]) -> str:
    split = trial["report_split"]
    baseline = report["baseline"] or {}
    if split is not None and split["accuracy"] is not None:
        after = split["accuracy"]
        before = split["baseline_accuracy"]
        if before is None:
            before = (baseline.get("report_split") or {}).get("accuracy")
    else:
        after, before = trial["accuracy"], trial["baseline_accuracy"]
        if before is None:
            before = baseline.get("accuracy")
    if after is None or before is None:
        return ""
    return f"accuracy {percent(before)} → {percent(after)}"


def _first_score(trial: Mapping[str, Any]) -> str:
    """The score that stands for the task, on held-out samples where there are some."""
    for measured in (trial["report_split"], trial):
        name = main_score(measured["scores"]) if measured is not None else None
        if measured is not None and name is not None:
            return score_change(measured, name)
    return ""


def export_command(report: Mapping[str, Any], *, folder: str, pick: str = "balanced") -> str:
    """The command that writes a recommended model, safe to paste into a shell."""
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in model_name(report)).strip("-.")
    out = f"{stem or 'model'}-{pick}.onnx"
    return f"seqto export {shlex.quote(plain(folder))} --pick {pick} -o {shlex.quote(out)}"


def model_name(report: Mapping[str, Any]) -> str:
    model = report["model"]
    return plain(model.get("name") or model.get("path") or "model")


def int8_products(report: Mapping[str, Any]) -> str:
    """Whether the device adds 8-bit products exactly, as tried; empty in reports without it."""
    found = report.get("int8_products")
    if not found:
        return ""
    if found["result"] == "unknown":
        return f"int8 products: unknown ({shorten(found['reason'], 120)})"
    if found["result"] == "exact":
        return "int8 products: exact"
    hit = [name for name, what in found["operators"].items() if what == "saturates"]
    return f"int8 products: saturate in 16 bits ({', '.join(plain(x) for x in hit)})"


def is_random(report: Mapping[str, Any]) -> bool:
    return bool(report["data"].get("kind") == "random")


def warnings(report: Mapping[str, Any]) -> list[str]:
    """What a reader must know before trusting the figures, one plain sentence each."""
    found = []
    if is_random(report):
        found.append(
            "The inputs were random numbers, not real samples: "
            "losses only say how far outputs move, not how good the answers are."
        )
    found += [
        f["message"] for f in report["findings"] if f["kind"] in (events.TASK, events.OBJECTIVES)
    ]
    missing = [OBJECTIVES[n].label for n in report["objectives"] if n not in report["ranked_by"]]
    if missing and report["ranked_by"] and report["status"] != "running":
        found.append(
            f"No trial has a figure for {' and '.join(missing)}: the front and the "
            "recommendation leave it out."
        )
    found += _slower(report)
    found += _held_out_differs(report)
    unreadable = report["data"].get("unreadable") or []
    if unreadable:
        names = ", ".join(shorten(n, 40) for n in unreadable[:3])
        more = f" and {len(unreadable) - 3} more" if len(unreadable) > 3 else ""
        count = "1 sample" if len(unreadable) == 1 else f"{len(unreadable)} samples"
        found.append(f"{count} could not be read: {names}{more}.")
    found += [_failed_step(failure) for failure in report["failures"]]
    failed = report["counts"]["failed"]
    if failed:
        total = report["counts"]["trials"]
        found.append(f"{failed} of {total} trials failed; each is listed with its error.")
    return found


def _failed_step(step: Mapping[str, Any]) -> str:
    """'Timing of trial 3 failed (load): no kernel for it; it is not tried again.'."""
    what = {
        "batch": "The choice of a batch",
        "timing": "Timing",
        "report split": "Measuring on the report split",
        "profile": "Profiling",
    }.get(step["step"], plain(step["step"]))
    number = step["number"]
    whose = "" if step["step"] == "batch" else " of the float model or a uniform plan"
    whose = whose if number is None else f" of trial {number}"
    failure = step["failure"]
    why = shorten(failure["message"].strip().splitlines()[0] if failure["message"] else "", 160)
    return f"{what}{whose} failed ({plain(failure['stage'])}): {why}; it is not tried again."


def _slower(report: Mapping[str, Any]) -> list[str]:
    found = []
    numbers = {"fully quantized": report["fully_quantized"]}
    numbers |= {f"recommended ({title_of(k)})": n for k, n in report["recommended"].items()}
    said: set[int] = set()
    for what, number in numbers.items():
        trial = trial_of(report, number)
        latency = trial["latency_ms"] if trial else None
        if not latency or number in said:
            continue
        # only when the whole interval is above one: a busy machine alone must not warn
        low = latency.get("ratio_low") or latency["ratio"]
        if low > 1 and latency["ratio"] > 1.02:
            said.add(number)
            found.append(
                f"The {what} model, trial {number}, is slower than float on this device: "
                f"{times(latency['ratio'])} its latency{_spread(latency)}, "
                f"median {milliseconds(latency['median'])}."
            )
    return found


def _spread(latency: Mapping[str, Any]) -> str:
    low, high = latency.get("ratio_low"), latency.get("ratio_high")
    return f" (between {low:.2f} and {high:.2f})" if low and high else ""


def _held_out_differs(report: Mapping[str, Any]) -> list[str]:
    trial = recommended_trial(report)
    if trial is None or trial["loss"] is None:
        return []
    loss, unseen = held_out(trial)
    # only when the intervals lie apart: a small difference is chance
    if not unseen or loss is None or loss["low"] <= trial["loss"]["high"]:
        return []
    return [
        f"Trial {trial['number']} loses more on samples that no search has seen "
        f"({percent(loss['value'])}) than on those it was chosen by "
        f"({percent(trial['loss']['value'])}): trust the former."
    ]

"""Plain words for figures: one wording for page, terminal, Markdown and report.json."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from seqto.record.trial import main_score
from seqto.records import Json, ScoreKind
from seqto.selection.goal import FIGURES, Goal
from seqto.selection.objectives import LOSS, OBJECTIVES
from seqto.selection.recommend import BALANCED, GOAL, TOLERANCE, title_of
from seqto.selection.speed import Speed, ends, is_wide, speed_of
from seqto.tasks.task import RELATIVE_ERROR
from seqto.text import milliseconds, percent, plain, shorten, times

MOST_SOURCES = 3  # causes that the summary names
LEAST_SOURCE = 0.01  # of the error: a smaller share is left to the page


def trial_of(report: Mapping[str, Any], number: int | None) -> Json | None:
    """Return the trial with a number, or None."""
    trial: Json | None = next((t for t in report["trials"] if t["number"] == number), None)
    return trial


def best_pick(report: Mapping[str, Any]) -> str | None:
    """Return the pick that the sentence is about: the goal's, else the balanced one."""
    picks = report["recommended"]
    return next((p for p in (GOAL, BALANCED, *picks) if p in picks), None)


def recommended_trial(report: Mapping[str, Any]) -> Json | None:
    pick = best_pick(report)
    return None if pick is None else trial_of(report, report["recommended"][pick])


def tolerance(report: Mapping[str, Any]) -> float:
    """Return the tolerated loss of the run's last call."""
    return float(report["settings"].get("search", {}).get("tolerance", TOLERANCE))


def held_out(trial: Mapping[str, Any]) -> tuple[Json | None, bool]:
    """Return the loss to quote, and whether no search has seen its samples."""
    split = trial["report_split"]
    if split is not None and split["loss"] is not None:
        return split["loss"], True
    return trial["loss"], False


def gains(report: Mapping[str, Any], trial: Mapping[str, Any]) -> list[str]:
    """Return '3.9 × smaller', '1.6 × faster': what a trial wins over float, as far as measured."""
    parts = []
    baseline = report["baseline"]
    if baseline and baseline["size_bytes"] and trial["size_bytes"]:
        parts.append(_gain(baseline["size_bytes"] / trial["size_bytes"], "smaller", "larger"))
    if trial["latency_ms"]:
        parts.append(speed(trial["latency_ms"]))
    return parts


def speed(latency: Mapping[str, Any]) -> str:
    """Return '1.6 × faster', '1.4 to 2.5 × faster', 'about as fast as float' or the like."""
    verdict = speed_of(latency)
    if verdict is Speed.SAME:
        return "about as fast as float"
    low, high = ends(latency)
    if verdict is Speed.UNCERTAIN:
        return f"speed uncertain, the machine was busy ({low:.2f} to {high:.2f} × float's time)"
    factors = (1 / high, 1 / low) if verdict is Speed.FASTER else (low, high)
    if is_wide(latency):
        return f"{times(factors[0]).removesuffix(' ×')} to {times(factors[1])} {verdict}"
    ratio = latency["ratio"]
    return f"{times(1 / ratio if verdict is Speed.FASTER else ratio)} {verdict}"


def float_ms(latency: Mapping[str, Any]) -> float:
    """Return the float model's milliseconds in the same rounds as the candidate's."""
    known: float | None = latency.get("float_median")
    if known is not None:
        return known
    return float(latency["median"] / latency["ratio"] if latency["ratio"] else latency["median"])


def both_ms(latency: Mapping[str, Any]) -> str:
    """Return '0.263 ms, float 0.274 ms in the same rounds'."""
    before = milliseconds(float_ms(latency))
    return f"{milliseconds(latency['median'])}, float {before} in the same rounds"


def short_speed(latency: Mapping[str, Any] | None) -> str:
    """Return '0.62×', '≈1×', '0.4–1.6×': for a narrow column."""
    if not latency:
        return "–"
    verdict = speed_of(latency)
    if verdict is Speed.SAME:
        return "≈1×"
    low, high = ends(latency)
    if verdict is Speed.UNCERTAIN or is_wide(latency):
        return f"{low:.1f}–{high:.1f}×"
    ratio = latency["ratio"]
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:.{digits}f}×"


def _gain(factor: float, better: str, worse: str) -> str:
    if factor >= 0.995:
        return f"{times(factor)} {better}" if factor > 1.005 else f"not {better}"
    return f"{times(1 / factor)} {worse}"


def changed(report: Mapping[str, Any]) -> str:
    """Return 'answers changed', 'boxes changed', 'relative error': the task's words for loss."""
    word = (report.get("output") or {}).get("changed")
    if word == RELATIVE_ERROR:
        return RELATIVE_ERROR
    return f"{plain(word or 'answers')} changed"


def objective_label(report: Mapping[str, Any], name: str) -> str:
    """Return the name of an objective; that of the loss is in the task's words."""
    return changed(report) if name == LOSS.name else OBJECTIVES[name].label


def changed_noun(report: Mapping[str, Any]) -> str:
    """Return 'changed answers', 'changed boxes', 'relative error'."""
    word = (report.get("output") or {}).get("changed")
    return RELATIVE_ERROR if word == RELATIVE_ERROR else f"changed {plain(word or 'answers')}"


def goal_text(report: Mapping[str, Any]) -> str:
    """Return 'the smallest file with at most 1.0 % changed answers'; empty without a goal."""
    goal = Goal.of(report["settings"].get("search", {}))
    return "" if goal is None else goal.text(changed_noun(report))


def goal_sentence(report: Mapping[str, Any]) -> str:
    """Say whether the goal is met; where it is not, what is nearest and what stands in the way."""
    answer = report["goal"]
    if not answer or report["status"] == "running":
        return ""
    if answer["met"]:
        return f"Your goal is met: {goal_text(report)}."
    text = f"No trial meets your goal, {goal_text(report)}"
    if answer["nearest"] is None:
        return f"{text}: none was measured."
    text += f". Nearest is trial {answer['nearest']}: {_missed(report, answer)}."
    if answer["opened_by"] and len(answer["bounds"]) > 1:
        names = " or ".join(f"--{n.replace('_', '-')}" for n in answer["opened_by"])
        text += f" Without {names} some trial would do."
    costliest = answer.get("costliest")
    if costliest and list(answer["opened_by"]) != [costliest]:  # else it is said already
        text += f" --{answer['costliest'].replace('_', '-')} costs most."
    return text


def _missed(report: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    """Return '2.3 % changed answers instead of at most 1.0 % (130 % over)', largest miss first."""
    limits = {bound["setting"]: bound["limit"] for bound in answer["bounds"]}
    parts = []
    for miss in answer["misses"]:
        figure = FIGURES[miss["setting"]]
        label = changed_noun(report) if miss["setting"] == "max_loss" else figure.label
        side = "at least" if figure.least else "at most"
        limit = figure.text(limits[miss["setting"]])
        if miss["value"] is None:
            parts.append(f"its {label} is not known ({side} {limit} was asked for)")
        else:
            parts.append(f"{figure.text(miss['value'])} {label} instead of {side} {limit}")
    return "; ".join(parts)


def change_words(report: Mapping[str, Any]) -> str:
    """Return 'of answers change', 'of boxes changed', 'relative error': words after a loss."""
    word = (report.get("output") or {}).get("changed")
    if word == RELATIVE_ERROR:
        return RELATIVE_ERROR
    return "of answers change" if word is None else f"of {plain(word)} changed"


def change(loss: Mapping[str, Any] | None, report: Mapping[str, Any]) -> str:
    """Return '1.3 % of answers change, 95 % between 0.6 and 2.9 %'."""
    if loss is None:
        return "loss not measured"
    low = percent(loss["low"]).removesuffix(" %")
    return (
        f"{percent(loss['value'])} {change_words(report)}, "
        f"95 % between {low} and {percent(loss['high'])}"
    )


def interval(loss: Mapping[str, Any] | None) -> str:
    """Return '1.3 % (0.6–2.9)'."""
    if loss is None:
        return "–"
    # as many as the value itself has
    digits = 0 if loss["value"] >= 0.1 else 2 if 0 < loss["value"] < 0.001 else 1
    low, high = (f"{loss[k] * 100:.{digits}f}" for k in ("low", "high"))
    return f"{percent(loss['value'])} ({low}–{high})"


def labelled_scores(trial: Mapping[str, Any]) -> list[str]:
    """Return 'mAP 36.6 → 36.1 % (paired interval −1.2 to +0.3)': scores on the labelled set."""
    labelled = trial.get("labelled") or {"scores": {}}
    texts = (score_change(labelled, name) for name in labelled["scores"])
    return [text for text in texts if text]


def score_change(measured: Mapping[str, Any], name: str) -> str:
    """Return 'mAP 36.6 → 36.1 %', 'perplexity 12.31 → 12.9 (lower is better)': a score and float's.

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
    """Return the one sentence that the whole run is for."""
    trial = recommended_trial(report)
    if trial is None:
        counts = report["counts"]
        if report["status"] == "running":
            return "No trial is measured yet; the recommendation appears with the first ones."
        if counts["trials"] and counts["failed"] == counts["trials"]:
            return f"All {counts['trials']} trials failed, so there is nothing to recommend."
        if not counts["trials"]:
            return (
                "The run ended before its first trial was measured, so there is nothing to "
                "recommend: the same command continues it (--max-minutes gives it more time)."
            )
        return "No trial has all the figures that were asked for, so there is none to recommend."
    asked = goal_sentence(report)
    sentence = measured_sentence(report, trial)
    return f"{asked} {sentence}" if asked else sentence


def measured_sentence(report: Mapping[str, Any], trial: Mapping[str, Any], *, who: str = "") -> str:
    """Return what was measured of a trial, by held-out figures where there are some.

    `who` names the trial where that is not its number in this report.
    """
    loss, unseen = held_out(trial)
    parts = [*gains(report, trial), change(loss, report)]
    score = _accuracy(report, trial) or _first_score(trial)
    if score:
        parts.append(score)
    parts += labelled_scores(trial)[:1]
    float_count = len(trial["excluded"])
    layers = sum(row["quantizable"] for row in report["model"]["layers"])
    count = f"all {layers}" if float_count == layers else f"{float_count} of {layers}"
    what = f"keeps {count} layers float" if float_count else f"quantizes all {layers} layers"
    halves = sum(trial["plan"].get(name) == "fp16" for name in trial["excluded"])
    if halves:
        what += f", {halves if halves < float_count else 'all'} of them stored as fp16"
    where = ""
    if loss is not None:
        kind = "random inputs" if is_random(report) else "samples"
        where = f" (on {loss['samples']:,} {kind}{' that no search has seen' if unseen else ''})"
    name = who or f"trial {trial['number']}"
    return f"{', '.join(parts)}: {name} {what}{where}."


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
    """Return the score that stands for the task, on held-out samples where there are some."""
    for measured in (trial["report_split"], trial):
        name = main_score(measured["scores"]) if measured is not None else None
        if measured is not None and name is not None:
            return score_change(measured, name)
    return ""


def export_command(report: Mapping[str, Any], *, folder: str, pick: str | None = None) -> str:
    """Return the command that writes a recommended model, safe to paste into a shell."""
    name = title_of(pick or best_pick(report) or BALANCED).replace(" ", "-")
    stem = "".join(c if c.isalnum() or c in "-_." else "-" for c in model_name(report)).strip("-.")
    out = f"{stem or 'model'}-{name}.onnx"
    return f"seqto export {shlex.quote(plain(folder))} --pick {name} -o {shlex.quote(out)}"


def model_name(report: Mapping[str, Any]) -> str:
    model = report["model"]
    return plain(model.get("name") or model.get("path") or "model")


def int8_products(report: Mapping[str, Any]) -> str:
    """Return whether the device adds 8-bit products exactly, as tried; empty if not tried."""
    check = report.get("int8_products")
    if not check:
        return ""
    if check["result"] == "unknown":
        why = shorten(check["reason"], 120)
        return f"whether the device adds int8 products exactly is not known ({why})"
    if check["result"] == "exact":
        return "the device adds int8 products exactly"
    hit = [name for name, what in check["operators"].items() if what == "saturates"]
    names = ", ".join(plain(x) for x in hit)
    return f"the device adds int8 products in 16 bits, which saturate ({names})"


def error_sources(report: Mapping[str, Any]) -> str:
    """Name the causes that cost most of the fully quantized model's error, each with its cure.

    Empty where nothing was diagnosed.
    """
    steps = (report["diagnosis"] or {}).get("steps") or []
    largest = sorted(steps, key=lambda step: -step["share"])[:MOST_SOURCES]
    parts = [
        f"{step['label']} {step['share'] * 100:.0f} %"
        + (f" (cure: {step['cure']})" if step["cure"] else "")
        for step in largest
        if step["share"] >= LEAST_SOURCE
    ]
    what = "The error of the fully quantized model's output comes from"
    return f"{what} {', '.join(parts)}." if parts else ""


def task_guess(report: Mapping[str, Any]) -> str:
    """Return 'No task was named: taken for a detector, …' or nothing where one was."""
    said = [f["message"] for f in report["findings"] if f["kind"] == "guess"]
    return f"No task was named (task.kind): {said[-1]}" if said else ""


def is_random(report: Mapping[str, Any]) -> bool:
    return bool(report["data"].get("kind") == "random")

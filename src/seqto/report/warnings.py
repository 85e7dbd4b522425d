"""Warnings that a reader must know before trusting the figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqto.record import events
from seqto.record.events import WARM_START
from seqto.report.wording import (
    best_pick,
    both_ms,
    changed_noun,
    held_out,
    is_random,
    recommended_trial,
    score_change,
    task_guess,
    tolerance,
    trial_of,
)
from seqto.selection.objectives import OBJECTIVES
from seqto.selection.recommend import title_of
from seqto.selection.speed import Speed, speed_of
from seqto.text import percent, plain, shorten


def warnings(report: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know before trusting the figures, one sentence each."""
    sentences = []
    if is_random(report):
        sentences.append(
            "The inputs were random numbers, not real samples: "
            "losses only say how far outputs move, not how good the answers are."
        )
    guess = task_guess(report)
    if guess and report["settings"].get("task", {}).get("kind") != "classification":
        sentences.append(f"{guess}.")
    sentences += [
        f["message"] for f in report["findings"] if f["kind"] in (events.TASK, events.OBJECTIVES)
    ]
    start = [f["message"].rstrip(".") for f in report["findings"] if f["kind"] == WARM_START]
    if start:
        source = report["settings"].get("search", {}).get("warm_start")
        sentences.append(f"Started from {plain(source or 'an earlier run')}: {'; '.join(start)}.")
    missing = [OBJECTIVES[n].label for n in report["objectives"] if n not in report["ranked_by"]]
    if missing and report["ranked_by"] and report["status"] != "running":
        sentences.append(
            f"No trial has a figure for {' and '.join(missing)}: the front and the "
            "recommendation leave it out."
        )
    sentences += _beyond_tolerance(report)
    sentences += _slower(report)
    sentences += _held_out_differs(report)
    sentences += _lower_scores(report)
    unreadable = report["data"].get("unreadable") or []
    if unreadable:
        names = ", ".join(shorten(n, 40) for n in unreadable[:3])
        more = f" and {len(unreadable) - 3} more" if len(unreadable) > 3 else ""
        count = "1 sample" if len(unreadable) == 1 else f"{len(unreadable)} samples"
        sentences.append(f"{count} could not be read: {names}{more}.")
    sentences += _truncated(report["data"])
    sentences += [_failed_step(failure) for failure in report["failures"]]
    failed = report["counts"]["failed"]
    if failed:
        total = report["counts"]["trials"]
        sentences.append(f"{failed} of {total} trials failed; each is listed with its error.")
    return sentences


def _truncated(data: Mapping[str, Any]) -> list[str]:
    """Return '3 of 60 texts were cut to 128 tokens, by 41 in all (data.tokenizer.max_length).'."""
    cut = data.get("truncated") or {}
    if not cut.get("samples"):
        return []
    limit = (data.get("sequences") or {}).get("max_length")
    whole = sum((data.get("splits") or {}).values())
    return [
        f"{cut['samples']} of {whole} texts were cut to {limit} tokens, by {cut['tokens']} in all "
        "(data.tokenizer.max_length)."
    ]


def _failed_step(step: Mapping[str, Any]) -> str:
    """Return 'Timing of trial 3 failed (load): no kernel for it; it is not tried again.'."""
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


def _beyond_tolerance(report: Mapping[str, Any]) -> list[str]:
    """Say that no trial is within the tolerated loss; a goal has a sentence of its own."""
    trial = recommended_trial(report)
    limit = tolerance(report)
    if report["goal"] or trial is None or trial["loss"] is None or trial["loss"]["value"] <= limit:
        return []
    if any(t["loss"] and t["loss"]["value"] <= limit for t in report["trials"] if not t["error"]):
        return []
    noun = changed_noun(report)
    return [
        f"No trial is within the tolerated loss of {percent(limit)} {noun} (search.tolerance): the "
        f"recommended one has {percent(trial['loss']['value'])} in search."
    ]


def _slower(report: Mapping[str, Any]) -> list[str]:
    sentences = []
    numbers = {"fully quantized": report["fully_quantized"]}
    best = best_pick(report)
    if best is not None:
        numbers[f"recommended ({title_of(best)})"] = report["recommended"][best]
    said: set[int] = set()
    for what, number in numbers.items():
        trial = trial_of(report, number)
        latency = trial["latency_ms"] if trial else None
        if not latency or number in said:
            continue
        # only when the whole interval is above one: a busy machine alone must not warn
        if speed_of(latency) is Speed.SLOWER:
            said.add(number)
            sentences.append(
                f"The {what} model, trial {number}, is slower than float on this device: "
                f"{latency['ratio']:.2f} × its latency{_spread(latency)}, {both_ms(latency)}."
            )
    return sentences


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


def _lower_scores(report: Mapping[str, Any]) -> list[str]:
    """Name the picks that surely score worse by more than the tolerated share of answers.

    Few answers may change by the task's own threshold and the score fall all the same: boxes that
    move a little still match at an IoU of 0.5, and mAP looks at higher ones too.
    """
    picks: dict[int, list[str]] = {}
    for pick, number in report["recommended"].items():
        picks.setdefault(number, []).append(title_of(pick))
    sentences = []
    for number, titles in picks.items():
        trial = trial_of(report, number)
        if trial is None or trial["loss"] is None or trial["loss"]["value"] > tolerance(report):
            continue  # its loss says it
        labelled = trial.get("labelled") or {}
        for name, (low, _high) in labelled.get("score_drops", {}).items():
            kind = labelled.get("score_kinds", {}).get(name)
            if (kind is None or kind["share"]) and low is not None and low > tolerance(report):
                sentences.append(
                    f"{', '.join(titles)} (trial {number}) scores worse than float on the labelled "
                    f"set, beyond chance: {score_change(labelled, name)}."
                )
                break
    return sentences

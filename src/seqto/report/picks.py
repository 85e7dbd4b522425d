"""The picks as people read them: at most four in front, each with the question that it answers.

Picks that are the same trial are one row. What was given up for a pick is said against the shown
pick that loses a little less, by held-out figures where both have them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from seqto.records import Json
from seqto.report import portability, wording
from seqto.selection.recommend import (
    BALANCED,
    DROP_IN,
    FAST,
    FAST_SIZE,
    GOAL,
    PORTABLE,
    PRACTICAL,
    SMALL,
    title_of,
)
from seqto.selection.speed import Speed, ends, speed_of
from seqto.tasks.task import RELATIVE_ERROR
from seqto.text import percent, size, times

Report = Mapping[str, Any]

# picks that are shown in front, beside the portable one, which is shown where none of them is
# portable and as good
MOST = 4


def pick_rows(report: Report) -> list[Json]:
    """Return one row for each recommended trial, in the order in which they are shown."""
    trials: dict[int, list[str]] = {}
    recommended = report["recommended"]
    order = [*(p for p in PRACTICAL if p in recommended), *recommended]
    for pick in dict.fromkeys(order):
        trials.setdefault(recommended[pick], []).append(pick)
    for names in trials.values():
        # where a trial holds is said in any case (`holds`): another name says more about it
        names.sort(key=lambda pick: pick == PORTABLE)
    numbers = list(trials)
    portable = {n for n in numbers if trials[n] == [PORTABLE]}
    in_front = set([n for n in numbers if n not in portable][:MOST])
    in_front |= {n for n in portable if not _matched(report, n, in_front)}
    shown = [t for n in numbers if n in in_front and (t := wording.trial_of(report, n)) is not None]
    rows = []
    for number, picks in trials.items():
        trial = wording.trial_of(report, number)
        rows.append(
            {
                "trial": number,
                "picks": picks,
                "title": ", ".join(title_of(pick) for pick in picks),
                "question": question(report, picks[0], trial),
                "shown": number in in_front,
                "given_up": "" if trial is None else given_up(report, trial, shown, trials),
                "holds": "" if trial is None else portability.holds(trial["may_saturate"]),
            }
        )
    return rows


def _matched(report: Report, number: int, others: Collection[int]) -> bool:
    """Return whether another shown pick is portable too and, as far as measured, no worse."""
    ours = wording.trial_of(report, number)
    for trial in (wording.trial_of(report, n) for n in others):
        if ours is None or trial is None or trial["may_saturate"] != []:
            continue
        no_larger = trial["size_bytes"] <= ours["size_bytes"]
        if no_larger and _less(trial, ours) >= 0 and not _won_time(ours, trial):
            return True
    return False


def question(report: Report, pick: str, trial: Json | None = None) -> str:
    """Return the question that a pick answers; `trial` is the one that was picked."""
    noun = wording.changed_noun(report)
    within = _within(report, trial)
    least = "lowest" if noun == RELATIVE_ERROR else "fewest" if noun.endswith("s") else "least"
    fewest = f"{least} {noun}"
    return {
        GOAL: f"what you asked for: {wording.goal_text(report)}",
        BALANCED: f"the best compromise of {_listed(report)}, {within}",
        PORTABLE: f"the same file for every kind of CPU, {within}",
        DROP_IN: f"as small as int8, no slower than float, {fewest}",
        SMALL: f"the smallest file {within}",
        FAST: f"the fastest {within}, at most {percent(FAST_SIZE - 1)} larger than int8",
        "loss": f"{fewest} of all",
        "size": "the smallest file, whatever it loses",
        "latency": "the fastest, whatever it loses",
    }.get(pick, f"{title_of(pick)}, whatever it loses")


def _within(report: Report, trial: Json | None) -> str:
    """Return 'within 2.5 % changed answers', as far as that is true of the trial.

    Trials are picked by the samples of the search; on held-out ones they may lose more.
    """
    tolerated, noun = wording.tolerance(report), wording.changed_noun(report)
    limit = f"{percent(tolerated)} {noun}"
    if trial is None or trial["loss"] is None:
        return f"within {limit}"
    if trial["loss"]["value"] > tolerated:
        return f"though not within {limit}"
    loss, unseen = wording.held_out(trial)
    if unseen and loss is not None and loss["value"] > tolerated:
        return f"within {limit} in search ({percent(loss['value'])} held-out)"
    return f"within {limit}"


def _listed(report: Report) -> str:
    names = [n.replace("_", " ") for n in report["ranked_by"]]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def given_up(
    report: Report, trial: Json, shown: Sequence[Json], titles: Mapping[int, Sequence[str]]
) -> str:
    """Return '0.6 points more changed answers than drop-in for 0.7 MB less'.

    The best one is compared with float.
    Empty where a figure is missing.
    """
    noun = wording.changed_noun(report)
    others = [o for o in shown if o["number"] != trial["number"] and _less(o, trial) > 0]
    if others:
        rival = min(others, key=lambda o: _less(o, trial))
        name = title_of(titles[rival["number"]][0])
        points = f"{_less(rival, trial) * 100:.1f}"
        more = f"{points} points more {noun} than {name}"
        if float(points) == 0.0:
            more = f"nearly the same {noun} as {name}"
        won = _won(trial, rival)
        if won:
            return f"{more} for {won}"
        if _may_be_faster(trial, rival):
            return f"{more}; whether it is faster is not certain, the intervals overlap"
        return f"{more}, and neither smaller nor faster"
    loss, _ = wording.held_out(trial)
    baseline = report["baseline"]
    if loss is None or not baseline:
        return ""
    return f"{percent(loss['value'])} {noun} for {_won_from_float(trial, baseline)}"


def figures_text(row: Mapping[str, Any]) -> str:
    """Return the figures of a row that has its trial's: '182.3 kB, 0.8 % changed (held-out), …'."""
    loss, unseen = wording.held_out(row)
    parts = [size(row["size_bytes"])]
    if loss is not None:
        parts.append(f"loss {wording.interval(loss)} {'held-out' if unseen else 'in search'}")
    if row["latency_ms"]:
        parts.append(wording.speed(row["latency_ms"]))
    return ", ".join(parts)


def _less(other: Json, trial: Json) -> float:
    """Return the share of answers that the other one changes less, on the samples of both."""
    ours, theirs = wording.held_out(trial), wording.held_out(other)
    pair = (ours[0], theirs[0]) if ours[1] and theirs[1] else (trial["loss"], other["loss"])
    if pair[0] is None or pair[1] is None:
        return 0.0
    return float(pair[0]["value"] - pair[1]["value"])


def _won(trial: Json, rival: Json) -> str:
    parts = []
    if trial["size_bytes"] and trial["size_bytes"] < rival["size_bytes"]:
        parts.append(f"{size(rival['size_bytes'] - trial['size_bytes'])} less")
    if _won_time(trial, rival):
        ratio = rival["latency_ms"]["ratio"] / trial["latency_ms"]["ratio"]
        parts.append(f"{times(ratio)} the speed")
    return " and ".join(parts)


def _won_time(trial: Json, rival: Json) -> bool:
    """Return whether a trial is faster: only where the intervals lie apart can the clock tell."""
    ours, theirs = trial["latency_ms"], rival["latency_ms"]
    return bool(ours and theirs and ends(ours)[1] < ends(theirs)[0])


def _may_be_faster(trial: Json, rival: Json) -> bool:
    """Return whether its median is lower, though the clock cannot tell the two."""
    ours, theirs = trial["latency_ms"], rival["latency_ms"]
    return bool(ours and theirs and ours["ratio"] < theirs["ratio"])


def _won_from_float(trial: Json, baseline: Json) -> str:
    parts = []
    saved = baseline["size_bytes"] - trial["size_bytes"]
    if saved:
        parts.append(f"{size(abs(saved))} {'less' if saved > 0 else 'more'} than float")
    latency = trial["latency_ms"]
    if latency and speed_of(latency) is Speed.FASTER:
        parts.append(f"{times(1 / latency['ratio'])} its speed")
    return " and ".join(parts) or "nothing that was measured"

"""Two runs beside each other: did the recommended model get worse? For people and for CI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqto.errors import ConfigError
from seqto.records import Json
from seqto.report import wording
from seqto.selection.objectives import LOSS, OBJECTIVES, SIZE, Objective
from seqto.text import percent

if TYPE_CHECKING:
    from rich.table import Table

Report = Mapping[str, Any]

SHOWN_PLANS = 10  # that both runs measured, with other figures


def compare(before: Report, after: Report, *, margin: float) -> Json:
    """Compare the balanced model of `after` with that of `before`.

    margin is a share: 0.02 allows two more answers in a hundred to change (loss is a share
    already, so it is compared in points) and 2 % more bytes or time. A figure that one side
    lacks is no verdict; a run without a recommended model where there was one is worse.
    """
    if not 0 <= margin < 10:
        raise ConfigError(
            f"margin {margin} is no share between 0 and 10; write 0.02 for two per cent"
        )
    old, new = wording.recommended_trial(before), wording.recommended_trial(after)
    # held-out losses only if both runs have them: the two splits do not compare
    unseen = all(trial is not None and wording.held_out(trial)[1] for trial in (old, new))
    names = _compared(before, after)
    rows = [_row(OBJECTIVES[n], old, new, margin=margin, unseen=unseen) for n in names]
    worse = [row["objective"] for row in rows if row["worse"]]
    if old is not None and new is None:
        worse.append("recommendation")
    return {
        "margin": margin,
        "before": _who(before, old),
        "after": _who(after, new),
        "held_out": unseen,
        "rows": rows,
        "same_plans": _same_plans(before, after),
        "worse": worse,
        "verdict": "worse" if worse else "ok" if old and new else "nothing to compare",
        "notes": _notes(before, after),
    }


def verdict_sentence(result: Mapping[str, Any]) -> str:
    """Return one line for a log."""
    if result["verdict"] == "nothing to compare":
        return "Neither run has figures that can be compared." + _tail(result)
    if "recommendation" in result["worse"]:
        return "Worse: the second run recommends no model, the first one did." + _tail(result)
    if result["worse"]:
        said = "; ".join(
            f"{row['objective']} {row['text_before']} → {row['text_after']}"
            for row in result["rows"]
            if row["worse"]
        )
        return f"Worse by more than the margin of {percent(result['margin'])}: {said}." + _tail(
            result
        )
    return f"Not worse within the margin of {percent(result['margin'])}." + _tail(result)


def compare_table(result: Mapping[str, Any]) -> Table:
    """Return the figures of the recommended trials, then the plans whose figures changed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for name in ("before", "after", "change"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    who = [result["before"]["trial"], result["after"]["trial"]]
    table.add_row("trial", *("–" if n is None else str(n) for n in who), "", "")
    for row in result["rows"]:
        cells = [row["objective"], row["text_before"], row["text_after"], row["text_change"]]
        mark = {True: "worse", False: "ok", None: "–"}[row["worse"]]
        table.add_row(*map(Text, cells), Text(mark, style="bold red" if row["worse"] else ""))
    # a plan that both runs measured, with other figures: that is not the search's doing
    both = result["same_plans"]
    changed = [p for p in both if _plan_text(p["before"]) != _plan_text(p["after"])]
    for pair in changed[:SHOWN_PLANS]:
        numbers = pair["before"]["trial"], pair["after"]["trial"]
        cells = ["trials {}, {}".format(*numbers)]
        cells += [_plan_text(pair["before"]), _plan_text(pair["after"])]
        table.add_row(*map(Text, cells), "", "", style="dim")
    table.caption = Text(_caption(result, len(both), len(changed)))
    return table


def _caption(result: Mapping[str, Any], both: int, changed: int) -> str:
    """Return whose samples the losses are of, and what the plans that both runs measured say."""
    samples = "held-out samples" if result["held_out"] else "samples of the search"
    text = f"loss: on {samples}"
    if not both:
        return text
    plans = "1 plan was" if both == 1 else f"{both} plans were"
    text += f"; {plans} measured in both runs"
    if not changed:
        return f"{text}, with the same losses and sizes"
    shown = min(changed, SHOWN_PLANS)
    text += f", {changed} of them with other figures on the samples of the search"
    return f"{text}; the last {'row' if shown == 1 else f'{shown} rows'}"


def _compared(before: Report, after: Report) -> list[str]:
    """Return the objectives to compare: loss, size, latency, and others that both runs had."""
    shared = set(before["objectives"]) & set(after["objectives"])
    return [name for name in OBJECTIVES if name in ("loss", "size", "latency") or name in shared]


def _row(
    objective: Objective, old: Json | None, new: Json | None, *, margin: float, unseen: bool
) -> Json:
    a, b = (_figure(trial, objective, unseen=unseen) for trial in (old, new))
    known = a is not None and b is not None
    points = objective.difference == "points"
    change = worse = None
    if a is not None and b is not None:
        change = b - a if points else (b / a - 1 if a else 0.0)
        worse = change > margin + 1e-12
    sign = "points" if points else "%"
    return {
        "objective": objective.name,
        "before": a,
        "after": b,
        "change": change,
        "worse": worse,
        "text_before": objective.text(a),
        "text_after": objective.text(b),
        "text_change": f"{(change or 0) * 100:+.1f} {sign}" if known else "–",
    }


def _figure(trial: Json | None, objective: Objective, *, unseen: bool) -> float | None:
    if trial is None:
        return None
    if objective is LOSS and unseen:
        return float(trial["report_split"]["loss"]["value"])
    value: float | None = trial["objectives"][objective.name]
    return value


def _who(report: Report, trial: Json | None) -> Json:
    return {
        "model": wording.model_name(report),
        "sha256": report["model"].get("sha256"),
        "trial": trial["number"] if trial else None,
        "key": trial["key"] if trial else None,
        "status": report["status"],
    }


def _same_plans(before: Report, after: Report) -> list[Json]:
    """Return the plans that both runs measured: what changed there is not the search's doing."""
    old = {t["key"]: t for t in before["trials"] if t["loss"] is not None}
    pairs = []
    for trial in after["trials"]:
        twin = old.get(trial["key"])
        if twin is None or trial["loss"] is None or trial["same_as"] is not None:
            continue
        pairs.append(
            {
                "key": trial["key"],
                "before": {"trial": twin["number"], **_figures(twin)},
                "after": {"trial": trial["number"], **_figures(trial)},
            }
        )
    return pairs


def _figures(trial: Json) -> Json:
    return {
        "loss": trial["loss"]["value"],
        **{name: trial["objectives"][name] for name in ("size", "latency")},
    }


def _plan_text(side: Json) -> str:
    return f"{LOSS.text(side['loss'])}, {SIZE.text(side['size'])}"


def _notes(before: Report, after: Report) -> list[str]:
    notes = []
    if before["model"].get("sha256") != after["model"].get("sha256"):
        notes.append("The two runs tuned different model files.")
    if before["data"].get("identity") != after["data"].get("identity"):
        notes.append("The two runs were measured on different data.")
    return notes


def _tail(result: Mapping[str, Any]) -> str:
    return "".join(f" {note}" for note in result["notes"])

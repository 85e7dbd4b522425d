"""The table device × pick of a run on several devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqto.report import wording
from seqto.report.wording import short_speed
from seqto.text import percent, size

Report = Mapping[str, Any]


def device_names(report: Report) -> list[str]:
    """Return the devices of a run in the order of its settings; none where there is one."""
    return [one["name"] for one in report["device"].get("devices", ())]


def fleet_table(report: Report) -> list[list[str]]:
    """Return rows of text: the heads, then one row a pick; no rows where there is one device."""
    names = device_names(report)
    rows = [["pick", "size", *names]]
    for row in report["picks"]:
        trial = wording.trial_of(report, row["trial"])
        if row["shown"] and trial is not None:
            cells = [device_cell(trial["devices"].get(name)) for name in names]
            rows.append([row["title"], size(trial["size_bytes"]), *cells])
    return rows if names and len(rows) > 1 else []


def device_cell(figures: Mapping[str, Any] | None) -> str:
    """Return '0.3 %, 0.53×': changed answers, held-out where they were measured, and time."""
    if figures is None:
        return "–"
    loss = figures["held_out"] or figures["loss"]
    parts = [] if loss is None else [percent(loss["value"])]
    parts += [short_speed(figures["latency_ms"])] if figures["latency_ms"] else []
    return ", ".join(parts) or "–"

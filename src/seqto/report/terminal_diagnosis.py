"""The diagnosis in a terminal and in Markdown: what each cause costs, then the layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from seqto.records import Json
from seqto.text import percent, plain, shorten

if TYPE_CHECKING:
    from rich.console import Group

Diagnosis = Mapping[str, Any]

SHOWN = 10  # layers of the table; the others are counted
BAR = 14  # columns of a bar


def diagnosis_summary(diagnosis: Diagnosis) -> Group:
    """Return steps as bars, the layers that matter, and one line for each cause.

    Within 80 columns.
    """
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = []
    if diagnosis["steps"]:
        parts += [_steps_table(diagnosis), Text("")]
    if diagnosis["layers"]:
        parts += [_layers_table(diagnosis["layers"]), Text("")]
    parts += [Text(f"· {plain(cause['message'])}") for cause in diagnosis["causes"]]
    parts += [Text(line) for line in skipped_lines(diagnosis)]
    return Group(*parts)


def _steps_table(diagnosis: Diagnosis) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), title=None
    )
    table.add_column("where the output's error comes from", no_wrap=True)
    table.add_column("costs", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("cure")
    start = diagnosis["start"]
    table.add_row("fully quantized", percent(start), "█" * BAR, "")
    for step in diagnosis["steps"]:
        cells = [step["label"], percent(step["before"] - step["after"]), _bar(step, start)]
        table.add_row(*map(Text, cells), Text(step["cure"]))
    return table


def _bar(step: Mapping[str, Any], start: float) -> str:
    """Return the step's place in the whole: what is cured already is left blank."""
    if not start:
        return ""
    ends = sorted((step["before"] / start, step["after"] / start))
    low, high = (min(BAR, max(0, round(BAR * end))) for end in ends)
    return f"{' ' * low}{'█' * (high - low) or '▏'}"


def _layers_table(rows: list[Json]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("layer", no_wrap=True)
    table.add_column("cause", max_width=12)
    for name in ("damage", "device", "exact", "cured"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("cure", no_wrap=True)
    for row in rows[:SHOWN]:
        cells = [shorten(row["layer"], 24), ", ".join(row["causes"]) or "–"]
        cells += [percent(row[k]) for k in ("damage", "device_err", "exact_err", "cured_err")]
        table.add_row(*map(Text, cells), Text(row["cure"] or "–"))
    more = f"; {len(rows) - SHOWN} more in diagnosis.json" if len(rows) > SHOWN else ""
    table.caption = Text(
        "damage: of the output's variance, this layer alone; device, exact, cured: error of the "
        f"layer's own output{more}"
    )
    return table


def skipped_lines(diagnosis: Diagnosis) -> list[str]:
    """Return one line for each reason why something was skipped, with its count."""
    return [
        f"skipped, {row['what']}: {row['count']} × {shorten(row['reason'], 100)}"
        for row in diagnosis["skipped"]
    ]


def markdown_steps(diagnosis: Diagnosis | None) -> list[str]:
    """Return a table of the steps, for a pull request; empty where there are none."""
    if not diagnosis or not diagnosis["steps"]:
        return []
    lines = ["| where the error of the output comes from | costs | cure |", "| :-- | --: | :-- |"]
    lines += [f"| fully quantized, on the device | {percent(diagnosis['start'])} | |"]
    for step in diagnosis["steps"]:
        cost = percent(step["before"] - step["after"])
        lines.append(f"| {step['label']} | {cost} | {step['cure']} |")
    return lines

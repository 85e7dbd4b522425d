"""Output of a run in a terminal: tables within 80 columns and a front drawn in characters.

Pure functions that return rich renderables or strings; whoever owns the console prints them
(rich leaves out colours for NO_COLOR and when the output is no terminal).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seqto.records import Json
from seqto.report import portability, wording
from seqto.report.columns import Medium, Row, columns, short_latency
from seqto.report.fleet_table import fleet_table
from seqto.selection.recommend import title_of
from seqto.text import plain, shorten, size

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

Report = Mapping[str, Any]


def summary(report: Report, *, folder: str) -> Group:
    """Return all that the end of a run prints: sentence, table, front, warnings, next command."""
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [Text(wording.recommendation(report), style="bold"), Text("")]
    parts += [summary_table(report), Text("")]
    for name, line in pick_lines(report):
        parts.append(Text.assemble((name, "bold"), f": {line}"))
    if fleet := fleet_table(report):
        parts += [_plain_table(fleet), Text("")]
    for names, line in portability.pick_lines(report):
        parts.append(Text.assemble((names, "bold"), f": {line}"))
    parts += [Text(report["portability_cost"])] if report["portability_cost"] else []
    parts += [Text("")] if report["picks"] else []
    chart = front_chart(report, 78, height=10)
    if chart:
        parts += [Text(chart), Text("")]
    causes = wording.error_sources(report)
    parts += [Text(causes), Text("")] if causes else []
    products = wording.int8_products(report)
    parts += [Text(_sentence(products), style="dim")] if products else []
    parts += [Text(f"! {warning}", style="yellow") for warning in report["warnings"]]
    parts.append(_unbroken(f"All trials, layers and causes: {plain(folder)}/report.html"))
    if report["recommended"]:
        parts.append(Text("To get the recommended model:"))
        command = "  " + wording.export_command(report, folder=folder)
        parts.append(_unbroken(command, style="cyan"))
    return Group(*parts)


def _unbroken(line: str, *, style: str = "") -> Any:
    """Return a line for copying: it may be wider than the window, it is never broken up."""
    from rich.text import Text

    text = Text(line, style=style)
    text.no_wrap, text.overflow = True, "ignore"
    return text


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}."


def _plain_table(rows: Sequence[Sequence[str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column, head in enumerate(rows[0]):
        table.add_column(Text(shorten(head, 24)), justify="right" if column else "left")
    for cells in rows[1:]:
        table.add_row(Text(cells[0].replace(", ", "\n")), *map(Text, cells[1:]))
    return table


def shown_trials(report: Report) -> list[tuple[str, Json]]:
    """Return fully quantized, then the picks that are shown, each trial once with all its names."""
    rows = [(row["trial"], row["title"]) for row in report["picks"] if row["shown"]]
    full = report["fully_quantized"]
    titles = dict([(full, "fully quantized"), *((n, t) for n, t in rows if n != full)])
    if full is not None and full in dict(rows):
        titles[full] = f"fully quantized, {dict(rows)[full]}"
    titled = [(title, wording.trial_of(report, number)) for number, title in titles.items()]
    return [(title, trial) for title, trial in titled if trial is not None]


def summary_table(report: Report) -> Table:
    """Return a table of float, fully quantized and the recommended trials."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = shown_trials(report)
    shown = columns(report, Medium.TERMINAL)
    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(shorten(wording.model_name(report), 60)),
        caption=Text(caption(report)),
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("model", min_width=15)
    for column in shown:
        table.add_column(column.title_in(Medium.TERMINAL), justify="right", no_wrap=True)
    best = wording.recommended_trial(report)
    for title, trial in [("float", None), *rows]:
        row = Row(report, trial)
        # one title a line: side by side they would push the figures out of 80 columns
        cells = [title.replace(", ", "\n")]
        cells += [column.text_in(Medium.TERMINAL, row) for column in shown]
        chosen = trial is not None and best is not None and trial["number"] == best["number"]
        table.add_row(*map(Text, cells), style="bold green" if chosen else "")
    return table


def caption(report: Report) -> str:
    """Return the sentence that says whose samples the figures are of."""
    trials = [t for t in report["trials"] if t["loss"] is not None]
    if not trials:
        return f"no trial measured yet ({report['status']})"
    kind = "random inputs" if wording.is_random(report) else "samples"
    named = {"answers changed": "answers unlike float's"}.get(wording.changed(report))
    what = named or wording.changed(report)
    searched = max(t["loss"]["samples"] for t in trials)
    unseen = [t["report_split"]["loss"] for t in trials if t["report_split"] is not None]
    if unseen:
        text = f"held-out: {what}, on {unseen[0]['samples']:,} {kind} that no search has seen; "
        text += f"search: on the {searched:,} that the search chose by"
    else:
        text = f"changed: {what}, on the {searched:,} {kind} that the search chose by"
    return f"{text}; latency: of float's in the same rounds" if _timed(report) else text


def _timed(report: Report) -> bool:
    return any(t["latency_ms"] for t in report["trials"])


def pick_lines(report: Report) -> list[tuple[str, str]]:
    """Return the picks that are shown, each with its question and its price.

    Then the others' names.
    """
    lines = []
    for row in report["picks"]:
        if row["shown"]:
            price = f" ({row['given_up']})" if row["given_up"] else ""
            lines.append((row["title"], f"{row['question']}{price}"))
    more = [f"{row['title']} (trial {row['trial']})" for row in report["picks"] if not row["shown"]]
    return [*lines, *([("more", ", ".join(more))] if more else [])]


def layers_table(report: Report, *, limit: int | None = None) -> Table:
    """Return the layer analysis, worst first: errors and number of weights.

    A column without any figure is left out; what remains fits 80 columns with whole words.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    ranked = [row for row in report["model"]["layers"] if row["rank"] is not None]
    ranked.sort(key=lambda row: row["rank"])
    shown = ranked[:limit]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("layer", no_wrap=True)
    table.add_column("op", no_wrap=True)
    table.add_column("weights", justify="right", no_wrap=True)
    figures = {"qdq": "qdq_err", "xmodel": "xmodel_err", "error": "error", "damage": "damage"}
    figures = {k: v for k, v in figures.items() if any(row[v] is not None for row in shown)}
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    for row in shown:
        cells = [str(row["rank"] + 1), shorten(row["name"], 22), shorten(row["op_type"], 9)]
        cells += [_count(row["parameters"]), *(_figure(row[key]) for key in figures.values())]
        table.add_row(*map(Text, cells))
    if len(shown) < len(ranked):
        table.caption = Text(f"{len(shown)} of {len(ranked)} layers")
    return table


def _count(number: int) -> str:
    return f"{number:,}" if number < 1_000_000 else f"{number / 1e6:.1f} M"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}" if abs(value) >= 1e-3 else f"{value:.0e}"


def runs_table(runs: Sequence[tuple[str, Report]], *, failed: Sequence[str] = ()) -> Table:
    """Return a table with a line for each run of one call; `failed`: models without a run."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("run", no_wrap=True)
    for name in ("status", "trials", "best", "changed (95 %)", "size", "latency"):
        table.add_column(name, justify="left" if name == "status" else "right", no_wrap=True)
    for folder, report in runs:
        trial = wording.recommended_trial(report)
        counts = report["counts"]
        cells = [shorten(folder, 18), plain(report["status"]), str(counts["trials"])]
        if trial is None:
            cells += ["–", "–", "–", "–"]
        else:
            loss, _ = wording.held_out(trial)
            cells += [str(trial["number"]), wording.interval(loss), size(trial["size_bytes"])]
            cells += [short_latency(Row(report, trial))]
        table.add_row(*map(Text, cells))
    for name in failed:
        table.add_row(*map(Text, [shorten(name, 18), "failed", *"–––––"]))
    return table


def front_chart(
    report: Report, width: int = 78, *, height: int = 12, ascii_only: bool = False
) -> str:
    """Return loss over size in characters: the front, the others, and the recommended trial.

    Losses are drawn by their square roots: a few useless trials must not press the others flat.
    """
    points = [
        (t["size_bytes"], math.sqrt(max(0.0, t["loss"]["value"] * 100)), t["number"])
        for t in report["trials"]
        if t["loss"] is not None and t["error"] is None and not t["stopped_early"]
    ]
    if len(points) < 2 or width < 40:
        return ""
    dot, star, pick = (".", "o", "*") if ascii_only else ("·", "o", "◆")
    xs, ys = _span([p[0] for p in points]), _span([0.0, *(p[1] for p in points)])
    left = max(len(_tick(y**2)) for y in ys) + 1
    columns = width - left - 2
    grid = [[" "] * columns for _ in range(height)]
    front = set(report["front"])
    best = wording.best_pick(report)
    chosen = None if best is None else report["recommended"][best]

    def put(x: float, y: float, sign: str) -> None:
        column = round((x - xs[0]) / (xs[1] - xs[0]) * (columns - 1))
        row = round((ys[1] - y) / (ys[1] - ys[0]) * (height - 1))
        grid[row][column] = sign

    # later signs win a cell, so the more telling ones are drawn last
    for sign, drawn in ((dot, None), (star, front), (pick, {chosen})):
        for x, y, number in points:
            if drawn is None or number in drawn:
                put(x, y, sign)
    edge, corner, line = ("|", "+", "-") if ascii_only else ("│", "└", "─")
    lines = []
    for i, row in enumerate(grid):
        y = ys[1] - (ys[1] - ys[0]) * i / (height - 1)
        label = _tick(y**2) if i in (0, height // 2, height - 1) else ""
        lines.append(f"{label:>{left}}{edge}{''.join(row)}".rstrip())
    lines.append(" " * left + corner + line * columns)
    low, high = size(xs[0]), size(xs[1])
    legend = f"{pick} {title_of(best) if best else 'pick'}  {star} front  {dot} other"
    room = columns - len(low) - len(high)
    lines.append(" " * (left + 1) + low + legend.center(room)[:room] + high)
    return "\n".join([f"{wording.changed(report)} (%), search samples"[:width], *lines])


def _tick(value: float) -> str:
    return f"{value:.1f}"


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    # equal figures still need a width to be drawn in
    return (low, high) if high > low else (low, low + (abs(low) * 0.01 or 1.0))

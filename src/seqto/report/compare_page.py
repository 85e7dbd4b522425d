"""The page of a comparison: both fronts in one picture, the picks before and after.

One file without a script. Names come from strangers: they are escaped.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from seqto.errors import ConfigError
from seqto.files import shown
from seqto.records import Json
from seqto.report import wording
from seqto.report.columns import Medium, Row, columns
from seqto.report.compare import verdict_sentence
from seqto.report.html_page import DARK_WITHOUT_SCRIPT
from seqto.report.terminal import shown_trials
from seqto.selection.objectives import LOSS, SIZE
from seqto.text import percent, plain, shorten

Report = Mapping[str, Any]

MARK = "<meta name='generator' content='seqto compare'>"  # of a page that may be replaced

WIDTH, HEIGHT = 900, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 40, 20, 52
SIDES = ("before", "after")
TICKS = 5


def render(result: Mapping[str, Any], before: Report, after: Report) -> str:
    """Return the whole page as text; `result` is what `compare` found."""
    css = (resources.files("seqto.report") / "assets" / "page.css").read_text("utf-8")
    name = html.escape(shorten(wording.model_name(after), 80))
    worse = bool(result["worse"])
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'>{MARK}"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'\">"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<link rel='icon' href='data:,'><title>{name}: before and after – seqto</title>"
        f"<style>{css}{DARK_WITHOUT_SCRIPT}{_CSS}</style></head><body>"
        f"<header><div class='bar'><span class='brand'>seqto</span><h1>{name}: before and after"
        f"</h1></div></header><main>"
        f"<section><h2>{'Worse' if worse else 'Verdict'}</h2>"
        f"<p class='sentence'>{html.escape(plain(verdict_sentence(result)))}</p>"
        f"{_figures(result)}</section>"
        "<section><h2>Both fronts</h2><p class='hint'>Loss on the samples that each search chose "
        "by, against file size; lower left is better. Ringed is the recommended trial of each "
        f"run.</p>{both_fronts(before, after)}</section>"
        f"<section><h2>Picks</h2>{_picks(before, after)}</section>"
        f"{_same_plans(result)}</main></body></html>"
    )


_CSS = (
    ".before{--mark:#8a5a00}.after{--mark:#005a9e}"
    ".dot{fill:var(--mark);fill-opacity:.75}.ring{fill:none;stroke:var(--mark);stroke-width:2.5}"
    ".line{fill:none;stroke:var(--mark);stroke-width:1.6}.before .line{stroke-dasharray:6 4}"
    ".axis{fill:none;stroke:var(--soft)}.grid{stroke:var(--line)}"
    "svg text{fill:var(--ink);font-size:13px}td.worse{color:var(--bad);font-weight:600}"
    "@media (prefers-color-scheme: dark){.before{--mark:#ffb454}.after{--mark:#6cb6ff}"
    ":root{--bad:#ff9a6b;--track:#2a323c}}"
)


def check_page(path: Path) -> None:
    """Refuse a file that is there and is no page of an earlier comparison."""
    if not os.path.lexists(path):
        return
    head = path.read_bytes()[:500] if path.is_file() and not path.is_symlink() else b""
    if MARK.encode() not in head:
        raise ConfigError(
            f"{shown(path)} is there and is no page of `seqto compare`: choose another name"
        )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, label: str) -> str:
    """Return a table of escaped cells; the first column is text, the others are figures."""
    cells = [
        "".join(
            f"<td class='{'name' if i == 0 else 'number'}'>{cell}</td>"
            for i, cell in enumerate(row)
        )
        for row in rows
    ]
    head = "".join(
        f"<th scope='col'{'' if i == 0 else ' class=number'}>{html.escape(plain(text))}</th>"
        for i, text in enumerate(heads)
    )
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{html.escape(label)}'>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figures(result: Mapping[str, Any]) -> str:
    rows = []
    for row in result["rows"]:
        verdict = {True: "worse", False: "not worse", None: "–"}[row["worse"]]
        texts = [row["objective"], row["text_before"], row["text_after"], row["text_change"]]
        rows.append([*(html.escape(plain(text)) for text in texts), verdict])
    trials = [f"{side}, trial {result[side]['trial']}" for side in SIDES]
    return _table(
        ["recommended model", *trials, "change", "verdict"], rows, label="The recommended models"
    )


def _picks(before: Report, after: Report) -> str:
    """Return the picks of both runs by name, with the columns of the other reports."""
    fields = columns(after, Medium.MARKDOWN)
    sides_by_name: dict[str, dict[str, tuple[Report, Json]]] = {}
    for side, report in zip(SIDES, (before, after), strict=True):
        for title, trial in shown_trials(report):
            for name in title.split(", "):
                sides_by_name.setdefault(name, {})[side] = (report, trial)
    rows = []
    for name, sides in sides_by_name.items():
        for side in SIDES:
            first = f"{html.escape(plain(name))} <small>{side}</small>"
            if side not in sides:
                rows.append([first, "not there", *["–"] * (len(fields) - 1)])
                continue
            row = Row(*sides[side])
            texts = [column.text_in(Medium.MARKDOWN, row) for column in fields]
            rows.append([first, *(html.escape(plain(text)) for text in texts)])
    heads = ["pick", *(column.title_in(Medium.MARKDOWN) for column in fields)]
    return _table(heads, rows, label="Picks before and after")


def _same_plans(result: Mapping[str, Any]) -> str:
    pairs = result["same_plans"]
    if not pairs:
        return ""
    rows = [
        [
            html.escape(pair["key"][:8]),
            *(
                f"{html.escape(LOSS.text(pair[side]['loss']))}, "
                f"{html.escape(SIZE.text(pair[side]['size']))} (trial {pair[side]['trial']})"
                for side in SIDES
            ),
        ]
        for pair in pairs[:50]
    ]
    return (
        "<section><h2>Plans that both runs measured</h2><p class='hint'>Losses on the samples of "
        "the search. What differs here is not the search's doing.</p><details>"
        f"<summary>{len(rows)} of {len(pairs)} plans</summary>"
        f"{_table(['plan', *SIDES], rows, label='Plans of both runs')}</details></section>"
    )


# ------------------------------------------------------------------------------------ the picture


def both_fronts(before: Report, after: Report) -> str:
    """Return an SVG with the trials of both fronts, each joined by a line of its own kind."""
    fronts = [_front(report) for report in (before, after)]
    points = [point for front in fronts for point in front]
    if not points:
        return "<p class='hint'>Neither run has a measured trial.</p>"
    low, high = min(p["size_bytes"] for p in points), max(p["size_bytes"] for p in points)
    margin = (high - low or high or 1) * 0.05
    low, high = max(0, low - margin), high + margin
    most = max(p["loss"]["value"] for p in points) * 1.08 or 0.01

    def point_of(trial: Json) -> tuple[float, float]:
        x = LEFT + (trial["size_bytes"] - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - trial["loss"]["value"] / most * (HEIGHT - TOP - BOTTOM)
        return x, y

    groups = []
    for side, report, front in zip(SIDES, (before, after), fronts, strict=True):
        best = wording.recommended_trial(report)
        groups.append(_group(side, front, best=best["number"] if best else None, point_of=point_of))
    label = "Fronts of both runs: changed answers against file size"
    return (
        f"<svg role='img' aria-label='{label}' viewBox='0 0 {WIDTH} {HEIGHT}' "
        f"style='max-width:100%;height:auto'>{_axes(after, low, high, most)}{''.join(groups)}"
        f"{_key()}</svg>"
    )


def _front(report: Report) -> list[Json]:
    on_front = set(report["front"])
    front = [t for t in report["trials"] if t["number"] in on_front and t["loss"]]
    return sorted(front, key=lambda t: (t["size_bytes"], t["loss"]["value"]))


def _group(side: str, front: Sequence[Json], *, best: int | None, point_of: Any) -> str:
    dots: list[str] = []
    steps: list[str] = []
    lowest = float("inf")
    for trial in front:
        x, y = point_of(trial)
        said = f"{side}, trial {trial['number']}: {percent(trial['loss']['value'])}, "
        title = f"<title>{said}{SIZE.text(trial['size_bytes'])}</title>"
        dots.append(f"<circle class='dot' cx='{x:.1f}' cy='{y:.1f}' r='5'>{title}</circle>")
        if trial["number"] == best:
            dots.append(f"<circle class='ring' cx='{x:.1f}' cy='{y:.1f}' r='10'/>")
        if trial["loss"]["value"] < lowest:  # third objectives leave trials above the line
            steps.append(
                f"{'H' if steps else 'M'}{x:.1f}" + (f"V{y:.1f}" if steps else f",{y:.1f}")
            )
            lowest = trial["loss"]["value"]
    line = f"<path class='line' d='{''.join(steps)}'/>" if len(steps) > 1 else ""
    return f"<g class='{side}'>{line}{''.join(dots)}</g>"


def _axes(report: Report, low: float, high: float, most: float) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for i in range(TICKS + 1):
        share = i / TICKS
        x, y = LEFT + share * (right - LEFT), bottom - share * (bottom - TOP)
        parts.append(f"<line class='grid' x1='{LEFT}' x2='{right}' y1='{y:.1f}' y2='{y:.1f}'/>")
        parts.append(f"<text x='{LEFT - 8}' y='{y + 4:.1f}' text-anchor='end'>")
        parts.append(f"{percent(share * most)}</text>")
        megabytes = (low + share * (high - low)) / 1e6
        parts.append(f"<text x='{x:.1f}' y='{bottom + 20}' text-anchor='middle'>")
        parts.append(f"{megabytes:.3g} MB</text>")
    changed = html.escape(wording.changed(report))
    parts.append(f"<path class='axis' d='M{LEFT},{TOP}V{bottom}H{right}'/>")
    parts.append(f"<text x='{LEFT}' y='{TOP - 6}'>{changed}</text>")
    parts.append(f"<text x='{right}' y='{bottom + 40}' text-anchor='end'>file size</text>")
    return "".join(parts)


def _key() -> str:
    x = WIDTH - RIGHT - 170
    return "".join(
        f"<g class='{side}'><path class='line' d='M{x + 85 * i},{TOP}h24'/>"
        f"<circle class='dot' cx='{x + 12 + 85 * i}' cy='{TOP}' r='5'/>"
        f"<text x='{x + 30 + 85 * i}' y='{TOP + 4}'>{side}</text></g>"
        for i, side in enumerate(SIDES)
    )

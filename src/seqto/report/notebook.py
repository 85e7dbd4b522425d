"""A run in a notebook: the result as HTML, pictures that show themselves, and a progress line.

Everything is plain HTML and SVG without a script, in the colours of the notebook's theme. Names
come from strangers: they are escaped.
"""

from __future__ import annotations

import html
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.files import given_path, write_file
from seqto.record.events import Event, Finding, ProbeFinished, TrialFinished, TrialTimed
from seqto.records import Json
from seqto.report import plots, wording
from seqto.report.columns import Medium, Row, columns
from seqto.report.terminal import shown_trials
from seqto.text import percent, plain, shorten

Report = Mapping[str, Any]

WIDTH, HEIGHT = 440, 220  # of the small front, pixels
LEFT, BOTTOM, TOP, RIGHT = 44, 34, 12, 12  # its margins
EVERY_S = 0.5  # between two updates of the progress line


# ------------------------------------------------------------------------------------- the result


def result_html(report: Report, *, folder: str) -> str:
    """Return the sentence, the picks, a small front and where the whole page is."""
    sentence = html.escape(plain(wording.recommendation(report)))
    where = html.escape(shorten(folder, 80))
    warnings = "".join(f"<li>{html.escape(plain(w))}</li>" for w in report["warnings"][:3])
    return (
        f"<div><p><strong>{sentence}</strong></p>{_picks_table(report)}{small_front(report)}"
        f"{f'<ul>{warnings}</ul>' if warnings else ''}"
        f"<p><small>The whole page: {where}/report.html</small></p></div>"
    )


def _picks_table(report: Report) -> str:
    shown = columns(report, Medium.MARKDOWN)
    heads = ["model", *(column.title_in(Medium.MARKDOWN) for column in shown)]
    rows = []
    for title, trial in [("float", None), *shown_trials(report)]:
        row = Row(report, trial)
        cells = [title, *(column.text_in(Medium.MARKDOWN, row) for column in shown)]
        rows.append(_row(cells, "td"))
    return f"<table><thead>{_row(heads, 'th')}</thead><tbody>{''.join(rows)}</tbody></table>"


def _row(cells: Sequence[str], tag: str) -> str:
    aligned = ("left", *["right"] * (len(cells) - 1))
    return (
        "<tr>"
        + "".join(
            f'<{tag} style="text-align:{side}">{html.escape(plain(cell))}</{tag}>'
            for cell, side in zip(cells, aligned, strict=True)
        )
        + "</tr>"
    )


def small_front(report: Report) -> str:
    """Return an SVG of loss against size, with the picks named; nothing before the first trial."""
    trials = [t for t in report["trials"] if t["loss"] and t["size_bytes"] and not t["error"]]
    if not trials:
        return ""
    on_front = set(report["front"])
    # the front's sizes fill the picture; what is larger than all of them is left out
    largest = max((t["size_bytes"] for t in trials if t["number"] in on_front), default=0)
    trials = [t for t in trials if t["size_bytes"] <= largest] or trials
    most_loss = max(t["loss"]["value"] for t in trials) or 0.01
    sizes = [t["size_bytes"] for t in trials]
    low, high = min(sizes), max(sizes)

    def point_of(trial: Json) -> tuple[float, float]:
        share = (trial["size_bytes"] - low) / (high - low) if high > low else 0.5
        x = LEFT + share * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - trial["loss"]["value"] / most_loss * (HEIGHT - BOTTOM - TOP)
        return x, y

    marks = []
    for trial in sorted(trials, key=lambda t: t["number"] in on_front):
        x, y = point_of(trial)
        front = trial["number"] in on_front
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if front else 2.5}" '
            f'fill="{plots.BLUE if front else plots.GREY}" fill-opacity="{0.9 if front else 0.5}">'
            f"<title>trial {trial['number']}: {percent(trial['loss']['value'])}, "
            f"{trial['size_bytes'] / 1e6:.2f} MB</title></circle>"
        )
    best = wording.recommended_trial(report)
    if best is not None and best["loss"]:
        x, y = point_of(best)
        marks.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="7" fill="none" stroke="{plots.RED}" '
            'stroke-width="2"/>'
        )
    return _axes(report, "".join(marks), low=low, high=high, most_loss=most_loss)


def _axes(report: Report, marks: str, *, low: int, high: int, most_loss: float) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    changed = html.escape(wording.changed(report))
    label = f"Front: {changed} against size; the recommended trial is circled"
    texts = (
        (LEFT, bottom + 14, "start", f"{low / 1e6:.2f} MB"),
        (right, bottom + 14, "end", f"{high / 1e6:.2f} MB"),
        ((LEFT + right) / 2, bottom + 28, "middle", f"{changed} in search (up), size (across)"),
        (LEFT - 4, bottom, "end", "0 %"),
        (LEFT - 4, TOP + 8, "end", percent(most_loss)),
    )
    words = "".join(
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{side}">{text}</text>'
        for x, y, side, text in texts
    )
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" style="color:inherit" font-size="11" fill="currentColor">'
        f'<path d="M{LEFT},{TOP}V{bottom}H{right}" fill="none" stroke="currentColor" '
        f'stroke-opacity="0.5"/>{marks}{words}</svg>'
    )


# -------------------------------------------------------------------------------------- a picture


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot that a notebook shows; `save` writes it as SVG."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        return f"<Picture, {len(self.svg) / 1e3:.0f} kB of SVG: save(path) writes it>"

    def save(self, path: str | Path) -> Path:
        """Write the picture; the name's ending should be .svg."""
        target = given_path(path, "path")
        write_file(target, self.svg.encode())
        return target


def plot(report: Report, name: str) -> Picture | None:
    """Return one of the run's plots (plots.NAMES); None where there is nothing to draw yet."""
    drawn = plots.draw(report, name, kind="svg")
    return None if drawn is None else Picture(drawn.decode())


# ----------------------------------------------------------------------------------- its progress


class NotebookProgress:
    """Shows what a run does in one line of a notebook's cell.

    Give its two methods to `tune`: listener=shown.event, progress=shown.step. It needs IPython,
    which every notebook has.
    """

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._last = ""
        self._said = 0.0
        self._handle: Any = None

    def step(self, what: str, done: int, total: int) -> None:
        """Show how far a step is."""
        self._show(f"{what} {done}/{total}", always=done >= total)

    def event(self, event: Event) -> None:
        """Count an event of the journal."""
        match event:
            case ProbeFinished():
                self._count("probing layers")
            case TrialFinished(trial=trial):
                if trial.loss is not None and trial.error is None:
                    size = f"{trial.size_bytes / 1e6:.2f} MB"
                    self._last = f", last: {percent(trial.loss.value)} at {size}"
                self._count("trials")
            case TrialTimed():
                self._count("timing")
            case Finding(kind="diagnosis"):
                self._count("diagnosis")

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
        self._show(f"{what}, {self._counts[what]} done{self._last}", always=False)

    def _show(self, line: str, *, always: bool) -> None:
        now = time.monotonic()
        if not always and self._handle is not None and now - self._said < EVERY_S:
            return
        self._said = now
        from IPython.display import HTML, display

        shown = HTML(f"<code>seqto: {html.escape(plain(line))}</code>")
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)

"""A summary for a pull request or an issue, in Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from seqto.report import portability, wording
from seqto.report.columns import Medium, Row, columns
from seqto.report.fleet_table import fleet_table
from seqto.report.terminal import caption, pick_lines, shown_trials
from seqto.report.terminal_diagnosis import markdown_steps
from seqto.text import plain
from seqto.text import shorten as shortened

NO_PICTURE = "none"

# what Markdown, GitHub's HTML, a mention, a reference to an issue or a bare link could act on;
# signs that only act at the start of a line ("-", "+", "1.") stand within one here
# an underscore between letters or digits is one in GitHub's Markdown
_ACTIVE = re.compile(
    r"([\\`*{}\[\]|~$^@#<>&]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.)", re.IGNORECASE
)
MOST_WARNINGS = 6
MOST_NAMES = 8  # of layers kept float


def escape(text: object, *, width: int = 80) -> str:
    """Return a stranger's text as Markdown shows it literally, on one line.

    Numeric references instead of backslashes: they hold inside tables, where `\\|` differs from
    renderer to renderer, and leave neither links nor mentions behind.
    """
    short = shortened(text, width)
    return _ACTIVE.sub(lambda match: f"&#{ord(match[1])};", short)


def summary(report: Mapping[str, Any], *, folder: str = "DIR", picture: str | None = None) -> str:
    """Return the text for a reviewer: the sentence, the table, the warnings, the command.

    `picture` is the address of the front's picture; None: the file in the run folder, "none": no
    picture. It fits a comment: under 60 lines, whatever the run.
    """
    lines = [f"### seqto: {escape(wording.model_name(report))}", ""]
    lines += [f"**{_sentence(wording.recommendation(report))}**", ""]
    address = f"{folder}/plots/front.svg" if picture is None else picture
    if address != NO_PICTURE and report["front"]:
        lines += [
            f"![The front: {escape(wording.changed(report))} against size](<{_link(address)}>)",
            "",
        ]
    lines += [*_table(report), "", f"<sub>{escape(caption(report), width=400)}</sub>", ""]
    if fleet := fleet_table(report):
        heads, *rows = [[escape(cell) for cell in row] for row in fleet]
        marks = [":--", *["--:"] * (len(heads) - 1)]
        lines += [*(f"| {' | '.join(cells)} |" for cells in (heads, marks, *rows)), ""]
    lines += [f"- **{name}**: {escape(line, width=400)}" for name, line in pick_lines(report)]
    lines += [
        f"- {escape(names)}: {escape(line, width=400)}"
        for names, line in portability.pick_lines(report)
    ]
    if report["portability_cost"]:
        lines += [f"- {escape(report['portability_cost'], width=400)}"]
    shown_warnings = report["warnings"][:MOST_WARNINGS]
    lines += (
        ["", *(f"- ⚠️ {escape(warning, width=400)}" for warning in shown_warnings)]
        if shown_warnings
        else []
    )
    more = len(report["warnings"]) - len(shown_warnings)
    lines += [f"- ⚠️ and {more} more on the page"] if more else []
    if report["recommended"]:
        # a fence longer than any run of backticks inside cannot be closed by a folder's name
        command = wording.export_command(report, folder=folder)
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", command)), default=0))
        lines += ["", "To get the recommended model:", "", f"{fence}sh", command, fence]
    lines += ["", *_details(report)]
    return "\n".join(lines) + "\n"


def _link(address: str) -> str:
    """Return an address that cannot end its angle brackets or its line."""
    return "".join(f"%{ord(c):02X}" if c in "<>\\\r\n\t " else c for c in plain(address))


def _sentence(text: str) -> str:
    return text.replace("*", "&#42;").replace("<", "&lt;")


def _table(report: Mapping[str, Any]) -> list[str]:
    shown = columns(report, Medium.MARKDOWN)
    heads = ["model", *(column.title_in(Medium.MARKDOWN) for column in shown)]
    table = [heads, [":--", *["--:"] * len(shown)]]
    best = wording.recommended_trial(report)
    for title, trial in [("float", None), *shown_trials(report)]:
        row = Row(report, trial)
        cells = [title, *(column.text_in(Medium.MARKDOWN, row) for column in shown)]
        if trial is not None and best is not None and trial["number"] == best["number"]:
            cells = [f"**{cell}**" for cell in cells]
        table.append(cells)
    return [f"| {' | '.join(cells)} |" for cells in table]


def _details(report: Mapping[str, Any]) -> list[str]:
    trial = wording.recommended_trial(report)
    counts = report["counts"]
    lines = ["<details><summary>More</summary>", ""]
    lines += [f"- {counts['trials']} trials, {counts['failed']} failed, status {report['status']}"]
    lines += [f"- {len(report['front'])} trials on the front: {_numbers(report['front'])}"]
    if trial is not None and trial["excluded"]:
        names = ", ".join(escape(name, width=60) for name in trial["excluded"][:MOST_NAMES])
        others = len(trial["excluded"]) - MOST_NAMES
        more = f" and {others} more" if others > 0 else ""
        lines += [f"- kept float in trial {trial['number']}: {names}{more}"]
    lines += ["", *markdown_steps(report["diagnosis"]), ""] if report["diagnosis"] else []
    products = wording.int8_products(report)
    lines += [f"- {escape(products, width=160)}"] if products else []
    environment = report["environment"]
    for key in ("seqto", "onnxruntime", "cpu"):
        if environment.get(key):
            lines += [f"- {key} {escape(environment[key])}"]
    return [*lines, "", "</details>"]


def _numbers(front: list[int]) -> str:
    shown = ", ".join(map(str, front[:30]))
    return shown + (" …" if len(front) > 30 else "") if front else "–"

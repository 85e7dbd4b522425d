from __future__ import annotations

import io

import pytest
from rich.console import Console, RenderableType
from synthetic import EVIL_NAMES, build_report, journal

from seqto.report import terminal


def printed(thing: RenderableType, *, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(thing)
    return out.getvalue()


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"latency": False, "labels": False},
        {"layers": 200, "trials": 220, "strategy": "frontier"},
        {"names": EVIL_NAMES, "name": EVIL_NAMES[0] * 9},
    ],
)
def test_everything_fits_eighty_columns(variant: dict[str, object]) -> None:
    report = build_report(journal(**variant))  # type: ignore[arg-type]
    for thing in (
        terminal.summary(report, folder="run"),
        terminal.layers_table(report),
        terminal.runs_table([("a" * 60, report)]),
    ):
        text = printed(thing)
        assert max(map(len, text.splitlines())) <= 80
    # nothing is cut off: a wide window shows no other words
    narrow, wide = (printed(terminal.summary_table(report), width=w) for w in (80, 300))
    words = [{w for w in t.split("\n", 1)[1].split() if "─" not in w} for t in (narrow, wide)]
    assert words[0] == words[1]


def test_figures_of_the_recommended_trial_are_in_the_table() -> None:
    report = build_report(journal())
    text = printed(terminal.summary_table(report))
    line = next(row for row in text.splitlines() if "balanced" in row)
    assert f" {report['recommended']['balanced']} " in line
    assert "float" in text
    assert "fully quantized" in text


@pytest.mark.parametrize("end", [0, 1, 2, 3, 6, 7, 9])
def test_a_run_that_has_just_begun_can_be_shown(end: int) -> None:
    report = build_report(journal()[:end])
    assert printed(terminal.summary(report, folder="run")).strip()
    assert printed(terminal.layers_table(report))


def test_names_cannot_steer_the_terminal_or_rich() -> None:
    report = build_report(journal(names=EVIL_NAMES, name=EVIL_NAMES[13]))
    text = printed(terminal.layers_table(report)) + printed(terminal.summary(report, folder="\x1b"))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    assert "[bold red]" in text  # shown, not obeyed


def test_the_front_is_drawn_within_its_width() -> None:
    report = build_report(journal())
    for width in (40, 78, 120):
        lines = terminal.front_chart(report, width, height=9).splitlines()
        assert len(lines) == 12
        assert max(map(len, lines)) <= width
    assert "◆" in terminal.front_chart(report)
    assert terminal.front_chart(report, 78, ascii_only=True).isascii()


def test_the_balanced_trial_is_drawn_where_it_belongs() -> None:
    report = build_report(journal(latency=False, trials=8, failures=0))
    rows = [t for t in report["trials"] if t["loss"]]
    chart = terminal.front_chart(report, 78, height=10).splitlines()[1:11]
    column = next(line.index("◆") for line in chart if "◆" in line)
    smallest, largest = (f(t["size_bytes"] for t in rows) for f in (min, max))
    best = next(t for t in rows if t["number"] == report["recommended"]["balanced"])
    edge = chart[0].index("│") + 1
    share = (best["size_bytes"] - smallest) / (largest - smallest)
    assert abs((column - edge) / (78 - edge - 1) - share) < 0.03


def test_too_little_to_draw_is_an_empty_text() -> None:
    assert terminal.front_chart(build_report([])) == ""


def test_no_colour_when_it_is_no_terminal() -> None:
    assert "\x1b[" not in printed(terminal.summary_table(build_report(journal())))


def test_the_summary_names_the_page_the_causes_and_the_columns() -> None:
    report = {**build_report(journal()), "diagnosis": None}
    text = printed(terminal.summary(report, folder="runs/net"))
    assert "runs/net/report.html" in text
    assert "output comes from" not in text
    steps = [("kernels", 0.7), ("activations", 0.295), ("weights", 0.005)]
    report["diagnosis"] = {
        "steps": [{"label": label, "share": share, "cure": "s7"} for label, share in steps]
    }
    text = " ".join(printed(terminal.summary(report, folder="runs/net")).split())
    said = "output comes from kernels 70 % (cure: s7), activations 30 % (cure: s7)."
    assert said in text


def test_the_caption_explains_the_columns_that_the_table_has() -> None:
    report = build_report(journal())
    assert terminal.caption(report).startswith("held-out: answers unlike float's, on ")
    for trial in report["trials"]:
        trial["report_split"] = None
    assert terminal.caption(report).startswith("changed: answers unlike float's, on the ")


def test_sizes_of_the_drawn_front_have_the_units_of_the_table() -> None:
    report = build_report(journal())
    for trial in report["trials"]:
        trial["size_bytes"] = 150_000 + trial["number"]
    assert "150.0 kB" in terminal.front_chart(report, 78)


def test_the_table_of_layers_cuts_no_heading_and_has_no_empty_column() -> None:
    report = build_report(journal())
    for row in report["model"]["layers"]:
        row.update(op_type="GlobalAveragePool", parameters=123_456_789, name="/a" * 40)
    lines = printed(terminal.layers_table(report)).splitlines()
    assert lines[0].split() == [
        "rank",
        "layer",
        "op",
        "weights",
        "qdq",
        "xmodel",
        "error",
        "damage",
    ]
    assert max(map(len, lines)) <= 80
    for row in report["model"]["layers"]:
        row["damage"] = None
    assert "damage" not in printed(terminal.layers_table(report))

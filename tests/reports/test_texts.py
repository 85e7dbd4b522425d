"""Markdown, CSV, comparison and the sentences they share."""

from __future__ import annotations

import copy
import csv
import io

import pytest
from rich.console import Console
from synthetic import EVIL_NAMES, build_report, journal

from seqto.errors import ConfigError
from seqto.report import compare, csv_file, html_page, markdown, terminal, warnings, wording
from seqto.text import shorten


def test_the_recommendation_is_one_sentence_with_its_numbers() -> None:
    events = journal()
    report = build_report(events)
    text = wording.recommendation(report)
    assert " × smaller, " in text
    assert " × faster, " in text
    assert " % of answers change, 95 % between " in text
    assert text.endswith(".")
    assert f"trial {report['recommended']['balanced']} keeps" in text


def test_held_out_figures_are_quoted_where_they_exist() -> None:
    report = build_report(journal())
    trial = wording.recommended_trial(report)
    assert trial is not None
    trial["report_split"] = {
        "loss": {"value": 0.25, "low": 0.2, "high": 0.3, "samples": 400},
        "accuracy": 0.5,
        "baseline_accuracy": 0.75,
        "top_k_loss": None,
        "kendall_tau": None,
    }
    text = wording.recommendation(report)
    assert "25.0 % of answers change, 95 % between 20.0 and 30.0 %" in text
    assert "400 samples that no search has seen" in text
    assert "accuracy 75.0 % → 50.0 %" in text


def test_every_report_says_whether_int8_products_are_exact() -> None:
    report = build_report(journal())
    line = "the device adds int8 products in 16 bits, which saturate (Conv)"
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(terminal.summary(report, folder="run"))
    assert line.capitalize().replace("conv", "Conv") in console.export_text()
    assert markdown.escape(line) in markdown.summary(report)
    assert html_page.page_data(report, folder="run")["int8_products"] == line
    earlier = build_report([e for e in journal() if e["event"] != "int8_products"])
    assert earlier["int8_products"] is None
    assert "int8 products" not in markdown.summary(earlier)


def test_slower_and_larger_are_not_called_gains() -> None:
    report = build_report(journal(slow=True))
    trial = wording.trial_of(report, report["fully_quantized"])
    assert trial is not None
    assert any("slower" in gain for gain in wording.gains(report, trial))
    heavy = {**trial, "size_bytes": 10 * report["baseline"]["size_bytes"], "latency_ms": None}
    assert wording.gains(report, heavy) == ["10.0 × larger"]


def test_without_a_trial_the_sentence_says_so() -> None:
    assert "yet" in wording.recommendation(build_report(journal()[:3]))
    out_of_time = {**build_report(journal()[:3]), "status": "budget"}
    assert "--max-minutes gives it more time" in wording.recommendation(out_of_time)
    of_trials = ("trial", "latency", "measurement")
    failed = [e for e in journal(trials=3, failures=2) if e["event"] not in of_trials]
    bad = [
        e for e in journal(trials=3, failures=2) if e["event"] == "trial" and e["trial"]["error"]
    ]
    report = build_report([*bad, *failed])
    assert wording.recommendation(report).startswith("All 2 trials failed")


def test_export_command_is_safe_to_paste() -> None:
    report = build_report(journal(name="x; rm -rf ~"))
    command = wording.export_command(report, folder="my runs; reboot")
    assert command == "seqto export 'my runs; reboot' --pick balanced -o x--rm--rf-balanced.onnx"


def test_shorten_keeps_both_ends() -> None:
    assert shorten("abcdefghij", 5) == "ab…ij"
    assert shorten("abc", 5) == "abc"
    assert all(len(shorten("x" * 50, n)) == n for n in range(50))


def tables(text: str) -> list[list[str]]:
    """Return the tables of a Markdown text; all rows of a table have as many cells."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    whole = [table for table in found if table]
    assert all(len({line.count("|") for line in table}) == 1 for table in whole)
    return whole


def test_markdown_has_sentence_table_and_command() -> None:
    report = build_report(journal())
    text = markdown.summary(report, folder="runs/a")
    assert wording.recommendation(report) in text
    assert wording.export_command(report, folder="runs/a") in text
    table = tables(text)[0]
    assert any("**balanced" in line for line in table)


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_markdown_shows_names_and_does_not_obey_them(name: str) -> None:
    report = build_report(journal(names=EVIL_NAMES, name=name, layers=20))
    text = markdown.summary(report, folder="runs/a")
    for bad in ("<script", "<img", "<svg", "](javascript", "\x1b", "\u202e", "<!--"):
        assert bad not in text
    assert text.splitlines()[0].startswith("### seqto: ")
    assert tables(text)


def test_markdown_of_an_empty_run_is_still_markdown() -> None:
    assert markdown.summary(build_report([]))
    assert "export" not in markdown.summary(build_report(journal()[:3]))


def test_front_csv_lists_the_front_in_order_of_size() -> None:
    report = build_report(journal())
    rows = list(csv.DictReader(io.StringIO(csv_file.front_csv(report))))
    assert sorted(int(row["trial"]) for row in rows) == report["front"]
    sizes = [int(row["size_bytes"]) for row in rows]
    assert sizes == sorted(sizes)
    best = next(r for r in rows if "balanced" in r["recommended"].split())
    assert int(best["trial"]) == report["recommended"]["balanced"]


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_no_cell_of_the_csv_is_a_formula(name: str) -> None:
    events = copy.deepcopy(journal())
    for event in events:
        if event["event"] == "trial":
            event["trial"]["note"] = name
    rows = list(csv.reader(io.StringIO(csv_file.front_csv(build_report(events)))))
    assert len({len(row) for row in rows}) == 1
    for row in rows[1:]:
        note = row[rows[0].index("note")]
        assert not note.lstrip().startswith(("=", "+", "-", "@", "|", "%"))
        assert "\n" not in note
        assert "\r" not in note


def test_a_run_is_not_worse_than_itself() -> None:
    report = build_report(journal())
    result = compare.compare(report, report, margin=0.0)
    assert result["verdict"] == "ok"
    assert result["worse"] == []
    assert len(result["same_plans"]) == sum(t["loss"] is not None for t in report["trials"])


@pytest.mark.parametrize(("what", "grow"), [("size", 1.05), ("latency", 1.05), ("loss", 0.05)])
def test_what_got_worse_by_more_than_the_margin_is_named(what: str, grow: float) -> None:
    before = build_report(journal())
    after = copy.deepcopy(before)
    trial = wording.recommended_trial(after)
    assert trial is not None
    figures = trial["objectives"]
    if trial["report_split"] is not None:
        trial["report_split"] = None  # else both splits would have to change
    figures[what] = figures[what] + grow if what == "loss" else figures[what] * grow
    assert compare.compare(before, after, margin=0.06)["verdict"] == "ok"
    result = compare.compare(before, after, margin=0.04)
    assert result["worse"] == [what]
    assert compare.compare(after, before, margin=0.0)["verdict"] == "ok"
    assert what in compare.verdict_sentence(result)


def test_losing_the_recommendation_is_worse() -> None:
    before = build_report(journal())
    after = build_report(journal()[:3])
    assert compare.compare(before, after, margin=1.0)["worse"] == ["recommendation"]
    assert compare.compare(after, after, margin=1.0)["verdict"] == "nothing to compare"
    assert compare.compare(after, before, margin=0.0)["verdict"] == "nothing to compare"


def test_different_models_or_data_are_noted() -> None:
    before = build_report(journal())
    after = copy.deepcopy(before)
    after["model"]["sha256"] = "00"
    after["data"]["identity"] = {}
    sentence = compare.verdict_sentence(compare.compare(before, after, margin=0.1))
    assert "different model files" in sentence
    assert "different data" in sentence


def test_a_margin_in_per_cent_is_refused() -> None:
    report = build_report(journal())
    with pytest.raises(ConfigError, match=r"0\.02"):
        compare.compare(report, report, margin=-1)


def test_the_comparison_fits_eighty_columns() -> None:
    report = build_report(journal())
    out = io.StringIO()
    Console(file=out, width=80).print(
        compare.compare_table(compare.compare(report, report, margin=0.01))
    )
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "…" not in out.getvalue()


def test_only_what_markdown_reads_is_escaped() -> None:
    assert (
        markdown.escape("cpu x86_64, fashion-mobilenet 1.8") == "cpu x86_64, fashion-mobilenet 1.8"
    )
    assert markdown.escape("_a_ b_ __c") == "&#95;a&#95; b&#95; &#95;&#95;c"


def test_a_comment_has_fewer_than_60_lines_whatever_the_run() -> None:
    report = build_report(journal(layers=500, trials=200, strategy="frontier", failures=9))
    report["warnings"] = [f"warning {i}" for i in range(40)]
    text = markdown.summary(report, folder="runs/x")
    assert len(text.splitlines()) < 60
    assert "and 34 more on the page" in text


def test_the_picture_is_a_link_that_can_be_chosen() -> None:
    report = build_report(journal(trials=6))
    assert "](<runs/x/plots/front.svg>)" in markdown.summary(report, folder="runs/x")
    chosen = markdown.summary(report, picture="https://example.org/a b>.svg")
    assert "](<https://example.org/a%20b%3E.svg>)" in chosen
    assert "![" not in markdown.summary(report, picture="none")


def test_the_comparison_shows_plans_of_both_runs_only_where_their_figures_differ() -> None:
    before, after = build_report(journal()), build_report(journal())
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(compare.compare_table(compare.compare(before, after, margin=0.01)))
    same = " ".join(console.export_text().split())
    assert "loss: on held-out samples" in same
    assert "with the same losses and sizes" in same
    assert "trials " not in same
    (trial,) = [t for t in after["trials"] if t["number"] == 1]
    trial["objectives"]["size"] *= 2
    console.print(compare.compare_table(compare.compare(before, after, margin=0.01)))
    assert "trials 1, 1" in " ".join(console.export_text().split())


def test_a_small_loss_and_its_interval_have_the_same_digits() -> None:
    assert (
        wording.interval({"value": 0.0008, "low": 0.0004, "high": 0.0012}) == "0.08 % (0.04–0.12)"
    )


def test_a_run_without_a_trial_within_the_tolerated_loss_warns() -> None:
    report = build_report(journal(strategy="frontier"))
    assert not any("tolerated loss" in w for w in warnings.warnings(report))
    for trial in report["trials"]:
        if trial["loss"] is not None:
            trial["loss"] = {**trial["loss"], "value": 0.442}
    (said,) = [w for w in warnings.warnings(report) if "tolerated loss" in w]
    assert "tolerated loss of 2.5 % changed answers" in said
    assert "44.2 % in search" in said


def test_the_bound_that_costs_most_is_named_once() -> None:
    report = build_report(journal(strategy="frontier"))
    report["settings"]["search"].update(max_loss=0.001, max_size=100_000)
    bounds = [{"setting": "max_loss", "limit": 0.001}, {"setting": "max_size", "limit": 1e5}]
    report["goal"] = {
        "met": False,
        "nearest": 1,
        "bounds": bounds,
        "misses": [{"setting": "max_size", "value": 283_000.0}],
        "opened_by": ["max_size"],
        "costliest": "max_size",
    }
    said = wording.goal_sentence(report)
    assert said.endswith("Without --max-size some trial would do.")
    report["goal"]["opened_by"] = []
    assert wording.goal_sentence(report).endswith("--max-size costs most.")


@pytest.mark.parametrize(
    ("drop", "share", "said"),
    [([0.056, 0.085], True, True), ([0.01, 0.085], True, False), ([0.3, 0.9], False, False)],
)
def test_a_pick_that_surely_scores_worse_is_named(
    drop: list[float], share: bool, said: bool
) -> None:
    report = build_report(journal())
    trial = wording.recommended_trial(report)
    assert trial is not None
    trial["labelled"] = {
        "samples": 38,
        "scores": {"mAP": 0.318},
        "baseline_scores": {"mAP": 0.386},
        "score_drops": {"mAP": drop},
        "score_kinds": {"mAP": {"lower_is_better": False, "share": share}},
    }
    sentences = [w for w in warnings.warnings(report) if "scores worse than float" in w]
    assert bool(sentences) == said
    if said:
        assert f"trial {trial['number']}" in sentences[0]
        assert "mAP 38.6 → 31.8 %" in sentences[0]

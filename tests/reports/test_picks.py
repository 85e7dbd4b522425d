"""The picks as people read them."""

from __future__ import annotations

from synthetic import build_report, journal

from seqto import text
from seqto.report.picks import MOST, figures_text, pick_rows, question


def test_at_most_four_picks_are_shown_and_no_trial_twice() -> None:
    report = build_report(journal(strategy="frontier"))
    rows = report["picks"]
    assert sum(row["shown"] for row in rows) == min(MOST, len(rows))
    assert len({row["trial"] for row in rows}) == len(rows)
    assert {p: r["trial"] for r in rows for p in r["picks"]} == report["recommended"]
    assert rows[0]["picks"][0] == "balanced"


def test_every_shown_pick_says_its_question_and_its_price() -> None:
    report = build_report(journal(strategy="frontier"))
    for row in report["picks"]:
        assert row["question"]
        said = row["given_up"]
        assert " for " in said or "neither" in said or "not certain" in said


def test_the_price_is_told_against_the_pick_that_loses_a_little_less() -> None:
    report = build_report(journal(strategy="frontier", failures=0))
    for trial, loss, size in ((1, 0.002, 300_000), (2, 0.008, 200_000), (3, 0.02, 100_000)):
        row = report["trials"][trial]
        row.update(size_bytes=size, report_split=None, latency_ms=None)
        row["loss"] = {**row["loss"], "value": loss}
    report["recommended"] = {"balanced": 2, "drop_in": 1, "small": 3}
    said = {row["picks"][0]: row["given_up"] for row in pick_rows(report)}
    assert said["balanced"] == "0.6 points more changed answers than drop-in for 100.0 kB less"
    assert said["small"] == "1.2 points more changed answers than balanced for 100.0 kB less"
    assert said["drop_in"].startswith("0.2 % changed answers for ")


def test_the_question_uses_the_tasks_own_word() -> None:
    report = build_report(journal())
    report["output"] = {"changed": "boxes"}
    assert question(report, "drop_in").endswith("fewest changed boxes")
    report["output"] = {"changed": "relative error"}
    assert question(report, "drop_in").endswith("lowest relative error")


def test_the_portable_pick_is_not_shown_beside_one_that_is_portable_and_no_worse() -> None:
    report = build_report(journal(strategy="frontier", failures=0))
    for number, loss, size in ((1, 0.002, 300_000), (2, 0.001, 200_000), (3, 0.02, 100_000)):
        row = report["trials"][number]
        row.update(size_bytes=size, report_split=None, latency_ms=None, may_saturate=[])
        row["loss"] = {**row["loss"], "value": loss}
    report["recommended"] = {"balanced": 3, "portable": 1, "drop_in": 2}

    def shown() -> dict[str, bool]:
        return {row["picks"][0]: row["shown"] for row in pick_rows(report)}

    assert shown() == {"balanced": True, "portable": False, "drop_in": True}
    report["trials"][2]["may_saturate"] = ["layer"]
    assert shown()["portable"]


def test_a_trial_of_several_names_is_not_first_called_portable() -> None:
    report = build_report(journal(strategy="frontier"))
    report["recommended"] = {"balanced": 1, "portable": 2, "drop_in": 2}
    row = pick_rows(report)[1]
    assert row["picks"] == ["drop_in", "portable"]
    assert row["question"].startswith("as small as int8")


def test_the_figures_of_a_pick_are_held_out_ones_where_there_are_some() -> None:
    report = build_report(journal(strategy="frontier", failures=0))
    trial = next(t for t in report["trials"] if t["report_split"] is not None)
    said = figures_text(trial)
    assert said.split(", ")[0] == text.size(trial["size_bytes"])
    assert f"{text.percent(trial['report_split']['loss']['value'])} (" in said
    assert "held-out" in said
    assert "in search" in figures_text({**trial, "report_split": None})


def test_a_pick_beyond_the_tolerated_loss_is_not_said_to_be_within_it() -> None:
    report = build_report(journal(strategy="frontier", failures=0))
    trial = dict(report["trials"][1])
    trial["loss"] = {**trial["loss"], "value": 0.442}
    assert "though not within 2.5 %" in question(report, "balanced", trial)
    trial["loss"] = {**trial["loss"], "value": 0.02}
    trial["report_split"] = {"loss": {**trial["loss"], "value": 0.031}}
    assert question(report, "small", trial).endswith("in search (3.1 % held-out)")
    trial["report_split"] = None
    assert question(report, "small", trial).endswith("within 2.5 % changed answers")


def test_losses_that_differ_by_less_than_is_shown_are_nearly_the_same() -> None:
    report = build_report(journal(strategy="frontier", failures=0))
    for number, loss in ((1, 0.0110), (2, 0.0112)):
        row = report["trials"][number]
        row.update(size_bytes=300_000 - number, report_split=None, latency_ms=None)
        row["loss"] = {**row["loss"], "value": loss}
    report["recommended"] = {"balanced": 2, "drop_in": 1}
    said = {row["picks"][0]: row["given_up"] for row in pick_rows(report)}
    assert said["balanced"].startswith("nearly the same changed answers as drop-in for ")


def test_what_cannot_be_counted_is_least_and_not_fewest() -> None:
    report = build_report(journal())
    report["output"] = {"changed": "mask area"}
    assert question(report, "drop_in").endswith("least changed mask area")

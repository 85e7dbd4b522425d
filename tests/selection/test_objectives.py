"""The table of objectives: one row is enough for a new one."""

from __future__ import annotations

import csv
import io
import json

import pytest
import rich.console

from seqto.assembly.plan import Plan
from seqto.record.events import BaselineMeasured, RunEnded, RunStarted, TrialFinished, TrialTimed
from seqto.record.replay import RunState, replay
from seqto.record.trial import Trial
from seqto.records import (
    EVALUATION,
    Failure,
    Latency,
    Layer,
    Loss,
    Measurement,
    ScoreKind,
)
from seqto.report import compare, csv_file, html_page, markdown, plots, terminal, wording
from seqto.report.view import build_report
from seqto.selection.objectives import (
    OBJECTIVES,
    Format,
    Need,
    Objective,
    can_race,
    figure_of,
    figures_of_float,
    need_timing,
    of_latency,
)

ENERGY = Objective(
    "energy_mj",
    "energy",
    "least energy",
    of_latency(lambda latency: latency.extra.get("energy_mj")),
    Format.NUMBER,
    needs=frozenset({Need.TIMING}),
)


def timed(ratio: float, energy: float) -> Latency:
    """Return what a device with a power meter measures."""
    more = {"peak_memory_bytes": 2_000_000, "load_ms": 12.5, "extra": {"energy_mj": energy}}
    return Latency(ratio, ratio, ratio, ratio, ratio, 10, **more)  # type: ignore[arg-type]


def run(*objectives: str) -> RunState:
    layers = tuple(Layer(n, "Conv", (n,), ("x",), n, 9, weight="w") for n in ("a", "b", "c"))
    settings = {"search": {"objectives": list(objectives), "strategy": "frontier"}}
    events = [
        RunStarted(2, {"sha256": "0", "name": "net"}, {}, settings, {}, {}, layers),
        BaselineMeasured(400, {EVALUATION: 0.8}, timed(1.0, 9.0)),
    ]
    # (loss, bytes, ratio, millijoules): the last is beaten in all but energy
    figures = [(0.1, 100, 0.5, 8.0), (0.0, 200, 0.6, 7.0), (0.2, 300, 0.7, 1.5)]
    for number, (loss, size, ratio, energy) in enumerate(figures):
        counted = Loss(loss, loss, loss, 10)
        scores = {"accuracy": 0.8 - loss}
        measured = Measurement(EVALUATION, "fake", counted, scores=scores, damage=loss / 10)
        plan = Plan.of({layer.name: "static-s8-u8-channel" for layer in layers[number:]})
        trial = Trial(number, plan, size, measurements={EVALUATION: measured})
        events += [TrialFinished(trial), TrialTimed(number, timed(ratio, energy))]
    return replay([*events, RunEnded("done", 1.0)])


def test_a_new_objective_is_one_row_and_appears_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = build_report(run("loss", "size"))
    assert 2 not in plain["front"]
    monkeypatch.setitem(OBJECTIVES, "energy_mj", ENERGY)
    report = build_report(run("loss", "size", "energy_mj"))
    assert report["objectives"] == report["ranked_by"] == ["loss", "size", "energy_mj"]
    assert 2 in report["front"], "nothing needs less energy"
    assert report["recommended"]["energy_mj"] == 2
    rows = list(csv.DictReader(io.StringIO(csv_file.front_csv(report))))
    assert {row["trial"]: row["energy_mj"] for row in rows}["2"] == "1.5"
    page = html_page.page_data(report, folder="run")
    assert {"name": "energy_mj", "title": "energy"} in page["columns"]
    assert page["trials"][2]["cells"]["energy_mj"] == [1.5, "1.5"]
    assert page["trials"][2]["objectives"]["energy_mj"] == 1.5
    assert page["baseline"]["objectives"]["energy_mj"] == 9.0
    assert [o["label"] for o in page["objective_table"]][-1] == "energy"
    assert page["pick_titles"]["energy_mj"] == "least energy"
    printed = shown(report)
    assert "energy" in printed
    assert "least energy" in printed
    assert "1.5" in printed
    assert "| energy |" in markdown.summary(report)
    compared = compare.compare(report, report, margin=0.0)
    assert compared["rows"][-1]["text_before"] == text_of(report)
    assert plots.draw(report, "objectives", kind="svg").count(b">energy<") == 1  # type: ignore[union-attr]


def text_of(report: dict[str, object]) -> str:
    number = report["recommended"]["balanced"]  # type: ignore[index]
    return ENERGY.text(report["trials"][number]["objectives"]["energy_mj"])  # type: ignore[index]


def shown(report: dict[str, object]) -> str:
    console = rich.console.Console(width=80, file=io.StringIO())
    console.print(terminal.summary_table(report))
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("peak_memory", 2_000_000, "2.00 MB"), ("load_time", 12.5, "12.5 ms")],
)
def test_memory_and_load_time_can_be_chosen(name: str, value: float, text: str) -> None:
    report = build_report(run("loss", name))
    assert report["ranked_by"] == ["loss", name]
    assert report["trials"][0]["objectives"][name] == value
    assert report["recommended"][name] == 1, "all are equal in it: the loss decides"
    assert text in shown(report)
    assert OBJECTIVES[name].text(value) == text


def test_every_objective_has_a_figure_of_a_complete_trial() -> None:
    state = run("loss")
    found = {name: figure_of(state.trials[0], name, state.baseline) for name in OBJECTIVES}
    assert found == {
        "loss": 0.1,
        "size": 100,
        "latency": 0.5,
        "accuracy_drop": pytest.approx(0.1),
        "peak_memory": 2_000_000,
        "load_time": 12.5,
    }
    assert state.baseline is not None
    assert figures_of_float(state.baseline) == {
        "loss": 0.0,
        "size": 400,
        "latency": 1.0,
        "accuracy_drop": 0.0,
        "peak_memory": 2_000_000,
        "load_time": 12.5,
    }


def test_a_failed_trial_has_no_figures() -> None:
    failed = Trial(0, Plan(), 100, error=Failure("run", "no"))
    assert {figure_of(failed, name, None) for name in OBJECTIVES} == {None}


def test_what_an_objective_needs_is_in_its_row() -> None:
    assert not need_timing(["loss", "size", "accuracy_drop"])
    assert need_timing(["loss", "latency"])
    assert need_timing(["peak_memory"])
    assert can_race(["loss", "size"])
    assert can_race(["loss", "latency"])
    assert not can_race(["loss", "accuracy_drop"])
    assert not can_race(["loss", "load_time"])
    assert not can_race(["loss", "nobody"])
    assert not can_race(["loss", "unheard of"])


def test_the_table_is_json_for_the_page() -> None:
    rows = [objective.to_json() for objective in OBJECTIVES.values()]
    assert json.loads(json.dumps(rows)) == rows
    assert [row["name"] for row in rows] == list(OBJECTIVES)


@pytest.mark.parametrize(
    ("name", "kind", "before", "after", "drop"),
    [
        ("accuracy", ScoreKind(), 0.8, 0.75, 0.05),
        ("CER", ScoreKind(lower_is_better=True), 0.10, 0.13, 0.03),
        ("perplexity", ScoreKind(lower_is_better=True, share=False), 20.0, 25.0, 0.25),
        ("perplexity", ScoreKind(lower_is_better=True, share=False), 20.0, 18.0, -0.1),
        ("R2", ScoreKind(share=False), 0.5, 0.4, 0.2),
        ("MAE", ScoreKind(lower_is_better=True, share=False), 0.0, 0.0, 0.0),
    ],
)
def test_a_drop_is_positive_where_the_score_is_worse(
    name: str, kind: ScoreKind, before: float, after: float, drop: float
) -> None:
    measured = Measurement(
        EVALUATION, "", Loss(0.0, 0.0, 0.0, 4), {name: after}, score_kinds={name: kind}
    )
    trial = Trial(0, Plan(), 9, measurements={EVALUATION: measured})
    baseline = BaselineMeasured(9, {}, scores={EVALUATION: {name: before}})
    assert figure_of(trial, "accuracy_drop", baseline) == pytest.approx(drop)
    assert figures_of_float(baseline)["accuracy_drop"] == 0


def test_an_error_that_float_does_not_make_has_no_relative_drop() -> None:
    kinds = {"MAE": ScoreKind(lower_is_better=True, share=False)}
    measured = Measurement(
        EVALUATION, "", Loss(0.0, 0.0, 0.0, 4), {"MAE": 0.1}, {"MAE": 0.0}, score_kinds=kinds
    )
    trial = Trial(0, Plan(), 9, measurements={EVALUATION: measured})
    assert figure_of(trial, "accuracy_drop", None) is None


def test_sentences_say_which_direction_is_better() -> None:
    kind = ScoreKind(lower_is_better=True, share=False)
    measured = {
        "scores": {"perplexity": 12.9, "mAP": 0.361},
        "baseline_scores": {"perplexity": 12.31, "mAP": 0.366},
        "score_kinds": {"perplexity": kind.to_json()},
        "score_drops": {"perplexity": [0.2, 0.9], "mAP": [-0.003, 0.012]},
    }
    assert wording.score_change(measured, "perplexity") == (
        "perplexity 12.31 → 12.9 (lower is better; paired interval +0.2 to +0.9)"
    )
    assert wording.score_change(measured, "mAP") == (
        "mAP 36.6 → 36.1 % (paired interval −1.2 to +0.3)"
    )

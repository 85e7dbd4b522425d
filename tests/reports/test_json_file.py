from __future__ import annotations

import copy
import json
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import EVIL_NAMES, Event, build_report, journal

from seqto.errors import JournalError
from seqto.report import wording
from seqto.report.json_file import write_report

SCHEMA = json.loads(
    (resources.files("seqto.report") / "assets" / "report.schema.json").read_text("utf-8")
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def check(report: object) -> None:
    # through text, as a reader of the file would meet it; NaN and infinity are not JSON
    VALIDATOR.validate(json.loads(json.dumps(report, allow_nan=False)))


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"latency": False},
        {"labels": False},
        {"kind": "random"},
        {"strategy": "frontier"},
        {"names": EVIL_NAMES, "name": EVIL_NAMES[1]},
        {"trials": 1, "failures": 0},
        {"slow": True, "reason": "budget"},
        {"reason": "interrupted"},
    ],
)
def test_reports_fit_the_schema(variant: dict[str, object]) -> None:
    check(build_report(journal(**variant)))  # type: ignore[arg-type]


def test_every_prefix_of_a_journal_gives_a_report() -> None:
    events = journal(layers=8, trials=10)
    for end in range(len(events) + 1):
        report = build_report(events[:end])
        check(report)
        assert report["status"] == ("done" if end == len(events) else "running")
        assert wording.recommendation(report)


def test_building_changes_no_event_and_gives_the_same_twice() -> None:
    events = journal()
    before = copy.deepcopy(events)
    first = build_report(events)
    first["trials"][0]["plan"].clear()
    first["model"]["layers"].clear()
    assert events == before
    assert build_report(events) == build_report(copy.deepcopy(before))


def test_per_sample_bits_stay_in_the_journal() -> None:
    events = journal()
    assert "agreement" in json.dumps(events)
    assert "agreement" not in json.dumps(build_report(events))


def test_the_front_is_what_nothing_beats() -> None:
    report = build_report(journal(strategy="frontier", trials=60))
    names = report["objectives"]
    assert names == ["loss", "size", "latency"]
    points = {}
    for trial in report["trials"]:
        figures = [trial["objectives"][n] for n in names]
        if None not in figures:
            points[trial["number"]] = figures

    def beaten(number: int) -> bool:
        mine = points[number]
        return any(
            all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine
            for other in points.values()
        )

    assert report["front"]
    assert not any(beaten(n) for n in report["front"])
    assert all(beaten(n) for n in points if n not in report["front"])
    assert {"balanced", *names} <= set(report["recommended"])
    assert set(report["recommended"]) <= {"balanced", *names, "small", "fast", "drop_in"}
    assert set(report["recommended"].values()) <= set(report["front"])


def test_trials_without_a_figure_are_not_on_the_front() -> None:
    events = journal(trials=12, failures=3)
    timed = [e for e in events if e["event"] == "latency"]
    untimed = timed[0]["number"]
    report = build_report([e for e in events if e is not timed[0]])
    failed = {t["number"] for t in report["trials"] if t["error"]}
    assert len(failed) == 3
    assert not failed & set(report["front"])
    assert untimed not in report["front"]


def test_an_objective_without_any_figure_does_not_empty_the_front() -> None:
    events = [e for e in journal() if e["event"] != "latency"]
    report = build_report(events)
    assert report["objectives"] == ["loss", "size", "latency"]
    assert report["ranked_by"] == ["loss", "size"]
    assert {"balanced", "loss", "size"} <= set(report["recommended"])
    assert "latency" not in report["recommended"]
    assert any("latency" in warning for warning in report["warnings"])


def test_a_trial_that_was_stopped_early_is_not_on_the_front() -> None:
    events = copy.deepcopy(journal(latency=False, failures=0))
    best = build_report(events)["recommended"]["balanced"]
    for event in events:
        if event["event"] == "trial" and event["trial"]["number"] == best:
            event["trial"]["measurements"]["evaluation"]["stopped_early"] = True
    report = build_report(events)
    assert best not in report["front"]
    assert report["counts"]["stopped_early"] == 1


def test_a_copy_has_the_figures_of_its_original_but_not_its_place() -> None:
    events = copy.deepcopy(journal(latency=False, failures=0))
    original = build_report(events)["recommended"]["balanced"]
    source = next(e for e in events if e["event"] == "trial" and e["trial"]["number"] == original)
    twin = copy.deepcopy(source)
    twin["trial"].update(number=999, same_as=original, measurements={})
    events.insert(-1, twin)
    report = build_report(events)
    copied = wording.trial_of(report, 999)
    assert copied is not None
    assert copied["loss"] == wording.trial_of(report, original)["loss"]  # type: ignore[index]
    assert 999 not in report["front"]
    assert report["recommended"]["balanced"] == original


def test_excluded_are_the_float_layers_that_could_be_quantized() -> None:
    events = journal(layers=5, trials=1, failures=0)
    names = [layer["name"] for layer in events[0]["layers"]]
    plan = {names[0]: "fp16", names[1]: "weight-s8-channel", names[2]: "static-u8-u8-channel"}
    trial = next(e for e in events if e["event"] == "trial")
    trial["trial"]["plan"]["schemes"] = plan
    # a layer that is neither ranked nor ever quantized is no candidate for exclusion
    analysis = next(e for e in events if e["event"] == "analysis")
    analysis["ranking"] = [r for r in analysis["ranking"] if r["layer"] != names[4]]
    report = build_report(events)
    assert report["trials"][0]["excluded"] == [names[0], names[3]]


def test_a_resumed_run_runs_again() -> None:
    events = journal(reason="interrupted")
    more = [e for e in events if e["event"] == "trial"][:1]
    assert build_report(events)["status"] == "interrupted"
    assert build_report(events + more)["status"] == "running"
    assert (
        build_report([*events, *more, {"event": "end", "reason": "done", "seconds": 1.0}])["status"]
        == "done"
    )


def test_later_figures_of_a_trial_win() -> None:
    events = journal()
    timed = next(e for e in events if e["event"] == "latency")
    again = copy.deepcopy(timed)
    again["latency"]["ratio"] = 0.123
    trial = wording.trial_of(build_report([*events, again]), timed["number"])
    assert trial is not None
    assert trial["latency_ms"]["ratio"] == 0.123


def test_infinite_figures_become_null() -> None:
    rows = build_report(journal())["model"]["layers"]
    assert sum(row["xmodel_sqnr_db"] is None for row in rows) == 1


def test_accuracy_drop_can_be_an_objective() -> None:
    events = journal()
    events[0]["settings"]["search"]["objectives"] = ["accuracy_drop", "size"]
    report = build_report(events)
    assert report["objectives"] == ["accuracy_drop", "size"]
    best = wording.trial_of(report, report["recommended"]["accuracy_drop"])
    assert best is not None
    assert best["accuracy"] == max(t["accuracy"] for t in report["trials"] if t["accuracy"])


def test_the_float_models_accuracy_may_come_with_a_measurement() -> None:
    events = journal()
    baseline = next(e for e in events if e["event"] == "baseline")
    baseline["accuracy"] = {"evaluation": 0.5}
    report = build_report(events)
    assert report["baseline"]["accuracy"] == 0.5
    assert report["baseline"]["report_split"]["accuracy"] == 0.755


def test_losing_more_on_unseen_samples_is_said_only_when_it_is_no_chance() -> None:
    events = copy.deepcopy(journal(latency=False))
    best = build_report(events)["recommended"]["balanced"]
    template = next(e for e in events if e["event"] == "measurement")
    for low, said in ((0.0, False), (0.9, True)):
        late = copy.deepcopy(template)
        late["number"] = best
        late["measurement"]["loss"].update(value=0.95, low=low, high=1.0)
        report = build_report([*events, late])
        assert any("trust the former" in w for w in report["warnings"]) is said


def test_slower_than_float_is_said_in_a_sentence() -> None:
    assert any("slower than float" in w for w in build_report(journal(slow=True))["warnings"])
    assert not any("slower" in w for w in build_report(journal())["warnings"])


def test_random_data_are_marked() -> None:
    report = build_report(journal(kind="random"))
    assert any("random numbers" in w for w in report["warnings"])
    assert "random inputs" in wording.recommendation(report)


def test_report_file_is_the_report_and_leaves_nothing_else(tmp_path: Path) -> None:
    report = build_report(journal())
    write_report(tmp_path, report)
    assert json.loads((tmp_path / "report.json").read_text("utf-8")) == report
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match=r"cannot write .*report\.json"):
        write_report(tmp_path / "file", build_report(journal()))


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False))
def test_order_of_late_figures_does_not_matter(random: object) -> None:
    events = journal(layers=6, trials=8)
    late = [e for e in events if e["event"] in ("latency", "measurement", "profile")]
    shuffled: list[Event] = list(late)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    rest = [e for e in events if e not in late]
    assert build_report(rest[:-1] + shuffled + rest[-1:]) == build_report(events)


def test_warnings_and_sentences_hold_no_control_signs() -> None:
    report = build_report(journal(names=EVIL_NAMES, name=EVIL_NAMES[13]))
    text = wording.recommendation(report) + wording.export_command(report, folder="a\x1bb")
    assert all(a.isprintable() for a, _ in pairwise(text))


def test_the_report_says_as_what_the_recommended_layers_ran() -> None:
    events = journal()
    report = build_report(events)
    assert report["placement"] is None
    number = report["recommended"]["balanced"]
    trial = next(t for t in report["trials"] if t["number"] == number)
    profile = {
        "event": "profile",
        "plan_key": trial["key"],
        "scheme": f"trial {number}",
        "layers_ms": {"a": 1.0, "b": 1.0, "c": 1.0},
        "placement": dict.fromkeys("abc", "CPUExecutionProvider"),
        "kernels": {"a": "Conv", "b": "QLinearConv", "c": "Conv"},
    }
    report = build_report([*events, profile])
    check(report)
    assert report["placement"] == {
        "trial": number,
        "providers": {"CPUExecutionProvider": ["a", "b", "c"]},
        "kernels": {"Conv": ["a", "c"], "QLinearConv": ["b"]},
    }
    assert report["profile"][-1]["kernels"] == profile["kernels"]
    del profile["kernels"]  # a journal of an earlier version
    check(build_report([*events, profile]))


def test_every_field_of_the_schema_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "report-schema.md").read_text("utf-8")
    layer, trial = SCHEMA["$defs"]["layer"], SCHEMA["$defs"]["trial"]
    for part in (SCHEMA, layer, trial):
        missing = [name for name in part["properties"] if f"`{name}`" not in page]
        assert missing == []


# ------------------------------------------------------------------- settings of the last call


def test_the_last_settings_decide_what_is_recommended() -> None:
    events = journal(strategy="frontier", trials=40)
    before = build_report(events)
    settings = copy.deepcopy(events[0]["settings"])
    settings["search"] |= {"objectives": ["loss", "size"], "tolerance": 1.0}
    changed = {"event": "settings", "settings": settings}
    report = build_report([*events, changed])
    check(report)
    assert report["objectives"] == ["loss", "size"] != before["objectives"]
    assert report["settings"] == settings
    assert report["status"] == "running", "another call is under way"
    assert report["recommended"]["small"] == report["recommended"]["size"]
    assert before["recommended"].get("small") != before["recommended"]["size"]


def test_what_was_not_offered_under_earlier_settings_is_not_said_any_more() -> None:
    events = journal(trials=3)
    remark = {"event": "finding", "kind": "menu", "message": "static is not offered: x"}
    changed = {"event": "settings", "settings": events[0]["settings"]}
    said = build_report([*events, remark])["findings"]
    assert any(f["kind"] == "menu" for f in said)
    left = build_report([*events, remark, changed])["findings"]
    assert [f for f in said if f["kind"] != "menu"] == left


def test_steps_that_failed_are_listed_and_said_in_one_line() -> None:
    message = "no kernel\x1b[31m\nfor it"
    failure = {"stage": "load", "message": message, "ops": ["Conv"], "layers": []}
    step = {"step": "timing", "number": 1, "plan_key": "ab", "failure": failure}
    report = build_report([*journal(trials=3), {"event": "failure", **step}])
    check(report)
    assert report["failures"] == [step]
    (line,) = [w for w in report["warnings"] if "Timing of trial 1 failed (load): no kernel" in w]
    assert "\n" not in line
    assert "\x1b" not in line


# ------------------------------------------------------------------------------ fully quantized


def tried(events: list[Event], number: int) -> Event:
    trial = next(e["trial"] for e in events if e["event"] == "trial" and _number(e) == number)
    return {"event": "tried", "choices_key": "c", "default_key": trial["key"], "refused": []}


def _number(event: Event) -> int:
    return int(event["trial"]["number"])


def test_fully_quantized_is_the_trial_of_the_default_plan() -> None:
    events = journal(trials=8, failures=0)
    assert build_report(events)["fully_quantized"] == 0
    report = build_report([events[0], tried(events, 3), *events[1:]])
    assert report["fully_quantized"] == 3


def test_without_a_fully_quantized_trial_the_float_models_bytes_are_the_limit() -> None:
    """The device refused trial 0: the next one without a float layer must not take its place."""
    events = copy.deepcopy(journal(strategy="frontier", trials=40, failures=0))
    events.insert(1, tried(events, 0))
    for event in events:
        if event["event"] == "trial" and _number(event) == 0:
            failure = {"stage": "load", "message": "no", "ops": [], "layers": []}
            event["trial"] |= {"error": failure, "measurements": {}, "latency": None}
    events = [e for e in events if e.get("number") != 0]
    report = build_report(events)
    check(report)
    assert report["fully_quantized"] is None
    assert {"small", "fast", "drop_in"} <= set(report["recommended"])
    by_number = {t["number"]: t for t in report["trials"]}
    limit = report["baseline"]["size_bytes"]
    assert by_number[report["recommended"]["drop_in"]]["size_bytes"] <= limit
    assert by_number[report["recommended"]["fast"]]["size_bytes"] <= 1.01 * limit


@pytest.mark.parametrize(
    "variant", [{}, {"trials": 1, "failures": 0}, {"names": EVIL_NAMES, "name": EVIL_NAMES[0]}]
)
def test_the_file_is_what_json_would_write_at_once(variant: dict[str, Any], tmp_path: Path) -> None:
    report = {**build_report(journal(**variant)), "surrogate": ["\udc80", {}, []], "empty": []}
    whole = json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    path = write_report(tmp_path, report)
    assert path.read_bytes() == whole.encode("utf-8", "backslashreplace")

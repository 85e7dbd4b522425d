"""The diagnosis as figures: steps that add up, one row a layer, counts of what was skipped."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from synthetic import EVIL_NAMES, build_report, journal

from seqto.assembly.plan import Plan
from seqto.diagnosis.finding import finding
from seqto.diagnosis.steps import ACTIVATIONS, RANGES, SENSITIVE, chain, steps_finding
from seqto.report import markdown
from seqto.report.diagnosis import build_diagnosis
from seqto.report.terminal_diagnosis import diagnosis_summary
from seqto.schemes.scheme import Scheme


def test_each_plan_of_the_chain_has_one_more_cure() -> None:
    plan = Plan.of({"a": "static-s8-u8-tensor", "b": "static-s8-u8-tensor", "add": "static-u8"})
    plans = chain(plan, ["b"])
    per_channel = plans[RANGES].as_dict()["a"]
    assert per_channel.per_channel
    assert "b" not in plans[SENSITIVE].as_dict()
    assert "add" in plans[SENSITIVE].as_dict()
    assert set(plans[ACTIVATIONS].as_dict()) == {"a"}  # weights alone, in float arithmetic
    assert plans[ACTIVATIONS].as_dict()["a"].kind == "weight"


def test_a_plan_that_is_cured_already_has_no_such_step() -> None:
    plan = Plan.of({"a": str(Scheme.parse("static-u8-s8-channel"))})
    assert RANGES not in chain(plan, [])
    assert chain(Plan.of({"a": "weight-s8-channel"}), []) == {}


@given(
    st.floats(0, 10),
    st.floats(0, 10),
    st.dictionaries(st.sampled_from(["ranges", "bias", "clipping"]), st.floats(0, 10)),
)
def test_what_the_steps_give_back_adds_up_to_the_whole(
    device: float, exact: float, after: dict[str, float]
) -> None:
    event = steps_finding(
        {"device": device, "exact": exact}, after, rows=[], damage={}, sensitive=[]
    )
    found = build_diagnosis([event])
    assert found is not None
    given_back = sum(s["before"] - s["after"] for s in found["steps"])
    assert given_back == pytest.approx(device, abs=1e-6)


def test_a_layer_is_one_row_with_all_its_causes_and_its_best_cure() -> None:
    rows = [{"layer": "a", "device_err": 0.3, "exact_err": 0.1}]
    events = [
        finding(
            "saturation",
            "it saturates",
            ["a"],
            {"layers": {"a": {"u8_device_err": 0.12, "s7_device_err": 0.2}}},
        ),
        finding("ranges", "ranges", ["a"], {"layers": {"a": {"channel_err": 0.04}}}),
        steps_finding(
            {"device": 1.0, "exact": 0.5}, {}, rows=rows, damage={"a": 0.2}, sensitive=[]
        ),
    ]
    found = build_diagnosis(events)
    assert found is not None
    (row,) = found["layers"]
    assert row["causes"] == ["saturation", "ranges"]
    assert (row["cure"], row["cured_err"]) == ("a scale a channel", 0.04)
    assert (row["device_err"], row["exact_err"], row["damage"]) == (0.3, 0.1, 0.2)


def test_the_layers_stand_worst_first_and_reasons_are_counted() -> None:
    found = build_report(journal())["diagnosis"]
    damages = [row["damage"] for row in found["layers"]]
    assert damages == sorted(damages, reverse=True)
    assert found["skipped"] == [
        {"what": "smooth-0.5", "reason": "Add mixes the scales of channels", "count": 4}
    ]


def test_without_a_diagnosis_there_is_none() -> None:
    assert build_report(journal()[:3])["diagnosis"] is None


@pytest.mark.parametrize("names", [(), EVIL_NAMES])
def test_it_fits_eighty_columns_and_a_comment(names: tuple[str, ...]) -> None:
    report = build_report(journal(names=names))
    out = io.StringIO()
    Console(file=out, width=80).print(diagnosis_summary(report["diagnosis"]))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert "\x1b" not in out.getvalue()
    assert "one scale for a whole weight" in markdown.summary(report)

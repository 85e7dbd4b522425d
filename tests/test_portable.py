"""Where a trial's answers hold, and searches for files that hold on every CPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import nets
import runs
from seqto import api
from seqto.assembly.plan import Plan
from seqto.errors import ConfigError
from seqto.record.events import RunStarted, TrialFinished
from seqto.record.replay import RunState, replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Latency, Layer, Loss, Measurement
from seqto.report import portability
from seqto.report.view import build_report
from seqto.schemes.scheme import Scheme
from seqto.search import choices
from seqto.selection.recommend import recommend

CODES = (
    "static-s8-u8-channel",
    "static-s8-u8-channel-bias-float",
    "static-u8-u8-channel",
    "weight-s8-channel",
)


def a_trial(number: int, loss: float, size: int, *, layers: tuple[str, ...] | None) -> Trial:
    return Trial(
        number,
        Plan.of({"layer": CODES[number]}),
        size,
        measurements={
            EVALUATION: Measurement(EVALUATION, "x", Loss(loss, loss, loss, 300), damage=loss)
        },
        latency=Latency(1.0, 1.0, 0.5, 0.5, 0.5, 10),
        may_saturate=layers,
    )


TRIALS = (
    a_trial(0, 0.10, 100, layers=("a", "b")),
    a_trial(1, 0.0, 110, layers=("a",)),
    a_trial(2, 0.01, 150, layers=()),
    a_trial(3, 0.02, 300, layers=()),
)


def state_of(*trials: Trial, portable: bool = False) -> RunState:
    header = RunStarted(
        schema=2,
        model={"sha256": "0", "name": "net"},
        data={},
        settings={
            "search": {"objectives": ["loss", "size"], "tolerance": 0.025},
            "constraints": {"portable": portable},
        },
        environment={},
        device={},
        layers=(),
    )
    return replay([header, *map(TrialFinished, trials)])


def test_one_of_the_picks_is_always_portable() -> None:
    found = recommend(state_of(*TRIALS))
    assert found.best == 1
    assert found.picks["portable"] == 2
    report = build_report(state_of(*TRIALS))
    (row,) = [r for r in report["picks"] if "portable" in r["picks"]]
    assert row["shown"]
    assert row["holds"] == "same answers on AVX2, VNNI and ARM kernels"
    assert report["portability_cost"] == (
        "portable beside balanced: 1.0 % changed answers instead of 0.0 %, "
        "0.1 kB instead of 0.1 kB, no certain difference in time"
    )


def test_a_recommended_trial_that_is_portable_is_the_portable_one() -> None:
    as_small = dataclasses.replace(TRIALS[1], size_bytes=100)
    portable = [dataclasses.replace(t, may_saturate=()) for t in (TRIALS[0], as_small, *TRIALS[2:])]
    found = recommend(state_of(*portable))
    assert found.picks["portable"] == found.best == 1
    assert build_report(state_of(*portable))["portability_cost"] == ""


def test_a_portable_trial_as_small_as_int8_goes_before_a_larger_recommended_one() -> None:
    larger, as_small = a_trial(2, 0.0, 115, layers=()), a_trial(3, 0.012, 99, layers=())
    timed = dataclasses.replace(as_small, latency=Latency(1.0, 1.0, 0.9, 0.9, 0.9, 10))
    state = state_of(TRIALS[0], larger, timed, a_trial(1, 0.2, 50, layers=()))
    found = recommend(state)
    assert found.best == larger.number
    assert found.picks["portable"] == timed.number
    # without one the recommended trial is it
    assert recommend(state_of(TRIALS[0], larger)).picks["portable"] == larger.number


def test_the_portable_pick_is_no_larger_than_int8_where_such_a_trial_is_within_the_tolerance() -> (
    None
):
    larger, as_small = a_trial(2, 0.001, 115, layers=()), a_trial(3, 0.02, 99, layers=())
    found = recommend(state_of(*TRIALS[:2], larger, as_small))
    assert found.picks["portable"] == as_small.number
    lossy = a_trial(3, 0.03, 99, layers=())
    found = recommend(state_of(*TRIALS[:2], larger, lossy))
    assert found.picks["portable"] == larger.number


def test_runs_of_earlier_versions_have_no_portable_pick() -> None:
    unknown = [dataclasses.replace(t, may_saturate=None) for t in TRIALS]
    assert "portable" not in recommend(state_of(*unknown)).picks
    assert all(row["holds"] == "" for row in build_report(state_of(*unknown))["picks"])


def test_where_portability_is_asked_for_nothing_else_is_recommended() -> None:
    found = recommend(state_of(*TRIALS, portable=True))
    assert set(found.front) == {2, 3} & set(found.front) == {2}
    assert set(found.picks.values()) == {2}
    assert found.unconstrained == 1
    cost = build_report(state_of(*TRIALS, portable=True))["portability_cost"]
    assert cost.startswith("portable beside trial 1, the best that may saturate elsewhere:")


def test_a_trial_and_what_may_saturate_in_it_survive_the_journal() -> None:
    for trial in TRIALS:
        assert Trial.from_json(trial.to_json()) == trial
    old = {k: v for k, v in TRIALS[0].to_json().items() if k != "may_saturate"}
    assert Trial.from_json(old).may_saturate is None


def test_the_sentence_names_the_first_layers() -> None:
    names = [f"conv{i}" for i in range(14)]
    assert portability.of_layers(names) == (
        "14 layers may saturate on CPUs without VNNI (conv0, conv1, conv2, …)"
    )
    assert portability.of_layers(["fc"]) == "1 layer may saturate on CPUs without VNNI (fc)"


@pytest.mark.parametrize(
    ("code", "op", "depthwise", "refused"),
    [
        ("static-s8-u8-channel", "Conv", False, True),
        ("static-s8-u8-channel", "Conv", True, False),
        ("static-s8-s8-tensor", "Gemm", False, True),
        ("static-p8-u8-channel", "Conv", False, False),
        ("static-u8-u8-channel", "MatMul", False, False),
        ("static-s8-u16-channel", "MatMul", False, False),
        ("dynamic-s8-channel", "MatMul", False, True),
        ("dynamic-s8-channel", "Conv", False, False),
        ("weight-s8-channel", "Conv", False, False),
        ("nbit-s8-channel", "MatMul", False, False),
    ],
)
def test_the_constraint_refuses_what_may_saturate(
    code: str, op: str, depthwise: bool, refused: bool
) -> None:
    layer = Layer("l", op, ("l",), ("x",), "y", 10, weight="w", depthwise=depthwise)
    reason = choices.Constraints(portable=True).against(layer, Scheme.parse(code))
    assert (reason == choices.NOT_PORTABLE) == refused
    assert choices.Constraints().against(layer, Scheme.parse(code)) is None


QUICK: dict[str, Any] = {
    "search__strategy": "frontier",
    "search__max_trials": 12,
    "search__objectives": ["loss", "size", "latency"],
    "device__latency_s": 0.01,
}


@pytest.mark.usefixtures("inline")
def test_a_portable_search_has_nothing_that_saturates_but_the_fully_quantized_model(
    tmp_path: Path,
) -> None:
    config = runs.write_config(tmp_path)
    result = api.tune(config=config, out=tmp_path / "run", constraints__portable=True, **QUICK)
    full = result.report["fully_quantized"]
    assert {t.number for t in result.trials if t.may_saturate} <= {full}
    assert result.recommended["portable"] in result.front
    said = [f["message"] for f in result.report["findings"] if f["kind"] == "menu"]
    assert any(choices.NOT_PORTABLE in message for message in said)
    saved = api.export(tmp_path / "run", tmp_path / "p.onnx", pick="portable")
    assert saved.holds == portability.EVERYWHERE


@pytest.mark.usefixtures("inline")
def test_a_run_goes_on_with_portable_files_only_and_says_what_that_costs(tmp_path: Path) -> None:
    config = runs.write_config(tmp_path)
    first = api.tune(config=config, out=tmp_path / "run", **QUICK)
    more = {**QUICK, "search__max_trials": 20}
    again = api.tune(config=config, out=tmp_path / "run", constraints__portable=True, **more)
    kept = [t.number for t in first.trials]
    assert [t.number for t in again.trials if t.number in kept] == kept
    assert all(again.trials[n].is_portable for n in again.front)


def test_a_strategy_without_a_menu_is_told_which_weights_are_portable(tmp_path: Path) -> None:
    model = nets.save(nets.residual(), tmp_path / "net.onnx")
    with pytest.raises(ConfigError, match=r"quantize\.weight = p8"):
        api.tune(
            model,
            out=tmp_path / "run",
            data=iter(()),
            search__strategy="stepwise",
            constraints__portable=True,
        )

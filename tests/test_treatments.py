"""Treatments of the float model in whole runs; bias correction alone makes no model of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nets
from seqto import tune
from seqto.assembly.plan import Plan
from seqto.records import Layer
from seqto.search.space import Space
from seqto.search.strategies.stepwise import Stepwise

pytestmark = pytest.mark.usefixtures("inline")  # no process, no plots

CORRECTED = ("bias-correction",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("treated")
    model = nets.residual(uneven=True)
    nets.save(model, made / "net.onnx")
    nets.save_samples(made / "samples.npz", 30, model=model)
    return made


def short_run(folder: Path, out: Path, **more: Any) -> Any:
    return tune(
        folder / "net.onnx",
        out=out,
        data__arrays=str(folder / "samples.npz"),
        data__calibration=6,
        data__evaluation=8,
        analysis__samples=2,
        analysis__diagnose=False,
        search__jobs=1,
        search__probes=2,
        device__latency_s=0.01,
        **{"data__report": 4, "search__objectives": ["loss", "size"], **more},
        search__max_trials=4,
    )


@pytest.mark.parametrize("strategy", ["stepwise", "frontier"])
def test_bias_correction_is_a_transform_that_can_be_asked_for_alone(
    folder: Path, tmp_path: Path, strategy: str
) -> None:
    result = short_run(
        folder, tmp_path, quantize__transforms=["bias-correction"], search__strategy=strategy
    )
    assert [p.name for p in (tmp_path / "variants").iterdir()] == ["base"]
    treated = {t.plan.transform_codes for t in result.trials}
    assert treated == {CORRECTED} if strategy == "stepwise" else CORRECTED in treated
    assert all(t.error is None for t in result.trials)


def test_bias_correction_is_a_treatment_that_can_be_offered_alone(
    folder: Path, tmp_path: Path
) -> None:
    """It has no variant of its own: the run's prepared model must not be taken for one."""
    result = short_run(
        folder,
        tmp_path,
        search__treatments=["bias-correction"],
        search__objectives=["loss", "size", "latency"],  # only then are integers on the menu
        search__strategy="frontier",
    )
    assert (tmp_path / "variants" / "base" / "model.onnx").is_file()
    assert (tmp_path / "variants" / "base" / "statistics.npz").is_file()
    plans = [t.plan.transform_codes for t in result.trials]
    assert set(plans) == {(), CORRECTED}
    assert list((tmp_path / "models").glob("trial-*.onnx"))


def test_a_report_of_no_samples_is_none(folder: Path, tmp_path: Path) -> None:
    result = short_run(folder, tmp_path, data__report=0, search__strategy="stepwise")
    assert result.report["data"]["splits"]["report"] == 0
    assert result.recommended
    assert all(t["report_split"] is None for t in result.report["trials"])


def test_stepwise_treats_the_model_as_it_is_told() -> None:
    layers = (Layer("a", "Conv", ("a",), ("x",), "y", 4, weight="w"),)
    space = Space(
        layers=layers,
        menu={"a": ("fp32", "static-s8-u8")},
        default={"a": "static-s8-u8"},
        bytes_of={},
        ranking=(),
        transforms=(("equalize",),),
    )
    ask = next(Stepwise().search(space, seed=0))
    assert ask.plans[0] == Plan.of({"a": "static-s8-u8"}, ["equalize"])


def test_objectives_that_the_strategy_does_not_plan_for_are_named(
    folder: Path, tmp_path: Path
) -> None:
    asked = ["loss", "size", "load_time"]
    for strategy, said in (("frontier", 1), ("stepwise", 0)):
        result = short_run(
            folder, tmp_path / strategy, search__strategy=strategy, search__objectives=asked
        )
        found = [w for w in result.report["warnings"] if "load_time is measured and ranked" in w]
        assert len(found) == said, "the published procedure plans for no objective"

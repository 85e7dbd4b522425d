"""A model with a fixed batch: whole batches go in, and only real samples count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nets
from seqto import tune
from seqto.calibration.collect import calibrate
from seqto.cli.main import main
from seqto.data.iterable import FromIterable
from seqto.data.store import SampleStore
from seqto.model import prepare as model_prepare
from seqto.model.batch import rows_fed, without_filling
from seqto.records import CALIBRATION, EVALUATION

pytestmark = pytest.mark.usefixtures("inline")  # no process, no plots

SHORT = {"data__calibration": 5, "data__evaluation": 21, "data__report": 9, "search__jobs": 1}


def short_run(tmp_path: Path, batch: int | str, **settings: Any) -> Any:
    folder = tmp_path / str(batch)
    folder.mkdir()
    return tune(
        nets.save(nets.residual(uneven=True, batch=batch), folder / "net.onnx"),
        out=folder / "run",
        data=[*nets.pictures(40)],
        search__max_trials=2,
        device__latency_s=0.01,
        **SHORT,
        **settings,
    )


def store_of(tmp_path: Path, batch: int) -> SampleStore:
    prepared = model_prepare.prepare(nets.residual(batch=batch))
    return SampleStore.build(
        FromIterable([*nets.pictures(12)]),
        tmp_path / "store",
        splits={CALIBRATION: range(5), EVALUATION: range(5, 12)},
        inputs=prepared.inputs,
        preprocess=None,
    )


def test_the_last_row_fills_a_batch_and_does_not_count(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4)
    whole, short = store.calibration()
    assert (rows_fed(whole), whole.rows, rows_fed(short), short.rows) == (4, 4, 4, 1)
    assert np.array_equal(short["x"], np.repeat(short["x"][:1], 4, axis=0))
    assert len(without_filling(np.zeros((4, 7)), short)) == 1
    assert len(without_filling(np.zeros((3, 7)), short)) == 3
    picked = store.pick(EVALUATION, [6, 2])
    assert (rows_fed(picked), picked.rows) == (4, 2)
    assert np.array_equal(picked["x"][2], picked["x"][1])


def test_statistics_do_not_count_what_fills_a_batch(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4)
    fixed = calibrate(model_prepare.prepare(nets.residual(batch=4)), store.calibration)
    one_by_one = [{"x": x[None]} for b in store.calibration() for x in b["x"][: b.rows]]
    free = calibrate(model_prepare.prepare(nets.residual()), lambda: one_by_one)
    assert fixed.samples == free.samples == 5
    for name, mean in free.statistics.means.items():
        assert fixed.statistics.means[name] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("batch", [2, 8])
def test_a_fixed_batch_gives_the_figures_of_a_free_one(tmp_path: Path, batch: int) -> None:
    settings = {"search__strategy": "stepwise", "search__objectives": ["loss", "size"]}
    free = short_run(tmp_path, "N", analysis__diagnose=False, **settings)
    fixed = short_run(tmp_path, batch, analysis__diagnose=True, **settings)
    for a, b in zip(free.trials, fixed.trials, strict=True):
        assert b.error is None
        for split, want in a.measurements.items():
            assert b.measurements[split].loss.value == pytest.approx(want.loss.value, abs=0.05)
            assert b.measurements[split].loss.samples == want.loss.samples
    assert not [f for f in fixed.report["findings"] if f["figures"].get("cause") == "failed"]


def test_frontier_with_latency_runs_on_a_fixed_batch(tmp_path: Path) -> None:
    result = short_run(tmp_path, 2, analysis__diagnose=False, device__batch=3)
    assert [t.error for t in result.trials] == [None, None]
    baseline = result.report["baseline"]["latency_ms"]
    assert baseline is not None
    assert baseline["batch"] == 2


@pytest.mark.parametrize("command", ["analyze", "diagnose", "export", "dry-run"])
def test_other_commands_take_a_fixed_batch(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nets.save(nets.residual(uneven=True, batch=8), tmp_path / "net.onnx")
    data = nets.save_samples(tmp_path / "samples.npz", 40)
    words = [
        str(model),
        "--data",
        str(data),
        "--set",
        "search.jobs=1",
        "--set",
        "data.calibration=5",
    ]
    end = (
        ["-o", str(tmp_path / "q.onnx")]
        if command == "export"
        else ["--out", str(tmp_path / "out")]
    )
    start = ["tune", "--dry-run"] if command == "dry-run" else [command]
    assert main([*start, *words, *end]) == 0, capsys.readouterr().err

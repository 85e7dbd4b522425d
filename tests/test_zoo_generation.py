"""The real encoder–decoder models: configs are accepted as they are, float scores are known."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqto

ZOO = Path(__file__).resolve().parents[2] / "shared" / "zoo"
# exact match of the float model on 300 rows, measured with another loop
EXACT = {"aren": 0.68, "arabizi": 0.30}
FEW = {
    "data__calibration": 8,
    "data__evaluation": 30,
    "analysis__samples": 2,
    "analysis__diagnose": False,
    "search__strategy": "stepwise",
    "search__objectives": ("loss", "size"),
    "search__max_trials": 1,
    "quantize__mode": "dynamic",
    "quantize__per_channel": True,
    "device__latency_s": 0.05,
}
pytestmark = [
    pytest.mark.zoo,
    pytest.mark.usefixtures("inline"),
]


@pytest.mark.parametrize("name", list(EXACT))
def test_a_real_encoder_and_decoder_are_tuned(name: str, tmp_path: Path) -> None:
    if not (ZOO / f"{name}-decoder.onnx").is_file():
        pytest.skip(f"no {name}-decoder.onnx in ../shared/zoo: get-models fetches it")
    found = seqto.tune(config=ZOO / f"{name}.toml", out=tmp_path / "run", **FEW)
    (trial,) = found.trials
    measured = trial.measurements["report"]
    assert measured.loss.samples == 300
    # on another 300 of the 500 rows
    assert measured.baseline_scores["exact"] == pytest.approx(EXACT[name], abs=0.06)
    assert measured.figures["sequences_changed"] < 0.06
    assert trial.size_bytes < 0.55 * found.report["baseline"]["size_bytes"]
    assert len(list((tmp_path / "run" / "models").glob("trial-0-*.onnx"))) == 2

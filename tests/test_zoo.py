"""The real models: every config is accepted as it is, prepared models answer as before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import runs
from seqto import config
from seqto.model.compare import same_answers
from seqto.model.files import load, to_bytes
from seqto.model.prepare import prepare
from seqto.model.sources.source import Fetched
from seqto.study.setup import make_setup
from seqto.study.workspace import build_store

ZOO = Path(__file__).resolve().parents[2] / "shared" / "zoo"
CLASSIFIERS = (
    "efficientnet-lite0",
    "mobilenetv1",
    "mobilenetv2",
    "resnet20-cifar10",
    "squeezenet1.1",
)
CONFIGS = [ZOO / f"{name}.toml" for name in CLASSIFIERS]
pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.is_dir(), reason="no ../shared/zoo with the real models"),
]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda p: p.stem)
def test_a_config_is_accepted_as_it_is_and_its_model_prepared(path: Path, tmp_path: Path) -> None:
    few = {"data.calibration": 3, "data.evaluation": 5, "data.report": 0, "data.max_bad_share": 0.0}
    settings = config.make(config.read_toml(path), few)
    assert settings.model.path is not None
    fetched = Fetched(path.stem, settings.model.path, {"kind": "file"})
    job = make_setup(fetched, tmp_path / "out", settings)
    original = load(settings.model.path)
    prepared = prepare(original)
    store = build_store(job, prepared, tmp_path / "samples")
    feeds = store.batch("calibration", 0, 1)
    assert same_answers(settings.model.path, to_bytes(prepared.proto), feeds) < 1e-4
    labels = store.labels("evaluation")
    assert labels is not None
    assert np.issubdtype(labels.dtype, np.integer)
    weighted = [x for x in prepared.layers if x.weight]
    assert len(weighted) >= 20
    assert all(x.bias for x in weighted if x.op_type == "Conv"), "BatchNorm is fused"


@pytest.mark.slow
def test_a_short_stepwise_run_on_lite0(tmp_path: Path) -> None:
    words = ["tune", "--config", ZOO / "efficientnet-lite0.toml", "--out", tmp_path / "out", "-q"]
    words += ["--strategy", "stepwise", "--max-trials", "2", "--objectives", "loss", "size"]
    words += ["--set", "data.evaluation=60", "--set", "data.report=40"]
    words += ["--set", "device.latency_s=0.2", "--set", "analysis.diagnose=false"]
    finished = runs.command(*words)
    assert finished.returncode == 0, finished.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["counts"] | {"trials": 2, "failed": 0} == report["counts"]
    full = report["trials"][0]
    assert 4.5e6 < full["size_bytes"] < 5.2e6  # measured before the first line: 4.79 MB
    assert 0.02 < full["loss"]["value"] < 0.4  # 16.3 % of 300
    assert report["baseline"]["accuracy"] is not None


@pytest.mark.slow
def test_a_short_stepwise_run_on_fastestdet(tmp_path: Path) -> None:
    text = (ZOO / "fastestdet.toml").read_text(encoding="utf-8").partition("[data.labelled]")[0]
    for key in ("path", "images"):
        text = text.replace(f'{key} = "', f'{key} = "{ZOO.as_posix()}/')
    (tmp_path / "tune.toml").write_text(text, encoding="utf-8")
    words = ["tune", "--config", tmp_path / "tune.toml", "--out", tmp_path / "out", "-q"]
    words += ["--strategy", "stepwise", "--max-trials", "2", "--objectives", "loss", "size"]
    words += ["--set", "data.calibration=8", "--set", "data.evaluation=16"]
    words += ["--set", "data.report=12", "--set", "device.latency_s=0.2"]
    words += ["--set", "analysis.samples=4", "--set", "analysis.diagnose=false"]
    finished = runs.command(*words)
    assert finished.returncode == 0, finished.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["counts"] | {"trials": 2, "failed": 0} == report["counts"]
    assert report["output"]["changed"] == "boxes"
    full = report["trials"][0]
    assert 0.28e6 < full["size_bytes"] < 0.32e6
    assert 0.2 < full["loss"]["value"] < 0.6  # stock quantization changes 41 % of the boxes


@pytest.mark.parametrize("name", ["fastestdet", "u2netp"])
def test_a_config_of_pictures_is_accepted_as_it_is(name: str, tmp_path: Path) -> None:
    settings = config.make(config.read_toml(ZOO / f"{name}.toml"))
    assert settings.model.path is not None
    fetched = Fetched(name, settings.model.path, {"kind": "file"})
    job = make_setup(fetched, tmp_path / "out", settings)
    assert job.labelled is not None
    assert len(job.labelled) > 10
    assert job.labelled.read(0).label is not None

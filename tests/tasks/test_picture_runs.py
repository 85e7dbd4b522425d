"""Short whole runs of a detector and a segmentation net, from config file to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nets
from seqto import tune
from seqto.report import wording

pytestmark = pytest.mark.usefixtures("inline")

CONFIG = """
[model]
path = "net.onnx"

[task]
{task}

[data]
images = "pictures"
calibration = 6
evaluation = 16
report = 8

[data.preprocess]
{size}
interpolation = "bilinear"
mean = [127.0]
std = [64.0]

[analysis]
samples = 4
diagnose = false

[search]
strategy = "stepwise"
objectives = ["loss", "size"]
max_trials = 2

[device]
latency_s = 0.01
"""
DETECTOR = 'kind = "detection"\ndecode = "yolov8"\nscore = 0.5'
SEGMENTER = 'kind = "segmentation"\ndecode = "mask"\noutput = "mask"'


def write_pictures(folder: Path, count: int = 32) -> None:
    """Smooth colours in pictures of unlike sizes."""
    folder.mkdir()
    rng = np.random.default_rng(4)
    for k in range(count):
        small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), np.uint8))
        size = (24 + 8 * (k % 3), 40 - 4 * (k % 2))
        small.resize(size, Image.Resampling.BILINEAR).save(folder / f"{k:02}.png")


def run(folder: Path, model: Any, task: str, *, size: str = "letterbox = 32") -> dict[str, Any]:
    nets.save(model, folder / "net.onnx")
    write_pictures(folder / "pictures")
    (folder / "tune.toml").write_text(CONFIG.format(task=task, size=size))
    report: dict[str, Any] = tune(config=folder / "tune.toml", out=folder / "run").report
    assert json.loads((folder / "run" / "report.json").read_text())["trials"]
    return report


def test_a_detector_is_judged_by_its_boxes(tmp_path: Path) -> None:
    report = run(tmp_path, nets.detector(), DETECTOR)
    losses = [t["loss"] for t in report["trials"]]
    assert len(losses) == 2
    assert 0.02 < losses[0]["value"] < 0.9
    assert all(0 <= x["low"] <= x["value"] <= x["high"] <= 1 for x in losses)
    assert all(t["damage"] >= 0 for t in report["trials"])
    assert report["output"]["changed"] == "boxes"
    assert " % of boxes changed, 95 % between " in wording.recommendation(report)


def test_a_segmentation_net_is_judged_by_its_mask(tmp_path: Path) -> None:
    report = run(tmp_path, nets.segmenter(), SEGMENTER, size="stretch = 32")
    losses = [t["loss"]["value"] for t in report["trials"]]
    assert all(0 < loss < 0.3 for loss in losses)
    figures = report["trials"][0]["figures"]
    assert 0 < figures["pixels_changed"] < 0.3

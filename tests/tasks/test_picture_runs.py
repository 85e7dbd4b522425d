"""Short whole runs of a detector and a segmentation net, from config file to report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nets
import picture_nets
from net_builder import Net
from picture_files import write_labelled, write_pictures
from seqto import tune
from seqto.api import write_report as seqto_report
from seqto.errors import ConfigError
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


def run(
    folder: Path,
    model: Any,
    task: str,
    *,
    size: str = "letterbox = 32",
    more: str = "",
    examples: bool = True,
    **data: str,
) -> dict[str, Any]:
    nets.save(model, folder / "net.onnx")
    write_pictures(folder / "pictures")
    (folder / "tune.toml").write_text(CONFIG.format(task=task, size=size) + more)
    report: dict[str, Any] = tune(
        config=folder / "tune.toml",
        out=folder / "run",
        analysis__examples=examples,
        **{f"data__{key}": value for key, value in data.items()},
    ).report
    assert json.loads((folder / "run" / "report.json").read_text())["trials"]
    return report


def test_a_detector_is_judged_by_its_boxes(tmp_path: Path) -> None:
    report = run(tmp_path, picture_nets.detector(), DETECTOR)
    losses = [t["loss"] for t in report["trials"]]
    assert len(losses) == 2
    assert 0.02 < losses[0]["value"] < 0.9
    assert all(0 <= x["low"] <= x["value"] <= x["high"] <= 1 for x in losses)
    assert all(t["damage"] >= 0 for t in report["trials"])
    assert report["output"]["changed"] == "boxes"
    assert " % of boxes changed, 95 % between " in wording.recommendation(report)


def test_a_detector_that_suppresses_itself_gives_as_many_boxes_as_it_finds(tmp_path: Path) -> None:
    """Outputs of other lengths from picture to picture, and none at times."""
    model = picture_nets.suppressed()
    report = run(tmp_path, model, 'kind = "auto"')
    assert "SSD-shaped" in " ".join(f["message"] for f in report["findings"])
    losses = [t["loss"] for t in report["trials"]]
    assert all(t["error"] is None for t in report["trials"])
    assert 0 < losses[0]["value"] < 1
    assert report["output"]["changed"] == "boxes"


def test_a_segmentation_net_is_judged_by_its_mask(tmp_path: Path) -> None:
    report = run(tmp_path, picture_nets.segmenter(), SEGMENTER, size="stretch = 32")
    losses = [t["loss"]["value"] for t in report["trials"]]
    assert all(0 < loss < 0.3 for loss in losses)
    figures = report["trials"][0]["figures"]
    assert 0 < figures["pixels_changed"] < 0.3


@pytest.mark.parametrize(
    ("model", "task", "form"),
    [
        (picture_nets.detector(), DETECTOR, "boxes"),
        (picture_nets.segmenter(), SEGMENTER, "mask"),
        (picture_nets.segmenter(), 'kind = "classification"', "text"),
    ],
    ids=["boxes", "mask", "text"],
)
def test_the_page_shows_the_samples_that_changed_most(
    tmp_path: Path, model: Any, task: str, form: str
) -> None:
    report = run(tmp_path, model, task, size="stretch = 32")
    found = report["examples"]
    assert found["trial"] == report["recommended"]["balanced"]
    assert 0 < len(found["samples"]) <= 8
    distances = [sample["distance"] for sample in found["samples"]]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] > 0
    assert {sample["form"] for sample in found["samples"]} == {form}
    page = tmp_path / "run" / "report.html"
    text = page.read_text()
    assert text.count('<figure class="example">') == len(found["samples"])
    assert found["samples"][0]["name"] in text
    assert "data:image/jpeg;base64," in text
    assert seqto_report(tmp_path / "run", examples=False).report["examples"] is None
    assert 'class="example"' not in page.read_text()


def test_examples_can_be_left_out(tmp_path: Path) -> None:
    report = run(tmp_path, picture_nets.detector(), DETECTOR, more="\n", examples=False)
    assert report.get("examples") is None
    assert '"event":"examples"' not in (tmp_path / "run" / "journal.jsonl").read_text()


def depth_net() -> Any:
    net = Net(seed=9)
    x = net.add("Relu", [net.conv("x", (3, 4))])
    net.conv(x, (4, 1), output="depth")
    return net.model({"x": ["N", 3, 32, 32]}, {"depth": ["N", 1, 32, 32]})


@pytest.mark.parametrize(
    ("model", "kind", "said"),
    [
        (picture_nets.detector(), "detection", "taken for a detector, YOLOv8-shaped"),
        (picture_nets.segmenter(), "segmentation", "taken for segmentation: a soft mask in 'mask'"),
        (depth_net(), "dense", "no known kind of task fits output 'depth' (1 × 32 × 32)"),
    ],
    ids=["detector", "segmenter", "dense"],
)
def test_a_task_that_nobody_names_is_taken_from_the_model_and_said(
    tmp_path: Path, model: Any, kind: str, said: str
) -> None:
    report = run(tmp_path, model, "", size="stretch = 32")
    assert report["settings"]["task"]["kind"] == kind
    (line,) = [w for w in report["warnings"] if said in w]
    assert line.startswith("No task was named (task.kind): ")
    assert "\n" not in line
    again = tune(config=tmp_path / "tune.toml", out=tmp_path / "run").report
    assert sum(f["kind"] == "guess" for f in again["findings"]) == 1, "a resumed run says it once"


LABELLED_BOXES = """
[data.labelled]
images = "labelled"
annotations = "labels.json"
score = 0.001
nms = 0.7
"""
LABELLED_MASKS = """
[data.labelled]
images = "labelled"
masks = "masks"
"""


@pytest.mark.parametrize(
    ("task", "table", "score"),
    [(DETECTOR, LABELLED_BOXES, "mAP"), (SEGMENTER, LABELLED_MASKS, "mIoU")],
    ids=["boxes", "masks"],
)
def test_the_labelled_set_is_scored_at_the_end(
    tmp_path: Path, task: str, table: str, score: str
) -> None:
    pytest.importorskip("pycocotools")
    write_labelled(tmp_path)
    model = picture_nets.detector() if task == DETECTOR else picture_nets.segmenter()
    report = run(tmp_path, model, task, more=table)
    assert report["data"]["splits"]["labelled"] == 10
    numbers = {report["fully_quantized"], *report["recommended"].values()}
    for trial in report["trials"]:
        if trial["number"] not in numbers:
            continue
        found = trial["labelled"]
        assert found["samples"] == 10
        assert 0 <= found["scores"][score] <= 1
        low, high = found["score_drops"][score]
        drop = found["baseline_scores"][score] - found["scores"][score]
        assert low - 0.05 <= drop <= high + 0.05
        assert trial["scores"] == {}, "the data of the search have no labels"
    floats = {t["labelled"]["baseline_scores"][score] for t in report["trials"] if t["labelled"]}
    assert len(floats) == 1
    assert floats != {0.0}
    assert f"{score} " in wording.recommendation(report)
    # found here: labels.npy was left in the cache, and the next call took it for the user's
    assert not (tmp_path / "run" / "cache").exists()
    again = tune(config=tmp_path / "tune.toml", out=tmp_path / "run").report
    assert [t["labelled"] for t in again["trials"]] == [t["labelled"] for t in report["trials"]]


@pytest.mark.parametrize(
    ("task", "table", "words"),
    [
        (DETECTOR, LABELLED_MASKS, "hold no boxes"),
        (DETECTOR, LABELLED_BOXES + "scor = 1", "did you mean 'score'"),
        (DETECTOR, LABELLED_BOXES.replace("0.001", "7"), "must be between 0 and 1"),
        (SEGMENTER, LABELLED_BOXES, r"unknown setting 'data\.labelled\.score'"),
        (SEGMENTER, '[data.labelled]\nimages = "labelled"', "either annotations or masks"),
        ('kind = "classification"', LABELLED_BOXES, "not taken by task 'classification'"),
    ],
    ids=["masks", "key", "value", "own", "half", "task"],
)
def test_a_labelled_set_that_does_not_fit_is_refused(
    tmp_path: Path, task: str, table: str, words: str
) -> None:
    write_labelled(tmp_path)
    with pytest.raises(ConfigError, match=words):
        run(tmp_path, picture_nets.detector(), task, more=table)


def test_classes_of_sub_folders_are_no_labels_of_a_detector(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds class numbers"):
        run(tmp_path, picture_nets.detector(), DETECTOR, labels="folders")


@pytest.mark.parametrize(
    ("kind", "score", "lower"), [("dense", "MAE", True), ("multi-label", "micro_F1", False)]
)
def test_arrays_with_labels_are_scored_at_the_end(
    tmp_path: Path, kind: str, score: str, lower: bool
) -> None:
    net = nets.residual()
    rows = nets.pictures(70)
    answers = nets.run(net, {"x": rows[:10]})[0]
    labels = answers > 0 if kind == "multi-label" else answers
    np.savez(tmp_path / "labelled.npz", x=rows[:10], labels=labels.astype(np.float32))
    report = tune(
        nets.save(net, tmp_path / "net.onnx"),
        out=tmp_path / "run",
        data=[*rows[10:]],
        task__kind=kind,
        data__labelled={"arrays": str(tmp_path / "labelled.npz")},
        data__calibration=8,
        data__evaluation=20,
        data__report=8,
        search__max_trials=1,
        search__strategy="stepwise",
        search__objectives=["loss", "size"],
        analysis__diagnose=False,
        device__latency_s=0.01,
        **({"task__threshold": 0.0} if kind == "multi-label" else {}),
    ).report
    found = next(t["labelled"] for t in report["trials"] if t["labelled"])
    assert found["samples"] == 10
    before, after = found["baseline_scores"][score], found["scores"][score]
    assert before == pytest.approx(0.0 if lower else 1.0, abs=1e-4)
    assert after >= before if lower else after <= before


def test_a_labelled_set_of_arrays_needs_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "labelled.npz", x=nets.pictures(4))
    with pytest.raises(ConfigError, match="has no labels"):
        tune(
            nets.save(nets.residual(), tmp_path / "net.onnx"),
            out=tmp_path / "run",
            data=[*nets.pictures(20)],
            task__kind="dense",
            data__labelled={"arrays": str(tmp_path / "labelled.npz")},
        )

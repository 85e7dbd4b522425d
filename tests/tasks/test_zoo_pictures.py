"""Real detectors and segmentation models: settings as the zoo has them, answers that make sense."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto import plugins
from seqto.data.coco import Coco
from seqto.data.geometry import letterbox, place, stretch
from seqto.data.preprocess import Preprocess, normalise
from seqto.tasks.boxes import Boxes, match_boxes
from seqto.tasks.guess import guess_task
from seqto.tasks.task import Answers
from seqto.tasks.task_guess import Tensor

ZOO = Path(__file__).resolve().parents[3] / "shared" / "zoo"
pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.is_dir(), reason="no ../shared/zoo with the real models"),
]


def tables(name: str) -> dict[str, Any]:
    return tomllib.loads((ZOO / f"{name}.toml").read_text(encoding="utf-8"))


def task_of(name: str) -> Any:
    table = tables(name)["task"]
    return plugins.build(plugins.TASKS, table)


def labelled(name: str) -> Coco:
    found = tables(name)["data"]["labelled"]
    return Coco([ZOO / p for p in found["images"]], [ZOO / p for p in found["annotations"]])


def session(name: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path, providers = str(ZOO / f"{name}.onnx"), ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(path, options, providers=providers)


def answer(name: str, model: Any, pixels: np.ndarray) -> tuple[dict, Any]:
    """Return the outputs of one picture by name, and how it was fitted into the input."""
    settings = dict(tables(name)["data"]["preprocess"])
    side = settings.pop("stretch")
    inside, fit = stretch(pixels, sides=side, interpolation=settings["interpolation"])
    feeds = {model.get_inputs()[0].name: normalise(inside[None], Preprocess.from_json(settings))}
    names = [output.name for output in model.get_outputs()]
    return dict(zip(names, model.run(None, feeds), strict=True)), fit


@pytest.mark.parametrize("name", ["yolov8n", "fastestdet", "u2netp"])
def test_the_tasks_settings_are_accepted_as_they_are(name: str) -> None:
    assert task_of(name) is not None
    preprocess = tables(name)["data"]["preprocess"]
    picture = np.zeros((20, 30, 3), np.uint8)
    if "letterbox" in preprocess:
        found, _ = letterbox(picture, sides=preprocess["letterbox"], fill=preprocess["fill"])
    else:
        found, _ = stretch(picture, sides=preprocess["stretch"])
    assert (
        found.shape[0] == found.shape[1] == preprocess.get("letterbox", preprocess.get("stretch"))
    )


def test_the_labelled_pictures_are_all_there() -> None:
    data = labelled("fastestdet")
    assert (len(data), len(data.categories), data.pictures_missing) == (38, 80, 0)
    assert sum(int((~data.objects(i).crowd).sum()) for i in range(len(data))) == 419


def test_fastestdet_finds_labelled_objects_on_three_pictures() -> None:
    task, model, data = task_of("fastestdet"), session("fastestdet"), labelled("fastestdet")
    found = guess_task(
        {"x": Tensor((1, 3, 352, 352))},
        {o.name: Tensor(tuple(o.shape)) for o in model.get_outputs()},
    )
    assert found.settings["decode"] == "fastestdet"
    matched = 0
    for index in (0, 1, 2):
        outputs, fit = answer("fastestdet", model, data.read(index).inputs[""])
        assert task.check(outputs) is None
        answers = task.decode(outputs)
        assert 1 <= answers.lengths[0] <= 100
        np.testing.assert_array_equal(task.distance(answers, answers), 0)
        objects = data.objects(index)
        boxes = fit.to_picture(answers.values["boxes"])
        shown = Boxes(boxes, answers.values["scores"], answers.values["classes"])
        truth = Boxes(objects.boxes, np.ones(len(objects.classes)), objects.classes)
        matched += len(match_boxes(truth, shown, match=0.5))
    assert matched >= 8, "of 40 labelled objects it finds 11"


def test_u2netp_finds_the_objects_of_three_pictures() -> None:
    pytest.importorskip("pycocotools")
    task, model, data = task_of("u2netp"), session("u2netp"), labelled("u2netp")
    masks, labels = [], []
    for index in (0, 4, 9):
        outputs, fit = answer("u2netp", model, data.read(index).inputs[""])
        assert len(outputs) == 7
        assert task.check(outputs) is None
        assert task.signal(outputs).shape[1] <= 4096
        answers = task.decode(outputs)
        np.testing.assert_array_equal(task.distance(answers, answers), 0)
        masks.append(answers.values["mask"][0])
        labels.append(place(data.mask(index), fit, interpolation="nearest"))
    assert all(0.01 < mask.mean() < 0.9 for mask in masks)
    scores = task.scores(Answers({"mask": np.stack(masks)}), Answers({"mask": np.stack(labels)}))
    assert scores["mIoU"] > 0.2

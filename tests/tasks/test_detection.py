"""Detection: boxes that change, mAP that is pycocotools' own, a small signal."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqto import plugins
from seqto.errors import ConfigError
from seqto.tasks import scoring
from seqto.tasks.answers import spans
from seqto.tasks.coco_map import coco_results, coco_truth
from seqto.tasks.detection import Detection
from seqto.tasks.task import Answers

BOX = (100, 40, 180, 100)
FAR = (300, 300, 340, 360)


def answers(*pictures: list[tuple], scores: bool = True) -> Answers:
    """Return each picture: (box, score, class)."""
    entries = list(itertools.chain(*pictures))
    values = {
        "boxes": np.array([e[0] for e in entries], dtype=np.float32).reshape(-1, 4),
        "scores": np.array([e[1] for e in entries], dtype=np.float32),
        "classes": np.array([e[2] for e in entries], dtype=np.int32),
    }
    if not scores:
        values["crowd"] = values.pop("scores") > 1
    return Answers(values, np.array([len(p) for p in pictures], dtype=np.int64))


def yolov8_output(*pictures: list[tuple], cells: int = 200, classes: int = 5) -> dict:
    output = np.zeros((len(pictures), 4 + classes, cells), np.float32)
    for k, picture in enumerate(pictures):
        for cell, ((x1, y1, x2, y2), score, kind) in enumerate(picture):
            output[k, :4, cell] = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
            output[k, 4 + kind, cell] = score
    return {"output0": output}


def test_an_answer_has_the_boxes_that_score_and_suppression_leave() -> None:
    close = (102, 40, 182, 100)
    outputs = yolov8_output(
        [(BOX, 0.5, 1), (close, 0.9, 1), (close, 0.4, 2), (FAR, 0.2, 1)], [], [(FAR, 0.8, 0)]
    )
    found = Detection("yolov8").decode(outputs)
    assert found.lengths.tolist() == [2, 0, 1]
    np.testing.assert_allclose(found.values["scores"], [0.9, 0.4, 0.8], rtol=1e-6)
    assert found.values["classes"].tolist() == [1, 2, 0]
    np.testing.assert_allclose(found.values["boxes"], [close, close, FAR])


def test_the_decoder_is_guessed_where_none_is_given() -> None:
    outputs = yolov8_output([(BOX, 0.5, 1)])
    assert Detection().decode(outputs).values["classes"].tolist() == [1]
    with pytest.raises(ConfigError, match=r"no decoder fits the outputs 'y' \[1, 10\]"):
        Detection().decode({"y": np.zeros((1, 10))})


def test_outputs_may_come_without_names() -> None:
    outputs = {
        "boxes": np.array([[BOX, FAR]], float),
        "labels": np.array([[1, 2]]),
        "scores": np.array([[0.9, 0.1]]),
    }
    wanted = Detection("ssd").decode(outputs)
    found = Detection("ssd", names=tuple(outputs)).decode(list(outputs.values()))
    assert found.values["classes"].tolist() == wanted.values["classes"].tolist() == [1]
    yolo = yolov8_output([(BOX, 0.5, 1)])
    assert Detection("yolov8").decode(list(yolo.values())).lengths.tolist() == [1]


def test_boxes_of_a_model_that_has_suppressed_itself_are_not_suppressed_again() -> None:
    rows = np.array([[[*BOX, 0.9, 1], [*BOX, 0.8, 1], [*FAR, 0.1, 1]]])
    assert Detection("nms").decode({"o": rows}).lengths.tolist() == [2]


def test_boxes_that_are_not_finite_or_have_no_area_are_none() -> None:
    rows = np.array([[[np.nan, 0, 5, 5, 0.9, 1], [5, 5, 5, 9, 0.9, 1], [*BOX, 0.9, 1]]])
    assert Detection("nms").decode({"o": rows}).lengths.tolist() == [1]


def test_changed_boxes_by_picture_and_pooled() -> None:
    task = Detection()
    moved = (104, 40, 184, 100)
    a = answers([(BOX, 0.9, 1), (FAR, 0.8, 1)], [], [(BOX, 0.9, 1)], [])
    b = answers([(moved, 0.7, 1)], [], [(BOX, 0.9, 2)], [(FAR, 0.5, 0)])
    np.testing.assert_allclose(task.distance(a, b), [1 / 3, 0, 1, 1])
    assert task.weights(a, b).tolist() == [3, 0, 2, 1]
    assert task.pooled(a, b) == pytest.approx(1 - 2 / 6)
    assert task.distance(a, a).tolist() == [0, 0, 0, 0]


@given(st.integers(0, 2**32))
def test_the_distance_is_a_share_symmetric_and_0_to_itself(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def picture() -> list[tuple]:
        corner = rng.integers(0, 30, (rng.integers(0, 6), 2))
        sides = rng.integers(1, 30, corner.shape)
        boxes = np.concatenate([corner, corner + sides], axis=1)
        return [(box, rng.random(), rng.integers(0, 2)) for box in boxes]

    a, b = answers(picture(), picture()), answers(picture(), picture())
    task = Detection()
    found = task.distance(a, b)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_array_equal(found, task.distance(b, a))
    np.testing.assert_array_equal(task.distance(a, a), 0)
    rows = np.array([1, 0, 1])
    np.testing.assert_array_equal(task.distance(a.take(rows), b.take(rows)), found[rows])


# ----------------------------------------------------------------------------------------- signal


def test_the_signal_is_small_whatever_the_number_of_cells() -> None:
    outputs = yolov8_output([(BOX, 0.9, 1)], [], cells=8400, classes=80)
    found = Detection("yolov8").signal(outputs)
    assert found.shape == (2, 1024)
    assert found.nbytes / len(found) <= 8192


def test_the_signal_sees_scores_and_boxes_but_no_background() -> None:
    task = Detection("yolov8", size=(640, 640))
    outputs = yolov8_output([(BOX, 0.9, 1)], cells=8400)
    before = task.signal(outputs)

    def gap(cell: int, row: int, by: float) -> float:
        other = {"output0": outputs["output0"].copy()}
        other["output0"][0, row, cell] += by
        return float(((task.signal(other) - before) ** 2).sum())

    assert gap(0, 4 + 1, -0.3) > 0.08  # the score of the box
    assert gap(0, 0, 64) > 0.01  # its place: a tenth of the input, twice
    assert gap(500, 0, 64) == 0  # the place of a cell without a score
    assert gap(0, 4 + 1, -0.3) > gap(0, 4 + 1, -0.1)


def test_the_signal_of_suppressed_boxes_does_not_depend_on_their_order() -> None:
    task = Detection("nms", size=(640, 640))
    rows = np.array([[[*BOX, 0.9, 1], [*FAR, 0.8, 2]]])
    moved = rows + np.array([8, 0, 8, 0, 0, 0])
    other_class = rows + np.array([0, 0, 0, 0, 0, 1])
    before = task.signal({"o": rows})
    np.testing.assert_allclose(task.signal({"o": rows[:, ::-1]}), before)
    gaps = [float(((task.signal({"o": x}) - before) ** 2).sum()) for x in (moved, other_class)]
    assert 0 < gaps[0] < gaps[1]
    assert before.shape == (1, 512)


def test_the_signal_of_a_broken_candidate_is_finite() -> None:
    output = np.full((1, 9, 200), np.nan, np.float32)
    assert np.isfinite(Detection("yolov8").signal({"o": output})).all()
    assert Detection("yolov8").decode({"o": output}).lengths.tolist() == [0]


# ---------------------------------------------------------------------------------- mAP with labels


def made_up(seed: int) -> tuple[Answers, Answers]:
    """Return labels, and answers near them with wrong ones between."""
    rng = np.random.default_rng(seed)
    labels, found = [], []
    for _ in range(12):
        corner = rng.uniform(0, 200, (rng.integers(0, 7), 2))
        boxes = np.concatenate([corner, corner + rng.uniform(10, 90, corner.shape)], axis=1)
        kinds = rng.integers(0, 4, len(boxes))
        crowd = rng.random(len(boxes)) < 0.1
        labels.append(
            [(b, 2.0 if c else 0.0, k) for b, k, c in zip(boxes, kinds, crowd, strict=True)]
        )
        near = boxes + rng.normal(0, 6, boxes.shape)
        guesses = [(b, rng.random(), k) for b, k in zip(near, kinds, strict=True)]
        found.append([*guesses, *[(np.array([0, 0, 40, 50]), rng.random(), 5)]])
    return answers(*found), answers(*labels, scores=False)


@pytest.mark.parametrize("seed", [0, 1])
def test_scores_are_those_of_pycocotools_in_picture_pixels(
    seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same answers, stretched to a picture of other sides, through its own interface."""
    coco = pytest.importorskip("pycocotools.coco")
    cocoeval = pytest.importorskip("pycocotools.cocoeval")
    found, labels = made_up(seed)
    scores = Detection().scores(found, labels)
    assert capsys.readouterr().out == ""
    assert 0.05 < scores["mAP"] < scores["AP50"] < 1

    stretched = np.array([3.0, 0.5, 3.0, 0.5])
    truth = coco.COCO()
    truth.dataset = coco_truth(
        Answers({**labels.values, "boxes": labels.values["boxes"] * stretched}, labels.lengths)
    )
    truth.createIndex()
    picture = Answers({**found.values, "boxes": found.values["boxes"] * stretched}, found.lengths)
    evaluation = cocoeval.COCOeval(truth, truth.loadRes(coco_results(picture)), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    assert scores["mAP"] == pytest.approx(evaluation.stats[0], abs=1e-12)
    assert scores["AP50"] == pytest.approx(evaluation.stats[1], abs=1e-12)


def test_perfect_answers_score_1_and_none_score_0() -> None:
    pytest.importorskip("pycocotools")
    labels = answers([(BOX, 0, 3)], [(FAR, 0, 1), (BOX, 0, 1)], scores=False)
    right = answers([(BOX, 0.9, 3)], [(FAR, 0.9, 1), (BOX, 0.4, 1)])
    assert Detection().scores(right, labels) == pytest.approx({"mAP": 1.0, "AP50": 1.0})
    assert Detection().scores(answers([], []), labels) == {"mAP": 0.0, "AP50": 0.0}
    assert Detection().scores(right, answers([], [], scores=False)) == {}


def test_scores_of_resampled_pictures_are_those_of_an_evaluation_of_their_own() -> None:
    pytest.importorskip("pycocotools")
    found, labels = made_up(3)
    score = Detection().scorer(found, labels)
    rng = np.random.default_rng(0)
    for _ in range(4):
        rows = rng.integers(0, 12, 12)
        own = Detection().scores(found.take(rows), labels.take(rows))
        assert score(rows) == pytest.approx(own, abs=1e-12)
    assert score(None) == Detection().scores(found, labels)


def test_without_pycocotools_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(ConfigError, match=r"pip install 'seqto\[detection\]'"):
        Detection().scores(*made_up(0))


def test_labels_may_be_one_table_a_picture() -> None:
    pytest.importorskip("pycocotools")
    found, labels = made_up(2)
    values = labels.values
    table = np.column_stack([values["boxes"], values["classes"], values["crowd"]])
    tables = [table[items] for items in spans(labels.lengths)]
    assert Detection().scores(found, tables) == Detection().scores(found, labels)


def test_boxes_in_a_crowd_are_no_errors() -> None:
    pytest.importorskip("pycocotools")
    inside = [((300 + 10 * k, 300, 308 + 10 * k, 320), 0.9, 1) for k in range(3)]
    found = answers([(BOX, 0.5, 1), *inside])
    for crowd, wanted in ((2, 1.0), (0, 0.0)):
        labels = answers([(BOX, 0, 1), (FAR, crowd, 1)], scores=False)
        assert (Detection().scores(found, labels)["AP50"] == pytest.approx(1)) == bool(wanted)


def test_results_have_cocos_format() -> None:
    found = answers([(BOX, 0.5, 1)], [(FAR, 0.25, 0)])
    results = coco_results(found, image_ids=[7, 42], category_ids=[1, 90])
    assert results == [
        {"image_id": 7, "category_id": 90, "bbox": [100, 40, 80, 60], "score": 0.5},
        {"image_id": 42, "category_id": 1, "bbox": [300, 300, 40, 60], "score": 0.25},
    ]


# --------------------------------------------------------------------------------------- settings


def test_mAP_has_thresholds_of_its_own() -> None:  # noqa: N802
    task = Detection("yolov8", nms=0.45)
    assert task.for_labels(nms=0.7) == Detection("yolov8", score=0.001, nms=0.7)
    assert task.for_labels().nms == 0.45


def test_a_task_is_the_same_after_its_fields_went_through_json() -> None:
    task = Detection("nms", size=(480, 640), names=("a", "b"))
    fields = json.loads(json.dumps(dataclasses.asdict(task)))
    assert Detection(**fields) == task


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"score": 1.5}, r"task\.score = 1\.5 must be between 0 and 1"),
        ({"nms": True}, r"task\.nms"),
        ({"decode": "yolo8"}, "did you mean 'yolov8'"),
        ({"classes": 0}, r"task\.classes = 0"),
        ({"size": [640]}, r"\[height, width\]"),
        ({"box_format": "xywh"}, "none of xyxy, cxcywh, yxyx"),
        ({"thresold": 1}, "has no setting 'thresold'"),
    ],
)
def test_wrong_settings_are_refused(settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plugins.build(plugins.TASKS, {"kind": "detection", **settings})


def test_outputs_that_do_not_look_like_scores_or_boxes_get_a_caution() -> None:
    outputs = yolov8_output([(BOX, 0.9, 1)])
    task = Detection("yolov8")
    assert task.check(outputs) is None
    logits = copy.deepcopy(outputs)
    logits["output0"][0, 4:] -= 5
    assert "from -5 to 0, not from 0 to 1" in (task.check(logits) or "")
    corners = {"boxes": np.array([[[140, 70, 80, 60.0]] * 30]), "scores": np.full((1, 30, 2), 0.9)}
    assert "have no area" in (Detection("boxes-scores").check(corners) or "")
    shares = {"boxes": np.array([[[0.1, 0.1, 0.5, 0.9]]]), "scores": np.ones((1, 1, 1))}
    small = Detection("boxes-scores", size=(640, 640))
    assert "set task.normalised = true" in (small.check(shares) or "")
    assert dataclasses.replace(small, normalised=True).check(shares) is None
    twice = {"boxes": np.array([[[0, 0, 9e5, np.inf]]]), "scores": np.ones((1, 1, 1))}
    assert "set task.decode" in (small.check(twice) or "")
    assert Detection("boxes-scores", box_format="cxcywh").check(corners) is None


@pytest.mark.parametrize(("strong", "background"), [(0, "0"), (4, "-1"), (2, None)])
def test_a_class_that_fills_most_cells_is_doubted(strong: int, background: str | None) -> None:
    """DETR's last class is no object; taken for one, its boxes would be all that is judged."""
    scores = np.full((1, 8, 5), 0.1)
    scores[:, :6, strong] = 0.9
    boxes = np.tile(np.array([0.0, 0.0, 8.0, 8.0]), (1, 8, 1))
    outputs = {"logits": scores, "boxes": boxes}
    caution = Detection("boxes-scores", size=(16, 16)).check(outputs)
    if background is None:
        assert caution is None
        return
    assert f"Class {strong} is the strongest in 75% of the cells" in (caution or "")
    assert f"task.background = {background} " in (caution or "")
    known = Detection("boxes-scores", size=(16, 16), background=int(background))
    assert known.check(outputs) is None


def test_a_float_model_that_finds_nothing_is_said() -> None:
    task = Detection("boxes-scores", size=(16, 16))
    boxes = np.tile(np.array([0.0, 0.0, 8.0, 8.0]), (3, 8, 1))
    nothing = task.decode({"scores": np.full((3, 8, 5), 0.1), "boxes": boxes})
    text = "no box with a score of 0.25 or more in 3 pictures"
    assert text in (task.check_answers(nothing) or "")
    about = {"output": {}, "caution": None}
    parts = [scoring.Decoded(nothing, np.zeros((3, 4)))]
    reference = scoring.reference_from(task, "evaluation", parts, labels=None, about=about)
    assert text in (reference.caution or "")
    scores = np.full((3, 8, 5), 0.1)
    scores[0, 0, 1] = 0.9
    assert task.check_answers(task.decode({"scores": scores, "boxes": boxes})) is None

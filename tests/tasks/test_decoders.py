"""Decoders against outputs that were made by hand from known boxes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from seqto.errors import ConfigError, ModelError
from seqto.tasks.candidates import Candidates, DecoderSettings
from seqto.tasks.decoders import DECODERS, find_decoder
from seqto.tasks.guess_decoder import guess_decoder

BOX = (100.0, 40.0, 180.0, 100.0)  # centre 140, 70; size 80 × 60


def run(decode: str, outputs: dict, **settings: object) -> Candidates:
    return find_decoder(decode)(outputs, DecoderSettings(**settings))


def strongest(found: Candidates, sample: int = 0) -> tuple[list[float], float, int]:
    """Return the strongest box of a sample with its score and class."""
    scores = np.asarray(found.scores[sample])
    if found.classes is not None:
        k = int(scores.argmax())
        return found.boxes[sample][k].tolist(), float(scores[k]), int(found.classes[sample][k])
    cell, kind = np.unravel_index(scores.argmax(), scores.shape)
    return found.boxes[sample][cell].tolist(), float(scores[cell, kind]), int(kind)


def test_yolov8_has_centres_sizes_and_scores_by_class() -> None:
    output = np.zeros((2, 84, 8400), np.float32)
    output[1, :4, 77] = 140, 70, 80, 60
    output[1, 4 + 23, 77] = 0.75
    found = run("yolov8", {"output0": output})
    assert found.scores.shape == (2, 8400, 80)
    assert strongest(found, 1) == (list(BOX), 0.75, 23)
    assert run("yolov11", {"output0": output}).scores.shape == (2, 8400, 80)


def test_yolov8_leaves_out_what_is_behind_the_classes() -> None:
    found = run(
        "yolov8", {"output0": np.zeros((1, 116, 8400)), "p": np.zeros((1, 32, 9, 9))}, classes=80
    )
    assert found.scores.shape == (1, 8400, 80)


def test_yolov5_multiplies_objectness_and_class() -> None:
    output = np.zeros((1, 25200, 85), np.float32)
    output[0, 5, :5] = 140, 70, 80, 60, 0.5
    output[0, 5, 5 + 7] = 0.5
    assert strongest(run("yolov5", {"output": output})) == (list(BOX), 0.25, 7)


def test_yolox_adds_the_grid_and_takes_powers() -> None:
    # 64 × 96: grids of 8 × 12, 4 × 6 and 2 × 3; the second begins at cell 96
    output = np.zeros((1, 96 + 24 + 6, 8), np.float32)
    cell = 96 + 2 * 6 + 5  # stride 16, row 2, column 5
    output[0, cell] = 0.25, 0.5, np.log(2), np.log(1.5), 0.5, 0, 0.8, 0
    box, score, kind = strongest(run("yolox", {"output": output}, size=(64, 96)))
    np.testing.assert_allclose(box, [5.25 * 16 - 16, 2.5 * 16 - 12, 5.25 * 16 + 16, 2.5 * 16 + 12])
    assert (score, kind) == (pytest.approx(0.4), 1)


def test_yolox_knows_the_side_of_a_square_input() -> None:
    assert run("yolox", {"o": np.zeros((1, 8400, 85), np.float32)}).boxes[0, -1].mean() == 608
    with pytest.raises(ModelError, match=r"126 cells .* task\.size"):
        run("yolox", {"o": np.zeros((1, 126, 8), np.float32)})


def test_fastestdet_takes_the_best_class_of_a_cell() -> None:
    output = np.full((1, 85, 22, 22), -30.0, np.float32)
    output[0, 0], output[0, 5:] = 0, 0
    output[0, :, 4, 8] = 0
    output[0, 0, 4, 8] = 0.5
    output[0, 1:5, 4, 8] = (
        np.arctanh(0.75),
        np.arctanh(0.375),
        *(np.log(p / (1 - p)) for p in (0.25, 0.125)),
    )
    output[0, 5 + 16, 4, 8], output[0, 5 + 15, 4, 8] = 0.7, 0.3
    found = run("fastestdet", {"758": output})
    box, score, kind = strongest(found)
    np.testing.assert_allclose(box, [140 - 44, 70 - 22, 140 + 44, 70 + 22], rtol=1e-5)
    assert (score, kind) == (pytest.approx(0.5**0.6 * 0.7**0.4, rel=1e-6), 16)
    assert np.count_nonzero(found.scores) == 1


@pytest.mark.parametrize(
    ("box_format", "given"),
    [("xyxy", BOX), ("cxcywh", (140, 70, 80, 60)), ("yxyx", (40, 100, 100, 180))],
)
def test_boxes_and_scores_in_two_outputs(box_format: str, given: tuple) -> None:
    boxes, scores = np.zeros((1, 50, 4)), np.zeros((1, 50, 3))
    boxes[0, 9], scores[0, 9, 2] = given, 0.6
    for outputs in (
        {"boxes": boxes, "scores": scores},
        {"scores": scores, "boxes": boxes[:, :, None]},
        {"boxes": boxes, "scores": scores.transpose(0, 2, 1)},
    ):
        assert strongest(run("boxes-scores", outputs, box_format=box_format)) == (list(BOX), 0.6, 2)


def test_logits_and_shares_of_the_input() -> None:
    boxes, logits = np.zeros((1, 50, 4)), np.full((1, 50, 3), -9.0)
    boxes[0, 9], logits[0, 9, 2] = (0.5, 0.25, 0.5, 0.5), 0.0
    settings = {"box_format": "cxcywh", "normalised": True, "size": (100, 200)}
    outputs = {"logits": logits, "pred_boxes": boxes}
    found = run("boxes-scores", outputs, activation="sigmoid", **settings)
    assert strongest(found) == ([50, 0, 150, 50], 0.5, 2)
    softmax = run("boxes-scores", outputs, activation="softmax", **settings)
    np.testing.assert_allclose(softmax.scores.sum(axis=2), 1)


def test_ssd_leaves_out_rows_behind_the_count() -> None:
    outputs = {
        "detection_boxes": np.array([[[40, 100, 100, 180], [0, 0, 1, 1]]], float),
        "detection_classes": np.array([[17.0, 3.0]]),
        "detection_scores": np.array([[0.5, 0.9]]),
        "num_detections": np.array([1.0]),
    }
    found = run("ssd", outputs, box_format="yxyx")
    assert strongest(found) == (list(BOX), 0.5, 17)
    assert outputs["detection_scores"][0, 1] == 0.9, "the outputs are not changed"


def test_ssd_without_a_count_and_without_a_batch_axis() -> None:
    outputs = {
        "boxes": np.array([BOX, (0, 0, 1, 1)]),
        "labels": np.array([17, 3]),
        "scores": np.array([0.5, 0.2]),
    }
    assert strongest(run("ssd", outputs)) == (list(BOX), 0.5, 17)


def test_rows_after_nms() -> None:
    six = np.array([[[*BOX, 0.5, 17], [0, 0, 0, 0, 0.9, -1]]])
    seven = np.array([[0, *BOX, 17, 0.5]])
    assert strongest(run("nms", {"o": six})) == (list(BOX), 0.5, 17)
    assert strongest(run("nms", {"o": seven})) == (list(BOX), 0.5, 17)
    assert run("nms", {"o": np.zeros((1, 0, 6))}).scores.shape == (1, 0)
    assert run("nms", {"o": np.zeros((1, 6))}).scores.shape == (1, 1)


@pytest.mark.parametrize("decode", [d for d in DECODERS if d not in ("ssd", "boxes-scores")])
def test_an_output_of_another_shape_is_an_error_with_a_way_out(decode: str) -> None:
    with pytest.raises(ModelError, match=r"set task\.output or task\.decode"):
        run(decode, {"o": np.zeros((1, 1000))})


@pytest.mark.parametrize("decode", ["ssd", "boxes-scores"])
def test_missing_outputs_are_named(decode: str) -> None:
    with pytest.raises(ModelError, match=r"shapes \[\[1, 1000\]\]"):
        run(decode, {"o": np.zeros((1, 1000))})


def test_too_many_classes_are_an_error() -> None:
    with pytest.raises(ModelError, match=r"task\.classes = 81"):
        run("yolov8", {"o": np.zeros((1, 84, 100))}, classes=81)


OWN = """
import numpy as np

def decode(outputs):
    rows = outputs["rows"]
    return rows[..., :4], rows[..., 4:]

def short(outputs):
    return outputs["rows"]

def broken(outputs):
    return outputs["nothing"], 0

number = 3
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_decoders.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_decoders", raising=False)
    return "own_decoders"


def test_a_users_function_decodes(own: str) -> None:
    rows = np.array([[[*BOX, 0.1, 0.6]]])
    assert strongest(run(f"{own}:decode", {"rows": rows})) == (list(BOX), 0.6, 1)


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("short", ModelError, "failed"),
        ("broken", ModelError, "KeyError"),
        ("number", ConfigError, "no function"),
        ("absent", ConfigError, "cannot be imported"),
    ],
)
def test_a_users_function_that_fails_says_so(own: str, name: str, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        run(f"{own}:{name}", {"rows": np.zeros((1, 3, 6))})


def test_an_unknown_decoder_names_near_ones() -> None:
    with pytest.raises(ConfigError, match=r"'yolo8' is no decoder; did you mean 'yolov8'"):
        find_decoder("yolo8")


@pytest.mark.parametrize(
    ("shapes", "decoder", "words"),
    [
        ({"output0": (1, 84, 8400)}, "yolov8", "YOLOv8-shaped: 84 × 8400"),
        ({"output0": (1, 5, 8400)}, "yolov8", "5 × 8400"),
        ({"output0": (1, 116, 8400), "output1": (1, 32, 160, 160)}, "yolov8", "116 × 8400"),
        ({"output": (1, 25200, 85)}, "yolov5", "YOLOv5-shaped: 25200 × 85"),
        ({"output": (1, 25200, 6)}, "yolov5", "25200 × 6"),
        ({"output": (1, 8400, 85)}, "yolox", "YOLOX-shaped: 8400 × 85"),
        ({"output": (1, 3549, 85)}, "yolox", "3549 × 85"),
        ({"output0": (1, 300, 6)}, "nms", "after NMS: 300 × 6"),
        ({"output": (None, 7)}, "nms", "any number × 7"),
        ({"boxes": (1, 300, 4), "scores": (1, 300, 80)}, "boxes-scores", "300 cells, 80 classes"),
        ({"scores": (1, 4420, 2), "boxes": (1, 4420, 4)}, "boxes-scores", "4420 cells"),
        ({"confs": (1, 10647, 80), "boxes": (1, 10647, 1, 4)}, "boxes-scores", "10647"),
        ({"boxes": (None, 4), "labels": (None,), "scores": (None,)}, "ssd", "SSD-shaped"),
        (
            {
                "num_detections": (1,),
                "detection_boxes": (1, 100, 4),
                "detection_scores": (1, 100),
                "detection_classes": (1, 100),
            },
            "ssd",
            "and a count",
        ),
        ({"758": (1, 85, 22, 22)}, "fastestdet", "FastestDet-shaped"),
    ],
)
def test_the_decoder_is_told_by_shapes(shapes: dict, decoder: str, words: str) -> None:
    found = guess_decoder(shapes)
    assert found is not None
    assert found.decoder == decoder
    assert words in found.sentence
    assert found.sentence.startswith("taken for a detector, ")


@pytest.mark.parametrize(
    "shapes",
    [
        {"y": (1, 1000)},
        {"y": (None, 6)[::-1]},
        {"y": (1, 21, 520, 520)},
        {"y": (1, 1, 320, 320), "z": (1, 1, 320, 320)},
        {"y": (1, 128, 384)[:2]},
        {"a": (1, 255, 80, 80), "b": (1, 255, 40, 40), "c": (1, 255, 20, 20)},
        {"y": (1,)},
    ],
)
def test_what_is_no_detector_is_taken_for_none(shapes: dict) -> None:
    assert guess_decoder(shapes) is None


def test_the_input_tells_grids_of_unlike_sides_apart() -> None:
    # 384 × 640: 5040 cells, which no square has
    assert guess_decoder({"o": (1, 5040, 85)}, size=(384, 640)).decoder == "yolox"
    assert guess_decoder({"o": (1, 15120, 85)}, size=(384, 640)).decoder == "yolov5"


def test_names_tell_what_shapes_do_not() -> None:
    detr = guess_decoder({"logits": (1, 300, 80), "pred_boxes": (1, 300, 4)})
    assert (detr.box_format, detr.activation, detr.normalised) == ("cxcywh", "sigmoid", True)
    completed = detr.complete(DecoderSettings(activation="softmax"))
    assert (completed.box_format, completed.activation) == ("cxcywh", "softmax")


def level_outputs(size: int, *, anchors: int, **widths: int) -> dict[str, np.ndarray]:
    """Return zeros for strides 8, 16, 32."""
    return {
        f"{name}_{stride}": np.zeros((1, anchors * (size // stride) ** 2, width), np.float32)
        for name, width in widths.items()
        for stride in (8, 16, 32)
    }


def test_levels_add_distances_in_strides_to_the_cells_corner() -> None:
    outputs = level_outputs(320, anchors=2, score=1, bbox=4, kps=10)
    row = 2 * (4 * 20 + 8) + 1  # stride 16: row 4, column 8, the second box of the cell
    outputs["score_16"][0, row] = 0.75
    outputs["bbox_16"][0, row] = 28 / 16, 24 / 16, 52 / 16, 36 / 16  # from 128, 64
    found = run("levels", outputs, size=(320, 320))
    assert found.scores.shape == (1, 2 * (1600 + 400 + 100), 1)
    box, score, kind = strongest(found)
    assert (box, score, kind) == (list(BOX), 0.75, 0)
    assert strongest(run("levels", outputs))[0] == list(BOX)  # the square is told by the cells


def test_levels_take_the_expectation_of_a_distribution() -> None:
    outputs = level_outputs(320, anchors=1, cls=80, dis=32)
    row = 4 * 20 + 8
    outputs["cls_16"][0, row, 5] = 0.5
    bins = outputs["dis_16"][0, row].reshape(4, 8)
    bins[:] = -100.0
    # from the middle of the cell, 136, 72: 36, 32, 44 and 28 pixels
    for side, (low, share) in enumerate([(2, 0.25), (1, 0.999999), (2, 0.75), (1, 0.75)]):
        bins[side, low : low + 2] = np.log([1 - share, share])  # low + share
    box, score, kind = strongest(run("levels", outputs, size=(320, 320)))
    np.testing.assert_allclose(box, BOX, rtol=1e-5)
    assert (score, kind) == (0.5, 5)


def test_levels_with_objectness_have_centres_and_log_sizes() -> None:
    outputs = level_outputs(320, anchors=1, cls=1, obj=1, bbox=4, kps=10)
    row = 4 * 20 + 8
    outputs["cls_16"][0, row], outputs["obj_16"][0, row] = 1.0, 0.25
    outputs["bbox_16"][0, row] = 12 / 16, 6 / 16, np.log(80 / 16), np.log(60 / 16)
    box, score, _ = strongest(run("levels", outputs, size=(320, 320)))
    np.testing.assert_allclose(box, BOX, rtol=1e-5)
    assert score == 0.5


def test_the_background_is_no_box() -> None:
    boxes = np.zeros((1, 30, 4), np.float32)
    boxes[0, 3] = BOX
    scores = np.zeros((1, 30, 2), np.float32)
    scores[..., 0] = 1.0
    scores[0, 3] = 0.4, 0.6
    found = run("boxes-scores", {"boxes": boxes, "scores": scores}, background=0)
    box, score, kind = strongest(found)
    assert (box, kind) == (list(BOX), 1)
    assert score == np.float32(0.6)
    with pytest.raises(ModelError, match=r"task\.background = 2 is no class: there are 2"):
        run("boxes-scores", {"boxes": boxes, "scores": scores}, background=2)


def test_queries_are_shares_of_the_input() -> None:
    output = np.zeros((1, 300, 84), np.float32)
    output[0, 9, :4] = 140 / 320, 70 / 320, 80 / 320, 60 / 320
    output[0, 9, 4 + 17] = 0.5
    box, score, kind = strongest(run("queries", {"output0": output}, size=(320, 320)))
    np.testing.assert_allclose(box, BOX, rtol=1e-6)
    assert (score, kind) == (0.5, 17)

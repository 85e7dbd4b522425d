"""The kind of task is told by inputs and outputs, and said in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import nets
import picture_nets
from net_builder import Net
from seqto import plugins
from seqto.study.guess_task import signature
from seqto.tasks.guess import guess_task, guess_text_task
from seqto.tasks.task_guess import Tensor

PICTURE = {"images": Tensor((1, 3, 640, 640))}


def one(*shape: int | None, **more: Any) -> dict[str, Tensor]:
    return {"y": Tensor(shape, **more)}


@pytest.mark.parametrize(
    ("outputs", "kind", "words"),
    [
        (one(1, 84, 8400), "detection", "taken for a detector, YOLOv8-shaped: 84 × 8400"),
        (one(1, 25200, 85), "detection", "YOLOv5-shaped"),
        (one(1, 21, 640, 640), "segmentation", "21 classes in 'y' (21 × 640 × 640)"),
        (one(1, 21, 80, 80, made_by="Resize"), "segmentation", "21 classes"),
        (one(1, 17, 160, 160), "dense", "no known kind"),  # key points have such maps too
        (one(1, 640, 640, 21), "segmentation", "21 classes"),
        (one(1, 1, 640, 640, made_by="Sigmoid"), "segmentation", "a soft mask"),
        (one(1, 640, 640, dtype="int64"), "segmentation", "class numbers"),
        (one(1, 1, 640, 640), "dense", "dense"),
        (one(1, 3, 640, 640), "dense", "dense"),
        (one(1, 3, 1280, 1280), "dense", "dense"),
        (one(1, dtype="int64"), "classification", "integers in 'y'"),
        (one(1, 1000), "classification", "1000 scores in 'y'"),
        (one(1, 1000, 1, 1), "classification", "1000 scores"),
        (one(1, 14, made_by="Sigmoid"), "multi-label", "14 scores by Sigmoid"),
        (one(1, 1), "dense", "no known kind of task fits output 'y' (1)"),
        (one(1, 512, 20, 20), "dense", "relative error"),
    ],
)
def test_a_picture_models_task_is_told_by_its_outputs(outputs: dict, kind: str, words: str) -> None:
    found = guess_task(PICTURE, outputs)
    assert found.kind == kind
    assert words in found.sentence
    assert "\n" not in found.sentence


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        (one(None, 7), "classification"),  # seven feelings of a face, open batch
        (one(None, 6), "classification"),
        (one(None, 7, selected=True), "detection"),  # rows that NMS has left
        (one(1, 300, 6, selected=True), "detection"),
        (one(1, 300, 6), "dense"),
        (one(1, 40, 6625), "dense"),  # a recogniser's letters
        (one(1, 384, 1600), "dense"),  # flattened features of 40 × 40 cells
        (one(1, 7, 1600, made_by="Concat"), "detection"),
        (one(1, 84, 34000), "detection"),  # grids of strides 4, 8, 16, 32
        (one(1, 56, 8400), "dense"),  # boxes with 17 key points
        (one(1, 3598, 112), "dense"),  # NanoDet: distributions beside the scores
        (one(1, 6300, 85), "dense"),  # no grid has so many cells
        (one(1, 6000, 85), "detection"),  # strides 16 and 32, three boxes a cell
        (one(1, 25200, 85) | {"raw": Tensor((1, 3, 80, 80, 85))}, "detection"),
        (one(1, 102000, 85), "detection"),  # strides 4 to 32, three boxes a cell
        (one(1, 4, 640, 640), "dense"),  # a picture with its opacity
        (one(1, 2, 640, 640), "dense"),  # flow, or colours
        (one(1, 2, 640, 640, made_by="Softmax"), "segmentation"),
        (one(1, 256, 40, 40), "dense"),
        (one(1, 12, 640, 640), "segmentation"),
        (one(1, 512, made_by="LpNormalization"), "embedding"),
        (one(1, 512, made_by="BatchNormalization"), "embedding"),
        (one(1, 2, made_by="Tanh"), "dense"),
        ({"a": Tensor((1, 255, 80, 80)), "b": Tensor((1, 255, 40, 40))}, "dense-outputs"),
        ({"out": Tensor((1, 21, 640, 640)), "aux": Tensor((1, 21, 640, 640))}, "segmentation"),
        # offsets from anchors are no boxes yet; both outputs count
        ({"loc": Tensor((1, 16800, 4)), "conf": Tensor((1, 16800, 2))}, "dense-outputs"),
        ({"scores": Tensor((1, 4420, 2)), "boxes": Tensor((1, 4420, 4))}, "detection"),
        ({"p": Tensor((1, 12, 4)), "q": Tensor((1, 12, 9))}, "dense-outputs"),
        ({"image_embeds": Tensor((1, 512))}, "embedding"),
        ({"age": Tensor((1, 8)), "gender": Tensor((1, 2))}, "classification"),
    ],
    ids=str,
)
def test_what_could_be_something_else_is_no_detector_and_no_mask(outputs: dict, kind: str) -> None:
    found = guess_task(PICTURE, outputs)
    assert found.kind == kind, found.sentence
    if kind.startswith("dense"):
        assert "task.kind" in found.sentence, "the line says what to do"


def heads(cells: tuple[int, ...], **widths: int) -> dict[str, Tensor]:
    """Return outputs of each level, as `score_0`; named by what they hold."""
    return {
        f"{name}_{i}": Tensor((1, count, width), made_by="Sigmoid" if name == "score" else "Conv")
        for name, width in widths.items()
        for i, count in enumerate(cells)
    }


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        (heads((12800, 3200, 800), score=1, box=4, points=10), "strides 8, 16, 32: 16800 cells"),
        (heads((6400, 1600, 400, 100), score=80, box=32), "8500 cells, 80 classes"),
        (heads((6400, 1600, 400), score=1, obj=1, box=4, points=10), "8400 cells, 1 class"),
    ],
    ids=["two boxes a cell", "distributions", "objectness"],
)
def test_raw_heads_of_each_stride_are_one_detector(outputs: dict, words: str) -> None:
    found = guess_task(PICTURE, outputs)
    assert (found.kind, found.settings["decode"]) == ("detection", "levels")
    assert words in found.sentence
    assert "activation" not in found.settings


def test_heads_without_a_sigmoid_get_one() -> None:
    raw = {
        name: Tensor(t.shape, made_by="Conv")
        for name, t in heads((6400, 1600, 400), score=80, box=4).items()
    }
    assert guess_task(PICTURE, raw).settings["activation"] == "sigmoid"


def test_heads_of_other_pictures_are_no_levels() -> None:
    """6,300 cells are no grid on 640 × 640, and one level alone is none."""
    odd = heads((6300, 1600, 400), score=1, box=4)
    assert guess_task(PICTURE, odd).kind != "detection"


def test_a_softmax_over_cells_counts_the_background() -> None:
    scores = Tensor((1, 4420, 2), made_by="Softmax")
    found = guess_task(PICTURE, {"scores": scores, "boxes": Tensor((1, 4420, 4))})
    assert found.settings["background"] == 0
    labels = Tensor((1, 4420, 80), made_by="Sigmoid")
    found = guess_task(PICTURE, {"scores": labels, "boxes": Tensor((1, 4420, 4))})
    assert "background" not in found.settings


def test_queries_that_topk_has_chosen_are_a_detector() -> None:
    found = guess_task(PICTURE, one(1, 300, 84, selected=True, made_by="Concat"))
    assert found.kind == "detection"
    assert found.settings["decode"] == "queries"
    assert found.settings["classes"] == 80
    assert guess_task(PICTURE, one(1, 300, 84, made_by="Concat")).kind == "dense"


def test_side_outputs_of_unknown_size_do_not_hide_a_mask() -> None:
    first = Tensor((1, 1, 640, 640), made_by="Sigmoid")
    side = Tensor((None, None, None, None), made_by="Sigmoid")
    assert guess_task(PICTURE, {"d0": first, "d1": side}).kind == "segmentation"
    small = Tensor((1, 1, 80, 80), made_by="Sigmoid")
    assert guess_task(PICTURE, {"d0": first, "d1": small}).kind == "dense-outputs"


def test_numbers_beside_a_softmax_are_no_scores() -> None:
    """A box and its score: the second output has the classes."""
    outputs = {"box": Tensor((1, 4)), "face": Tensor((1, 2), made_by="Softmax")}
    assert guess_task(PICTURE, outputs).kind == "dense-outputs"
    turned = dict(reversed(outputs.items()))
    assert guess_task(PICTURE, turned).kind == "classification"


def test_a_negative_size_is_an_open_one() -> None:
    net = Net(seed=4)
    net.add("Sigmoid", [net.conv("x", (3, 1))], output="y")
    model = net.model({"x": ["N", 3, "H", "W"]}, {"y": ["N", 1, "H", "W"]})
    for value in (*model.graph.input, *model.graph.output):
        for side in (0, 2, 3):
            value.type.tensor_type.shape.dim[side].dim_value = -1
    inputs, outputs = signature(model)
    assert inputs["x"].shape == (None, 3, None, None)
    assert "-1" not in guess_task(inputs, outputs).sentence


def test_what_the_exporter_says_wins_over_shapes() -> None:
    boxes = one(1, 20, 8400)
    assert guess_task(PICTURE, boxes).kind == "detection"
    assert guess_task(PICTURE, boxes, said="detect").kind == "detection"
    turned = guess_task(PICTURE, boxes, said="obb")
    assert turned.kind == "dense"
    assert "'obb'" in turned.sentence


def test_outputs_that_are_not_judged_are_named() -> None:
    found = guess_task(PICTURE, {"age": Tensor((1, 8)), "gender": Tensor((1, 2))})
    assert found.sentence.endswith("; 1 other output is not judged (task.output chooses)")


def test_without_a_picture_there_is_no_detector() -> None:
    assert guess_task({"x": Tensor((1, 64))}, one(1, 84, 8400)).kind == "dense"
    two = {"a": Tensor((1, 3, 64, 64)), "b": Tensor((1, 3, 64, 64))}
    assert guess_task(two, one(1, 2, 64, 64)).kind == "dense"


def test_open_sizes_are_no_hindrance() -> None:
    open_picture = {"x": Tensor((None, 3, None, None))}
    assert guess_task(open_picture, one(None, 84, 8400)).kind == "detection"
    assert guess_task(open_picture, one(None, 21, None, None)).kind == "dense"
    resized = one(None, 21, None, None, made_by="Resize")
    assert guess_task(open_picture, resized).kind == "segmentation"
    named = ("N", "", "height", "width")
    open_picture = {"x": Tensor((None, 3, None, None), names=named)}
    same = {"y": Tensor((None, 21, None, None), names=named)}
    assert guess_task(open_picture, same).kind == "segmentation"
    larger = {"y": Tensor((None, 21, None, None), names=("N", "", "h2", "w2"))}
    assert guess_task(open_picture, larger).kind == "dense"


def test_a_map_whose_sides_are_computed_is_told_by_its_name_or_maker() -> None:
    """torch exports a Resize to a size that shape inference does not know."""
    logits = {"logits": Tensor((None, 21, None, None), made_by="Conv")}
    assert guess_task(PICTURE, logits).kind == "segmentation"
    assert guess_task(PICTURE, one(None, 21, None, None, made_by="Resize")).kind == "segmentation"
    assert guess_task(PICTURE, one(None, 1, None, None, made_by="Sigmoid")).kind == "segmentation"
    assert guess_task(PICTURE, one(None, 21, None, None, made_by="Conv")).kind == "dense"


def test_queries_without_a_number_are_named_so() -> None:
    outputs = {"logits": Tensor((1, None, 21)), "pred_boxes": Tensor((1, None, 4))}
    assert "two outputs: any number of cells, 21 classes" in guess_task(PICTURE, outputs).sentence


def test_a_detector_whose_height_and_width_are_open_is_told_by_its_metadata() -> None:
    """Exporters of YOLO models name the task; the number of cells follows from the picture."""
    pictures = {"images": Tensor((None, 3, None, None))}
    heads = one(None, 22, None)
    found = guess_task(pictures, heads, said="detect")
    assert found.kind == "detection"
    assert found.settings == {"decode": "yolov8", "classes": 18}
    assert "the model's metadata name the task 'detect'" in found.sentence
    assert guess_task(pictures, heads).kind == "dense"
    assert guess_task(pictures, one(None, 4, None), said="detect").kind == "dense"


def test_what_was_guessed_are_settings_of_the_task() -> None:
    detector = guess_task(PICTURE, one(1, 84, 8400))
    task = plugins.build(plugins.TASKS, {"kind": "detection", **detector.settings})
    assert (task.decoder, task.classes, task.size) == ("yolov8", 80, (640, 640))
    segmenter = guess_task(PICTURE, one(1, 640, 640, 21))
    assert (
        plugins.build(plugins.TASKS, {"kind": "segmentation", **segmenter.settings}).layout
        == "NHWC"
    )


@pytest.mark.parametrize(
    ("name", "shape", "kind"),
    [
        ("logits", (None, None, 32000), "language-model"),
        ("last_hidden_state", (None, None, 384), "embedding"),
        ("sentence_embedding", (None, 384), "embedding"),
        ("logits", (None, 3), "text-classification"),
        ("logits", (None, None, 9), "token-classification"),
        ("start_logits", (None, None), None),
        ("score", (None, 1), None),
    ],
)
def test_models_of_texts(name: str, shape: tuple[int | None, ...], kind: str | None) -> None:
    guess = guess_text_task({name: Tensor(shape)})
    assert (guess.kind if guess else None) == kind


def test_all_outputs_of_a_model_of_arrays_count_unless_there_are_states() -> None:
    sound = {"sound": Tensor((None, 43844, 1))}
    notes = {"notes": Tensor((None, 172, 88)), "onsets": Tensor((None, 172, 88))}
    assert guess_task(sound, notes).kind == "dense-outputs"
    stream = {"sound": Tensor((None, 576)), "h": Tensor((1, 1, 128))}
    states = {"speech": Tensor((None,)), "hn": Tensor((1, None, 128))}
    found = guess_task(stream, states)
    assert found.kind == "dense"
    assert "1 other output is not judged" in found.sentence


def test_what_a_norm_makes_is_no_score_of_a_word() -> None:
    """A sentence encoder whose output has a number for a name."""
    hidden = Tensor((None, None, 384), made_by="LayerNormalization")
    guess = guess_text_task({"1234": hidden})
    assert guess is not None
    assert guess.kind == "embedding"


def vectors(divisor: str) -> Any:
    """Return vectors over their own length, or scores over a constant."""
    net = Net(seed=3)
    x = net.add("Flatten", [net.add("GlobalAveragePool", [net.conv("x", (3, 8))])])
    x = net.gemm(x, (8, 16))
    length = net.add("ReduceL2", [x], axes=[1], keepdims=1)
    constant = net.constant(np.array(0.07, np.float32))
    net.add("Div", [x, length if divisor == "length" else constant], output="y")
    return net.model({"x": ["N", 3, 16, 16]}, {"y": ["N", 16]})


def suppressed(*, classes: int = 7) -> Any:
    """Return rows that TopK has chosen."""
    net = Net(seed=4)
    x = net.add("Flatten", [net.add("GlobalAveragePool", [net.conv("x", (3, 8))])])
    x = net.gemm(x, (8, classes))
    order = net.constant(np.array([classes], np.int64))
    net.nodes.append(onnx.helper.make_node("TopK", [x, order], ["top", "which"]))
    net.add("Identity", ["top"], output="y")
    return net.model({"x": ["N", 3, 16, 16]}, {"y": ["N", classes]})


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (vectors("length"), "embedding"),
        (vectors("constant"), "classification"),
        (suppressed(), "detection"),
        (nets.decoder(group=2), "classification"),
        (picture_nets.detector(), "detection"),
    ],
    ids=["vectors", "scores", "suppressed", "six classes", "detector"],
)
def test_makers_are_read_from_the_graph(model: Any, kind: str) -> None:
    assert guess_task(*signature(model)).kind == kind


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (Tensor((None, 1)), True),
        (Tensor((None,)), True),
        (Tensor(()), True),  # the model takes one sample at a time
        (Tensor((1, 1, 1, 1)), True),
        (Tensor((None, 2)), False),
        (Tensor((None, None)), False),  # how many numbers is not known
        (Tensor((1000,)), False),  # one sample's scores
        (Tensor((None, 1), dtype="int64"), False),  # a class
        (Tensor((), has_shape=False), False),
    ],
    ids=str,
)
def test_one_number_a_sample_is_told_by_the_shape(tensor: Tensor, expected: bool) -> None:
    assert tensor.is_one_number({None}) == expected
    assert not Tensor((None,)).is_one_number({1}), "a vector of unknown length"

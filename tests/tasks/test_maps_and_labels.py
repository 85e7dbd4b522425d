"""Segmentation, dense outputs, several labels a sample: answers, distances, scores, signals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seqto import plugins
from seqto.errors import ConfigError, DataError, ModelError
from seqto.tasks.dense import Dense, relative_error
from seqto.tasks.dense_outputs import DenseOutputs
from seqto.tasks.multilabel import MultiLabel
from seqto.tasks.segmentation import Segmentation, nearest
from seqto.tasks.task import Answers

MASKS = arrays(np.uint8, (2, 5, 6), elements=st.integers(0, 3))


def masks(*values: list) -> Answers:
    return Answers({"mask": np.array(values, dtype=np.uint8)})


# ----------------------------------------------------------------------------------- segmentation


def test_a_soft_map_becomes_a_mask_by_its_threshold() -> None:
    soft = np.array([[[[0.5, 0.49], [0.9, 0.1]]]], np.float32)
    task = Segmentation("mask", output="a", threshold=0.5)
    assert task.decode({"b": soft * 0, "a": soft}).values["mask"].tolist() == [[[1, 0], [1, 0]]]


def test_classes_are_the_highest_channel_or_the_numbers_themselves() -> None:
    scores = np.zeros((1, 3, 2, 2), np.float32)
    scores[0, 2, 0], scores[0, 1, 1] = 1, 1
    wanted = [[[2, 2], [1, 1]]]
    assert Segmentation("classes").decode({"y": scores}).values["mask"].tolist() == wanted
    nhwc = Segmentation("classes", layout="NHWC").decode({"y": scores.transpose(0, 2, 3, 1)})
    assert nhwc.values["mask"].tolist() == wanted
    numbers = Segmentation().decode({"y": np.array(wanted)})
    assert numbers.values["mask"].tolist() == wanted
    assert numbers.values["mask"].dtype == np.uint8


def test_the_distance_of_object_masks_is_that_of_the_object() -> None:
    task = Segmentation("mask")
    a = masks([[1, 1, 0, 0]], [[0, 0, 0, 0]], [[1, 0, 0, 0]], [[1, 1, 1, 1]])
    b = masks([[0, 1, 1, 0]], [[0, 0, 0, 0]], [[0, 0, 0, 0]], [[1, 1, 1, 1]])
    np.testing.assert_allclose(task.distance(a, b), [2 / 3, 0, 1, 0])
    assert task.figures(a, b)["pixels_changed"].tolist() == [0.5, 0, 0.25, 0]


def test_the_distance_of_class_masks_is_the_mean_over_classes_that_appear() -> None:
    a, b = masks([[0, 0, 1, 2]]), masks([[0, 0, 1, 3]])
    # class 0: 2/2, 1: 1/1, 2: 0/1, 3: 0/1
    np.testing.assert_allclose(Segmentation("classes").distance(a, b), [0.5])
    # two classes only: the background still is one of them
    np.testing.assert_allclose(
        Segmentation("classes").distance(masks([[0, 0, 1, 1]]), masks([[0, 0, 0, 1]])),
        [1 - (2 / 3 + 1 / 2) / 2],
    )


@given(a=MASKS, b=MASKS, decoder=st.sampled_from(["mask", "classes", None]))
def test_the_distance_of_masks_is_a_share_symmetric_and_0_to_itself(
    a: np.ndarray, b: np.ndarray, decoder: str | None
) -> None:
    task = Segmentation(decoder)
    if decoder == "mask":
        a, b = a % 2, b % 2
    first, second = Answers({"mask": a}), Answers({"mask": b})
    found = task.distance(first, second)
    assert ((found >= 0) & (found <= 1)).all()
    np.testing.assert_array_equal(found, task.distance(second, first))
    np.testing.assert_array_equal(task.distance(first, first), 0)


def test_miou_of_an_object_is_the_mean_over_pictures() -> None:
    found = masks([[1, 1, 0, 0]], [[1, 0, 0, 0]])
    labels = masks([[1, 0, 0, 0]], [[1, 0, 0, 255]])
    assert Segmentation("mask").scores(found, labels) == {"mIoU": 0.75}


def test_miou_of_classes_is_over_all_pixels_without_those_to_ignore() -> None:
    found = masks([[0, 0, 1, 1]], [[2, 2, 1, 1]])
    labels = masks([[0, 1, 1, 255]], [[2, 2, 2, 1]])
    # class 0: 1/2, class 1: 2/4, class 2: 2/3
    score = Segmentation("classes").scores(found, labels)["mIoU"]
    assert score == pytest.approx((1 / 2 + 2 / 4 + 2 / 3) / 3)


def test_labels_of_another_size_are_taken_at_the_nearest_pixel() -> None:
    label = np.arange(16).reshape(1, 4, 4)
    assert nearest(label, (2, 2)).tolist() == [[[5, 7], [13, 15]]]
    assert nearest(label, (4, 4)).tolist() == label.tolist()


def test_masks_and_signals_are_bounded() -> None:
    large = np.random.default_rng(0).random((2, 21, 600, 700), np.float32)
    task = Segmentation("classes", max_pixels=10_000)
    assert task.decode({"y": large}).values["mask"][0].size <= 10_000
    assert task.signal({"y": large}).shape[1] <= 4096
    numbers = large.argmax(axis=1)
    assert task.signal({"y": numbers}).shape[1] <= 4096
    assert task.signal({"y": large}).shape[1] > 1000, "not thinned more than needed"


def test_the_signal_of_class_numbers_does_not_depend_on_their_size() -> None:
    task = Segmentation("classes")
    a, b, c = (np.full((1, 8, 8), value) for value in (0, 1, 200))
    near, far = (((task.signal({"y": a}) - task.signal({"y": x})) ** 2).sum() for x in (b, c))
    assert 0 < near <= 4 * 4 * 64
    assert 0 < far <= 4 * 4 * 64


def test_a_map_that_never_crosses_its_threshold_gets_a_caution() -> None:
    soft = np.linspace(-4, 0.4, 36, dtype=np.float32).reshape(1, 1, 6, 6)
    assert "0 for logits" in (Segmentation("mask").check({"y": soft}) or "")
    assert Segmentation("mask", threshold=0).check({"y": soft}) is None


def test_wrong_settings_of_segmentation_are_refused() -> None:
    with pytest.raises(ConfigError, match="none of mask, classes"):
        plugins.build(plugins.TASKS, {"kind": "segmentation", "decode": "masks"})
    with pytest.raises(ConfigError, match=r"task\.output = '1958' is no output .* did you mean"):
        Segmentation("mask", output="1958").decode({"1959": np.zeros((1, 1, 4, 4))})
    with pytest.raises(ModelError, match=r"shape \[1, 10\].* task\.output"):
        Segmentation("mask").decode({"y": np.zeros((1, 10))})


# ------------------------------------------------------------------------------------------ dense


def test_the_relative_error_is_clipped_at_1() -> None:
    want = np.array([[3.0, 4.0], [3, 4], [0, 0], [0, 0], [3, 4], [np.nan, 1]])
    got = np.array([[3.0, 4.5], [30, 40], [0, 0], [0, 1], [np.nan, 4], [np.nan, 1]])
    np.testing.assert_allclose(relative_error(want, got), [0.1, 1, 0, 1, 1, 0])


def test_dense_answers_keep_every_kth_number() -> None:
    values = np.arange(2 * 3 * 50 * 60, dtype=np.float32).reshape(2, 3, 50, 60)
    found = Dense(max_values=1000).decode({"y": values}).values["values"]
    assert found.shape[0] == 2
    assert 300 < found.shape[1] <= 1000
    assert Dense().decode({"y": values}).values["values"].shape == (2, 9000)
    assert Dense().signal({"y": values}).shape[1] <= 4096
    many = np.zeros((1, 9000, 2, 2))
    assert Dense(max_values=1000).decode({"y": many}).values["values"].shape[1] <= 1000
    assert Dense().decode({"y": np.zeros(4)}).values["values"].shape == (4, 1)


def test_mae_and_r2_of_known_numbers() -> None:
    found = Dense().decode({"y": np.array([[1.0], [2.0], [4.0]])})
    scores = Dense().scores(found, Answers({"values": np.array([[1.0], [3.0], [5.0]])}))
    assert scores == pytest.approx({"MAE": 2 / 3, "R2": 1 - 2 / 8})
    assert Dense().scores(found, np.array([[1.0], [3.0], [5.0]])) == scores
    assert Dense(output="y").decode([np.ones((1, 1))]).values["values"].tolist() == [[1]]
    same = Dense().scores(found, Answers({"values": np.full((3, 1), 2.0)}))
    assert set(same) == {"MAE"}, "labels that are all alike have no variance to explain"
    with pytest.raises(DataError, match="labels have 2 numbers a sample, the output 1"):
        Dense().scores(found, Answers({"values": np.zeros((3, 2))}))


def test_numbers_that_are_not_finite_get_a_caution() -> None:
    assert "2 numbers" in (Dense().check({"y": np.array([[np.nan, np.inf, 1]])}) or "")
    assert Dense().check({"y": np.ones((1, 3))}) is None


# ------------------------------------------------------------------------------------ multi-label


def test_labels_are_those_at_the_threshold_and_their_distance_is_jaccards() -> None:
    task = MultiLabel()
    a = task.decode({"y": np.array([[0.5, 0.9, 0.1], [0, 0, 0.2], [0.9, 0, 0]])})
    b = task.decode({"y": np.array([[0.4, 0.9, 0.6], [0, 0, 0.2], [0, 0, 0]])})
    assert a.values["labels"].tolist()[0] == [True, True, False]
    np.testing.assert_allclose(task.distance(a, b), [2 / 3, 0, 1])
    np.testing.assert_array_equal(task.distance(a, a), 0)


def test_f1_of_known_labels() -> None:
    found = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]], dtype=bool)
    wanted = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0]])
    scores = MultiLabel().scores(Answers({"labels": found}), Answers({"labels": wanted}))
    # label 0: 2 right of 2 given, 3 true: 4/5; label 1: 1 right, 2 given, 1 true: 2/3
    assert scores == pytest.approx({"micro_F1": 6 / 8, "macro_F1": (4 / 5 + 2 / 3) / 2})
    nothing = Answers({"labels": np.zeros((2, 3), dtype=bool)})
    assert MultiLabel().scores(nothing, nothing) == {}
    with pytest.raises(DataError, match=r"\[3, 2\]"):
        MultiLabel().scores(Answers({"labels": found}), Answers({"labels": wanted[:, :2]}))


def test_logits_get_a_caution_until_the_threshold_is_theirs() -> None:
    logits = {"y": np.array([[-3.0, 4.0]])}
    assert "task.threshold = 0" in (MultiLabel().check(logits) or "")
    assert MultiLabel(threshold=0).check(logits) is None
    assert MultiLabel(threshold=0).decode(logits).values["labels"].tolist() == [[False, True]]
    assert MultiLabel().signal({"y": np.zeros((2, 9000))}).shape == (2, 4096)


def test_every_output_counts_the_same() -> None:
    """Large boxes must not hide small scores that are lost."""
    task = DenseOutputs().for_model(outputs=["boxes", "scores"], size=None)
    boxes = np.full((2, 100, 4), 300.0, np.float32)
    scores = np.full((2, 100, 1), 0.5, np.float32)
    want = task.decode([boxes, scores])
    lost = task.decode([boxes, 0 * scores])
    assert set(want.values) == {"boxes", "scores"}
    assert task.distance(want, want).tolist() == [0.0, 0.0]
    assert task.distance(want, lost).tolist() == [0.5, 0.5]
    assert task.gaps(want, lost).tolist() == [0.5, 0.5]
    worse = task.decode([boxes, 21 * scores])
    assert task.distance(want, worse).tolist() == [0.5, 0.5]  # at most 1 an output
    assert task.gaps(want, worse).tolist() == [200.0, 200.0]
    assert task.signal([boxes, scores]).shape == (2, 500)


def test_numbers_of_all_outputs_are_thinned_to_one_bound() -> None:
    task = DenseOutputs(max_values=1000)
    maps = [np.random.default_rng(i).random((2, 8, 64, 64)) for i in range(3)]
    kept = task.decode(maps)
    assert sum(value[0].size for value in kept.values.values()) <= 1000
    assert 8 * task.signal(maps).shape[1] <= task.signal_bytes
    maps[1][0, 0, 0, 0] = np.nan
    assert "Output '1' of the float model has 1 numbers" in str(task.check(maps))

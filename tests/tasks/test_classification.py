"""What counts as an answer, and the word of caution where a model gives no class scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nets
from seqto import tune
from seqto.api import Result
from seqto.errors import DataError
from seqto.tasks.classification import Classification


def test_the_first_of_equal_scores_is_the_answer_of_both() -> None:
    task = Classification()
    scores = [np.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]])]
    assert task.agree(scores, [scores[0] * 2]).tolist() == [True, True]
    assert task.agree(scores, [scores[0][:, ::-1]]).tolist() == [False, False]
    for offset, labels, want in ((0, [1, 0], [True, True]), (1, [0, 0], [True, False])):
        right = Classification(label_offset=offset).correct(scores, np.array(labels))
        assert right is not None
        assert right.tolist() == want


@pytest.mark.parametrize("shape", [(4, 10), (4, 10, 1, 1), (4, 1, 10)])
def test_scores_are_taken_as_they_come(shape: tuple[int, ...]) -> None:
    assert Classification().remark([np.zeros(shape)], name="y") is None


@pytest.mark.parametrize("shape", [(4, 1, 16, 16), (4, 20, 100), (4, 3, 2, 2), (4, 1)])
def test_maps_and_sequences_are_remarked_on(shape: tuple[int, ...]) -> None:
    text = Classification(tolerance=0.05).remark([np.zeros(shape)], name="y")
    assert text is not None
    assert "'y' (" + "×".join(str(n) for n in shape[1:]) + " a sample)" in text
    assert "relative error is above 5 %" in text


def test_integers_are_compared_as_they_are() -> None:
    task = Classification(label_offset=1)
    want, got = [np.array([3, 4, 5])], [np.array([3, 4, 6])]
    assert task.agree(want, got).tolist() == [True, True, False]
    right = task.correct(got, np.array([2, 0, 5]))
    assert right is not None
    assert right.tolist() == [True, False, True]
    maps = [np.array([[[1, 2]], [[3, 4]]])]
    assert task.agree(maps, [np.array([[[1, 2]], [[3, 5]]])]).tolist() == [True, False]
    assert task.correct(maps, np.array([1, 2])) is None
    assert "integers" in str(task.remark(want, name="k"))


def test_values_are_compared_by_their_relative_error() -> None:
    task = Classification()
    want = [np.array([[10.0], [10.0], [0.0], [0.0], [1.0], [np.nan]])]
    got = [np.array([[10.9], [11.1], [0.0], [1e-6], [np.nan], [np.nan]])]
    assert task.agree(want, got).tolist() == [True, False, True, False, False, True]
    assert task.correct(want, np.zeros(6)) is None
    assert task.top_k_misses(want, got) is None
    assert task.kendall_tau(want, got) is None


def mapped(tmp_path: Path, **settings: Any) -> Result:
    """A short run on a net whose output is a map."""
    return tune(
        nets.save(nets.transposed(), tmp_path / "net.onnx"),
        out=tmp_path / "run",
        data=[*nets.pictures(40)],
        data__calibration=8,
        data__evaluation=20,
        search__max_trials=1,
        analysis__diagnose=False,
        device__latency_s=0.01,
        **settings,
    )


@pytest.mark.usefixtures("inline")
def test_a_report_warns_of_outputs_that_are_no_class_scores(tmp_path: Path) -> None:
    report = mapped(tmp_path, search__strategy="stepwise").report
    assert len([w for w in report["warnings"] if "is no vector of class scores" in w]) == 1
    assert sum(f["kind"] == "task" for f in report["findings"]) == 1


@pytest.mark.usefixtures("inline")
def test_other_findings_are_told_beside_the_caution(tmp_path: Path) -> None:
    # found on a detector: the caution came first and kept the menu's refusals from being told
    report = mapped(tmp_path, constraints__max_opset=17).report
    assert {"task", "menu"} <= {f["kind"] for f in report["findings"]}


def test_labels_that_are_no_class_numbers_are_refused() -> None:
    scores = np.zeros((3, 5), np.float32)
    for labels in (np.zeros((3, 5)), np.zeros(3), np.zeros((3, 2), int)):
        with pytest.raises(DataError, match="one class number per sample"):
            Classification().correct([scores], labels)

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


def distances(want: Any, got: Any, *, task: Classification | None = None) -> list[float]:
    task = task or Classification()
    found: list[float] = task.distance(task.decode([want]), task.decode([got])).tolist()
    return found


def test_the_first_of_equal_scores_is_the_answer_of_both() -> None:
    scores = np.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]])
    assert distances(scores, scores * 2) == [0.0, 0.0]
    assert distances(scores, scores[:, ::-1]) == [1.0, 1.0]
    for offset, labels, want in ((0, [1, 0], 1.0), (1, [0, 0], 0.5)):
        task = Classification(label_offset=offset)
        assert task.scores(task.decode([scores]), np.array(labels))["accuracy"] == want


@pytest.mark.parametrize("shape", [(4, 10), (4, 10, 1, 1), (4, 1, 10)])
def test_scores_are_taken_as_they_come(shape: tuple[int, ...]) -> None:
    assert Classification().check([np.zeros(shape)], name="y") is None


@pytest.mark.parametrize("shape", [(4, 1, 16, 16), (4, 20, 100), (4, 3, 2, 2), (4, 1)])
def test_maps_and_sequences_are_remarked_on(shape: tuple[int, ...]) -> None:
    text = Classification().check([np.zeros(shape)], name="y")
    assert text is not None
    assert "'y' (" + "×".join(str(n) for n in shape[1:]) + " a sample)" in text
    assert "the loss is the mean relative error, at most 1" in text


def test_integers_are_compared_as_they_are() -> None:
    task = Classification(label_offset=1)
    want, got = np.array([3, 4, 5]), np.array([3, 4, 6])
    assert distances(want, got) == [0.0, 0.0, 1.0]
    assert task.scores(task.decode([got]), np.array([2, 0, 5]))["accuracy"] == 2 / 3
    maps = np.array([[[1, 2]], [[3, 4]]])
    assert distances(maps, np.array([[[1, 2]], [[3, 5]]])) == [0.0, 1.0]
    assert task.scores(task.decode([maps]), np.array([1, 2])) == {}
    assert "integers" in str(task.check([want], name="k"))


def test_values_are_compared_by_their_relative_error() -> None:
    task = Classification()
    want = np.array([[10.0], [10.0], [0.0], [0.0], [1.0], [np.nan], [1.0]])
    got = np.array([[10.9], [11.1], [0.0], [1e-6], [np.nan], [np.nan], [9.0]])
    assert distances(want, got) == pytest.approx([0.09, 0.11, 0.0, 1.0, 1.0, 0.0, 1.0])
    answers = task.decode([want])
    assert task.scores(answers, np.zeros(7)) == task.figures(answers, answers) == {}


def test_of_large_maps_evenly_spaced_numbers_are_kept() -> None:
    task = Classification()
    large = np.random.default_rng(0).normal(size=(2, 3, 200, 200)).astype(np.float32)
    kept = task.signal([large])
    assert kept.nbytes == 2 * task.signal_bytes
    assert kept[0, 0] == large[0, 0, 0, 0]
    assert kept[1, -1] == large[1, -1, -1, -1]
    near = large + 0.1 * np.random.default_rng(1).normal(size=large.shape).astype(np.float32)
    (error,) = {round(d, 2) for d in distances(large, near)}
    assert error == pytest.approx(0.1, abs=0.01)


def test_figures_of_class_scores() -> None:
    task = Classification(top_k=2)
    want = task.decode([np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])])
    got = task.decode([np.array([[2.0, 3.0, 1.0], [1.0, 2.0, 3.0]])])
    found = task.figures(want, got)
    assert found["top_k_loss"].tolist() == [0.0, 1.0]
    assert found["kendall_tau"].tolist() == [-1.0, -1.0]


def mapped(tmp_path: Path, **settings: Any) -> Result:
    """Return a short run on a net whose output is a map."""
    return tune(
        nets.save(nets.transposed(), tmp_path / "net.onnx"),
        out=tmp_path / "run",
        data=[*nets.pictures(40)],
        data__calibration=8,
        data__evaluation=20,
        search__max_trials=1,
        analysis__diagnose=False,
        device__latency_s=0.01,
        task__kind="classification",
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
    task, scores = Classification(), np.zeros((3, 5), np.float32)
    for labels in (np.zeros((3, 5)), np.zeros(3), np.zeros((3, 2), int)):
        with pytest.raises(DataError, match="one class number per sample"):
            task.scores(task.decode([scores]), labels)

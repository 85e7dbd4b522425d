"""What counts as an answer, and the word of caution where a model gives no class scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nets
from seqto import tune
from seqto.contracts import Result
from seqto.tasks.classification import Classification


def test_the_first_of_equal_scores_is_the_answer_of_both() -> None:
    task = Classification()
    scores = [np.array([[1.0, 3.0, 3.0], [0.0, -1.0, -2.0]])]
    assert task.agree(scores, [scores[0] * 2]).tolist() == [True, True]
    assert task.agree(scores, [scores[0][:, ::-1]]).tolist() == [False, False]
    assert task.correct(scores, np.array([1, 0])).tolist() == [True, True]
    assert Classification(label_offset=1).correct(scores, np.array([0, 0])).tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("shape", [(4, 10), (4, 10, 1, 1), (4, 1, 10), (4,)])
def test_scores_are_taken_as_they_come(shape: tuple[int, ...]) -> None:
    assert Classification().remark([np.zeros(shape)]) is None


@pytest.mark.parametrize("shape", [(4, 1, 16, 16), (4, 20, 100), (4, 3, 2, 2)])
def test_maps_and_sequences_are_remarked_on(shape: tuple[int, ...]) -> None:
    text = Classification().remark([np.zeros(shape)])
    assert text is not None
    assert "×".join(str(n) for n in shape[1:]) in text
    assert "task" in text


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
    assert len([w for w in report["warnings"] if "largest of all its numbers" in w]) == 1
    assert sum(f["kind"] == "task" for f in report["findings"]) == 1


@pytest.mark.usefixtures("inline")
def test_other_findings_are_told_beside_the_caution(tmp_path: Path) -> None:
    # found on a detector: the caution came first and kept the menu's refusals from being told
    report = mapped(tmp_path, constraints__max_opset=17).report
    assert {"task", "menu"} <= {f["kind"] for f in report["findings"]}

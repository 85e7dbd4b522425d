"""The loss that is to be expected, by how narrowly answers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from seqto.records import EVALUATION, Measurement
from seqto.tasks import scoring
from seqto.tasks.change_risk import RIVALS, expected_loss, leads_of
from seqto.tasks.classification import Classification
from seqto.tasks.embedding import Embedding
from seqto.tasks.text_classification import TextClassification


def scores(rows: int, classes: int, *, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((rows, classes)) * 3


def moved(values: NDArray[Any], noise: float, *, seed: int = 1) -> NDArray[np.float64]:
    return values + noise * np.random.default_rng(seed).standard_normal(values.shape)


def measured(task: Any, want: Any, got: Any, *, chunk: int = 50) -> Measurement:
    parts = [scoring.decode(task, [want[i : i + chunk]]) for i in range(0, len(want), chunk)]
    about = {"output": {}, "caution": None}
    reference = scoring.reference_from(task, EVALUATION, parts, labels=None, about=about)
    scorer = scoring.Scorer(task, reference, device="x", rows=len(want))
    for i in range(0, len(want), chunk):
        scorer.add(scoring.decode(task, [got[i : i + chunk]]))
    return scorer.measurement()


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_it_is_the_share_of_answers_that_noise_changes(classes: int, noise: float) -> None:
    values = scores(4000, classes)
    candidate = moved(values, noise)
    found = expected_loss(*leads_of(values, candidate))
    counted = float((values.argmax(axis=1) != candidate.argmax(axis=1)).mean())
    assert found is not None
    assert found.value == pytest.approx(counted, rel=0.35)


def test_it_scatters_less_than_a_count() -> None:
    values = scores(20_000, 50)
    counts, expected = [], []
    for start in range(0, len(values), 200):
        rows = values[start : start + 200]
        candidate = moved(rows, 0.3, seed=start + 2)
        counts.append((rows.argmax(axis=1) != candidate.argmax(axis=1)).mean())
        found = expected_loss(*leads_of(rows, candidate))
        assert found is not None
        expected.append((found.value, found.error))
    values_of, errors = np.array(expected).T
    assert values_of.std() < 0.75 * np.std(counts)
    assert values_of.std() == pytest.approx(errors.mean(), rel=0.35), "the error is its own"
    assert values_of.mean() == pytest.approx(np.mean(counts), rel=0.25)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 30), st.integers(1, 12), st.floats(0, 2), st.integers(0, 99))
def test_leads_begin_with_the_nearest_rival(
    classes: int, rows: int, noise: float, seed: int
) -> None:
    values = scores(rows, classes, seed=seed)
    candidate = moved(values, noise, seed=seed + 1)
    want, got = leads_of(values, candidate)
    assert want.shape == got.shape == (rows, min(classes - 1, RIVALS))
    assert (want >= 0).all()
    assert (np.diff(want, axis=1) >= 0).all()
    stays = got.min(axis=1) >= 0
    same = values.argmax(axis=1) == candidate.argmax(axis=1)
    assert (stays >= same).all(), "what stays is ahead of all its rivals"


def test_the_same_model_loses_nothing_and_what_is_no_number_tells_nothing() -> None:
    values = scores(10, 4)
    same = expected_loss(*leads_of(values, values))
    assert same is not None
    assert (same.value, same.error) == (0.0, 0.0)
    assert expected_loss(*leads_of(values, np.full_like(values, np.nan))) is None
    assert expected_loss(np.zeros((0, 3)), np.zeros((0, 3))) is None


@pytest.mark.parametrize("task", [Classification(), TextClassification(labels=tuple("abcdefgh"))])
def test_classes_are_measured_with_it(task: Any) -> None:
    values = scores(300, 8).astype(np.float32)
    found = measured(task, values, moved(values, 0.3).astype(np.float32))
    assert found.expected_loss is not None
    assert found.expected_loss.value == pytest.approx(found.loss.value, abs=0.03)
    assert Measurement.from_json(found.to_json()) == found


def test_nearest_texts_are_measured_with_it_and_twins_are_no_rivals() -> None:
    rng = np.random.default_rng(0)
    right = rng.standard_normal((200, 16))
    right[1::2] = right[::2]  # each text of the gallery is there twice
    left = right + rng.standard_normal(right.shape)
    pairs = np.stack([left, right], axis=1)
    task = Embedding(gallery="right")
    answers = [
        scoring.decode(task, [x.reshape(-1, 1, 16)]).answers.values["vector"].reshape(-1, 2, 16)
        for x in (pairs, moved(pairs, 0.1))
    ]
    want, got = (scoring.Answers({"vector": x}) for x in answers)
    leads = task.leads(want, got)
    assert leads is not None
    assert (leads[0][:, 0] > 1e-6).all(), "a twin would be ahead by nothing"
    found = expected_loss(*leads)
    assert found is not None
    assert found.value == pytest.approx(float(task.distance(want, got).mean()), abs=0.05)


def test_other_texts_are_compared_with_all_but_themselves() -> None:
    vectors = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    answers = scoring.Answers({"vector": vectors})
    leads = Embedding(gallery="others").leads(answers, answers)
    assert leads is not None
    assert np.array_equal(*leads)
    assert leads[0].shape == (40, RIVALS)


def test_outputs_without_classes_are_counted() -> None:
    numbers = np.random.default_rng(0).standard_normal((20, 3, 4)).astype(np.float32)
    assert measured(Classification(), numbers, moved(numbers, 0.1)).expected_loss is None

"""Chunks of answers add up to figures; candidates that cannot reach the front are seen early."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqto.records import Loss, Measurement, ScoreKind
from seqto.tasks import scoring
from seqto.tasks.classification import Classification, macro_f1
from seqto.tasks.dense import Dense
from seqto.tasks.scoring import Reference, Scorer
from seqto.tasks.task import Answers, portable_form, task_from_json
from seqto.testing.fakes import FakeTask

ROWS, CLASSES, CHUNK = 40, 5, 8
LABELS = np.arange(ROWS, dtype=np.int64) % CLASSES


def outputs(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(ROWS, CLASSES)).astype(np.float32)


def reference(task: Any, labels: Any = LABELS) -> Reference:
    decoded = scoring.decode(task, [outputs(1)])
    about = scoring.describe_outputs(task, [outputs(1)], judged=0, name="y")
    return scoring.reference_from(task, "evaluation", [decoded], labels=labels, about=about)


def scored(order: Any = None, *, rivals: Any = (), size: int = 100, task: Any = None) -> Scorer:
    """Return a candidate whose answers arrive in chunks, in some order, until it is beaten."""
    task = task or Classification()
    scorer = Scorer(
        task,
        reference(task),
        device="here",
        rows=ROWS,
        labels=LABELS,
        order=order,
        rivals=rivals,
        size_bytes=size,
    )
    mine = 0.6 * outputs(1) + 0.4 * outputs(2)
    rows = np.arange(ROWS) if order is None else order
    for start in range(0, ROWS, CHUNK):
        scorer.add(scoring.decode(task, [mine[rows[start : start + CHUNK]]]))
        if scorer.is_beaten():
            scorer.stopped = True
            break
    return scorer


@dataclass(frozen=True)
class Graded(FakeTask):
    """Distances between 0 and 1."""

    def distance(self, reference: Answers, answers: Answers) -> Any:
        gap = np.abs(reference.values["numbers"] - answers.values["numbers"]).max(axis=1)
        return np.minimum(gap, 1.0).astype(np.float64)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 1000), task=st.sampled_from([Classification(), Graded()]))
def test_the_order_of_the_samples_changes_no_figure(seed: int, task: Any) -> None:
    a = scored(task=task).measurement()
    b = scored(np.random.default_rng(seed).permutation(ROWS), task=task).measurement()
    assert a.loss == b.loss  # with the agreement of every sample, in the split's order
    assert a.scores == b.scores
    assert a.baseline_scores == b.baseline_scores
    np.testing.assert_allclose(a.damage or 0, b.damage or 0, rtol=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 1000),
    size=st.integers(90, 110),
    total=st.floats(0, ROWS),
    task=st.sampled_from([Classification(), Graded()]),
)
def test_what_is_stopped_would_have_been_dominated(
    seed: int, size: int, total: float, task: Any
) -> None:
    final = scored(task=task).summed_distance
    order = np.random.default_rng(seed).permutation(ROWS)
    scorer = scored(order, rivals=[(size, total)], task=task)
    if scorer.stopped:
        assert size <= scorer.size_bytes
        assert total <= final
        assert (size, total) != (scorer.size_bytes, final)
        measured = scorer.measurement()
        assert measured.stopped_early
        assert measured.loss.low <= final / ROWS <= measured.loss.high
        assert measured.loss.samples < ROWS
        assert measured.loss.agreement == ""


def test_an_equal_is_not_stopped() -> None:
    final = scored().summed_distance
    assert not scored(rivals=[(100, final)]).stopped
    assert scored(rivals=[(99, 0.0)]).stopped


def test_loss_is_the_mean_distance() -> None:
    binary, graded = scored().measurement(), scored(task=Graded()).measurement()
    changed = outputs(1).argmax(1) != (0.6 * outputs(1) + 0.4 * outputs(2)).argmax(1)
    assert binary.loss.value == changed.mean()
    gap = np.abs(0.4 * outputs(1) - 0.4 * outputs(2)).max(axis=1).clip(max=1)
    assert graded.loss.value == pytest.approx(gap.mean(), abs=1e-6)
    assert graded.loss.low < graded.loss.value < graded.loss.high
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(binary.loss.agreement), np.uint8))[:ROWS]
    np.testing.assert_array_equal(bits == 0, changed)


def test_a_reference_is_read_back_as_it_was(tmp_path: Path) -> None:
    made = reference(Classification())
    made.save(tmp_path / "r")
    read = Reference.load(tmp_path / "r")
    assert (read.split, read.variance, read.rows) == (made.split, made.variance, ROWS)
    assert read.scores == made.scores
    assert read.output == {"shape": [CLASSES], "judged_by": "scores"}
    for kind in ("values", "details"):
        a, b = getattr(made.decoded.answers, kind), getattr(read.decoded.answers, kind)
        assert list(a) == list(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], strict=True)


def test_drops_of_scores_have_an_interval_where_it_is_asked_for() -> None:
    scorer = scored()
    assert scorer.measurement().score_drops == {}
    measured = scorer.measurement(intervals=True)
    for name, (low, high) in measured.score_drops.items():
        drop = measured.baseline_scores[name] - measured.scores[name]
        assert low <= drop <= high
    assert set(measured.score_drops) == {"accuracy", "macro_f1"}


def test_without_labels_there_are_no_scores() -> None:
    task = Classification()
    made = reference(task, labels=None)
    scorer = Scorer(task, made, device="here", rows=ROWS)
    scorer.add(scoring.decode(task, [outputs(2)]))
    assert made.scores == scorer.measurement(intervals=True).scores == {}


@dataclass(frozen=True)
class Wild(FakeTask):
    signal_bytes: ClassVar[int] = 8

    def distance(self, reference: Answers, answers: Answers) -> Any:
        return np.full(len(answers), 2.0)


def test_a_task_that_breaks_its_bounds_is_told() -> None:
    with pytest.raises(ValueError, match=r"keeps 20 bytes of a sample.*signal_bytes = 8"):
        scoring.decode(Wild(), [outputs(1)])
    made = reference(FakeTask())
    scorer = Scorer(Wild(), made, device="here", rows=ROWS)
    with pytest.raises(ValueError, match="from 0 to 1"):
        scorer.add(made.decoded)


# ---------------------------------------------------------------------------------------- answers


@settings(max_examples=50, deadline=None, derandomize=True)
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_ragged_answers_are_taken_by_sample(lengths: list[int], seed: int) -> None:
    items = np.arange(sum(lengths))
    answers = Answers({"boxes": items}, np.array(lengths))
    spans = np.split(items, np.cumsum(lengths)[:-1])
    rows = np.random.default_rng(seed).permutation(len(lengths))
    taken = answers.take(rows)
    assert taken.values["boxes"].tolist() == [i for r in rows for i in spans[r].tolist()]
    assert len(taken) == len(lengths)
    again = Answers.joined([answers.take(np.array([r])) for r in range(len(lengths))])
    assert again.values["boxes"].tolist() == items.tolist()


def test_tasks_that_are_json_can_be_made_again() -> None:
    for task in (Classification(2, 3), FakeTask(0.5)):
        form = portable_form(task)
        assert form is not None
        assert task_from_json(form) == task

    @dataclass(frozen=True)
    class Local(FakeTask):
        """A class that no module has."""

    assert portable_form(Local()) is None
    assert portable_form(FakeTask(tolerance=lambda: 1)) is None  # type: ignore[arg-type]


def test_macro_f1_is_the_mean_of_the_classes() -> None:
    named, labels = np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1])
    # class 0: 2·1/(2+1), class 1: 2·1/(1+3), class 2: 0
    assert macro_f1(named, labels) == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert macro_f1(labels, labels) == 1.0


def test_measurements_of_schema_1_are_read() -> None:
    loss = Loss(0.5, 0.1, 0.9, 4).to_json()
    old = {"split": "report", "device": "d", "loss": loss, "accuracy": 0.5, "damage": 0.1}
    old |= {"baseline_accuracy": 0.75, "top_k_loss": None, "kendall_tau": 1.0}
    found = Measurement.from_json({**old, "stopped_early": False})
    assert found.scores == {"accuracy": 0.5}
    assert found.baseline_scores == {"accuracy": 0.75}
    assert found.figures == {"kendall_tau": 1.0}
    assert Measurement.from_json(found.to_json()) == found


@dataclass(frozen=True)
class Weighted(Graded):
    """The first samples count three times as much."""

    def weights(self, reference: Answers, answers: Answers) -> Any:
        del answers
        return np.where(reference.values["numbers"][:, 0] > 0, 3.0, 1.0)


def test_samples_that_count_more_weigh_more_in_the_loss() -> None:
    task = Weighted()
    found = scored(task=task, rivals=[(1, 0.0)])
    assert found.complete, "a weighted loss is not raced"
    want, got = (task.decode([x]) for x in (outputs(1), 0.6 * outputs(1) + 0.4 * outputs(2)))
    distances, weights = task.distance(want, got), task.weights(want, got)
    loss = found.measurement().loss
    assert loss.value == pytest.approx(np.average(distances, weights=weights), abs=1e-6)
    assert loss.value != pytest.approx(distances.mean(), abs=1e-4)
    assert 0 < loss.low < loss.value < loss.high < 1
    order = np.random.default_rng(3).permutation(ROWS)
    assert scored(order, task=task).measurement().loss == loss


def test_of_an_error_the_drop_is_how_much_it_grows() -> None:
    task = Dense()
    rng = np.random.default_rng(0)
    truth, noise = (rng.normal(size=(ROWS, 3)).astype(np.float32) for _ in range(2))
    float_outputs, candidate_outputs = truth + 0.1 * noise, truth + 0.3 * noise
    decoded = scoring.decode(task, [float_outputs])
    about = scoring.describe_outputs(task, [float_outputs], judged=0, name="y")
    reference = scoring.reference_from(task, "evaluation", [decoded], labels=truth, about=about)
    scorer = Scorer(task, reference, device="here", rows=ROWS, labels=truth)
    scorer.add(scoring.decode(task, [candidate_outputs]))
    measured = scorer.measurement(intervals=True)
    worse = measured.scores["MAE"] - measured.baseline_scores["MAE"]
    low, high = measured.score_drops["MAE"]
    assert 0 < low <= worse <= high, "a larger error is a drop"
    assert measured.score_drops["R2"][0] > 0
    assert measured.kind_of_score("MAE") == ScoreKind(lower_is_better=True, share=False)
    assert Measurement.from_json(json.loads(json.dumps(measured.to_json()))) == measured

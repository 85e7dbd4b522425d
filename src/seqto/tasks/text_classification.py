"""The class of a text: accuracy, F1 and Matthews' correlation with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError, DataError
from seqto.records import Json, ScoreKind
from seqto.tasks.classification import CLASS, SCORES_OF, Classification, Floats, macro_f1
from seqto.tasks.example import text_example
from seqto.tasks.settings import check_choice
from seqto.tasks.task import Answers

ACCURACY, F1, MACRO_F1, MATTHEWS = "accuracy", "f1", "macro_f1", "matthews"
SCORES = (ACCURACY, F1, MACRO_F1, MATTHEWS)


@dataclass(frozen=True, slots=True)
class TextClassification:
    """The class with the highest score in one output (samples × classes).

    labels   names of the classes, in the order of their numbers
    score    the score that stands for the task: accuracy, f1 (of class 1, for two classes),
             macro_f1 (mean of the classes) or matthews
    """

    one_output: ClassVar[bool] = True
    changed: ClassVar[str] = "classes"  # what loss is a share of, for reports
    signal_bytes: ClassVar[int] = Classification.signal_bytes
    score_kinds: ClassVar[Mapping[str, ScoreKind]] = {MATTHEWS: ScoreKind(share=False)}
    output: str | None = None
    labels: tuple[str, ...] = ()
    score: str = ACCURACY

    def __post_init__(self) -> None:
        check_choice("score", self.score, SCORES)
        if len(set(self.labels)) != len(self.labels):
            raise ConfigError("task.labels names a class twice")
        if self.score == F1 and self.labels and len(self.labels) != 2:
            raise ConfigError(
                f"task.score = 'f1' is for two classes, task.labels has {len(self.labels)}: choose "
                "macro_f1"
            )

    def check(self, outputs: Sequence[Any], *, name: str) -> str | None:
        """Refuse an output that is no vector of class scores, or not of the labels' size."""
        shape = np.shape(outputs[0])[1:]
        if len(shape) != 1 or shape[0] < 2:
            raise ConfigError(
                f"output {name!r} has shape {list(shape)} a text: text-classification needs one "
                "score a class; choose another with task.output"
            )
        if self.labels and shape[0] != len(self.labels):
            raise ConfigError(
                f"output {name!r} has {shape[0]} scores a text, task.labels names "
                f"{len(self.labels)} classes"
            )
        return None

    def decode(self, outputs: Sequence[Any]) -> Answers:
        scores = np.asarray(outputs[0])
        flat = scores.reshape(len(scores), -1)
        return Answers({CLASS: flat.argmax(axis=1)}, details={SCORES_OF: flat})

    def leads(self, reference: Answers, answers: Answers) -> tuple[Floats, Floats] | None:
        return Classification().leads(reference, answers)

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        return Classification().signal(outputs)

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        """Return 1 where the class is another than float's."""
        changed = reference.values[CLASS] != answers.values[CLASS]
        return np.asarray(changed, dtype=np.float64)

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return the names of the classes of one text."""
        words = []
        for model_answers in (reference, answers):
            number = int(model_answers.values[CLASS][0])
            named = number < len(self.labels)
            words.append(self.labels[number] if named else f"class {number}")
        return text_example(*words)

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        labelled = np.asarray(labels)
        if labelled.ndim != 1 or labelled.dtype.kind not in "iu":
            raise DataError("text-classification needs one class a text as its label")
        if not len(labelled):
            return {}
        named = answers.values[CLASS].astype(np.int64)
        scores = {
            ACCURACY: float((named == labelled).mean()),
            MACRO_F1: macro_f1(named, labelled),
            MATTHEWS: matthews(named, labelled),
        }
        if max(named.max(), labelled.max()) <= 1:
            scores[F1] = f1(named, labelled)
        first = self.score if self.score in scores else ACCURACY
        return {first: scores.pop(first), **scores}


def f1(named: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return F1 of class 1; 0 where neither names nor labels have it."""
    hits = int(((named == 1) & (labels == 1)).sum())
    both = int((named == 1).sum() + (labels == 1).sum())
    return 2 * hits / both if both else 0.0


def matthews(named: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return Matthews' correlation of two lists of classes (Gorodkin 2004 for more than two).

    0 where one of the lists has a single class.
    """
    count = int(max(named.max(), labels.max())) + 1
    table = np.zeros((count, count), dtype=np.float64)
    np.add.at(table, (labels, named), 1)
    samples, right = table.sum(), np.trace(table)
    labelled, predicted = table.sum(axis=1), table.sum(axis=0)
    spread = (samples**2 - (predicted**2).sum()) * (samples**2 - (labelled**2).sum())
    return float((right * samples - labelled @ predicted) / np.sqrt(spread)) if spread > 0 else 0.0

"""Several labels a sample: those above a threshold; Jaccard distance; micro and macro F1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqto.errors import ConfigError, DataError
from seqto.records import Json
from seqto.tasks.answers import Floats, Outputs, Values, label_values
from seqto.tasks.example import text_example
from seqto.tasks.outputs import choose_output
from seqto.tasks.sketch import STRIDED_VALUES, count_sketch
from seqto.tasks.task import Answers


@dataclass(frozen=True, slots=True)
class MultiLabel:
    """Answers are the labels with a score of `threshold` or more (0 for logits)."""

    one_output: ClassVar[bool] = True
    label_form: ClassVar[str] = "arrays"
    changed: ClassVar[str] = "labels"  # what loss is a share of, for reports
    signal_bytes: ClassVar[int] = 8 * STRIDED_VALUES
    output: str | None = None
    threshold: float = 0.5

    def __post_init__(self) -> None:
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float):
            raise ConfigError(f"task.threshold = {self.threshold!r} must be a number")

    def for_labels(self) -> MultiLabel:
        """Return the task that scores are measured with: the same."""
        return self

    def check(self, outputs: Outputs, *, name: str | None = None) -> str | None:
        """Return a caution where scores are no shares although the threshold is one."""
        output_name, value = choose_output(outputs, self.output)
        name = name or output_name
        low, high = float(np.nanmin(value, initial=0)), float(np.nanmax(value, initial=0))
        if self.threshold == 0.5 and (low < -1e-3 or high > 1 + 1e-3):
            return (
                f"Output {name!r} reaches from {low:.3g} to {high:.3g}: for logits set "
                "task.threshold = 0."
            )
        return None

    def decode(self, outputs: Outputs) -> Answers:
        """Return whether each label is given, n × labels."""
        return Answers({"labels": self._scores(outputs) >= self.threshold})

    def signal(self, outputs: Outputs) -> Floats:
        """Return the scores, or 4,096 sums of them where there are more labels (32 KiB)."""
        return count_sketch(self._scores(outputs), width=STRIDED_VALUES)

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return 1 − Jaccard per sample; 0 where neither model gives a label."""
        a, b = reference.values["labels"], answers.values["labels"]
        common, union = (a & b).sum(axis=1), (a | b).sum(axis=1)
        distances: Floats = np.where(union > 0, 1.0 - common / np.maximum(union, 1), 0.0)
        return distances

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return the labels of one sample by both models."""
        by_model = [np.nonzero(x.values["labels"][0])[0] for x in (reference, answers)]
        words = [", ".join(f"label {k}" for k in labels[:40]) or "no label" for labels in by_model]
        return text_example(*words)

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return micro F1, and macro F1 over the labels that the truth or the model gives."""
        predicted, labelled = answers.values["labels"], label_values(labels, "labels").astype(bool)
        if predicted.shape != labelled.shape:
            raise DataError(
                f"labels have shape {list(labelled.shape)}, the answers {list(predicted.shape)}: "
                "give a row of 0 and 1 for each sample"
            )
        right = (predicted & labelled).sum(axis=0).astype(np.float64)
        counts = predicted.sum(axis=0) + labelled.sum(axis=0)
        there = counts > 0
        if not there.any():
            return {}
        return {
            "micro_F1": float(2 * right.sum() / counts.sum()),
            "macro_F1": float((2 * right[there] / counts[there]).mean()),
        }

    def _scores(self, outputs: Outputs) -> Values:
        _, value = choose_output(outputs, self.output)
        return np.asarray(value).reshape(len(value), -1)

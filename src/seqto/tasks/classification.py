"""Answers of any output: the class with the highest score, integers, or numbers.

model/outputs.py says which of the three an output holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.data.preprocess import sizes
from seqto.errors import DataError
from seqto.model import outputs as model_outputs
from seqto.model.outputs import INTEGERS, SCORES
from seqto.records import Json
from seqto.tasks.change_risk import leads_of
from seqto.tasks.example import text_example
from seqto.tasks.task import Answers

CLASS, NUMBERS, VALUES = "class", "integers", "values"  # names of an answer's values, by its kind
SCORES_OF = "scores"  # detail of an answer: those of all classes

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Classification:
    """label = argmax(scores) - label_offset; the scores are the judged output.

    Outputs that hold no scores have a distance too: of integers 0 or 1, of other numbers their
    relative error, at most 1.
    """

    one_output: ClassVar[bool] = True  # the judged output is all it wants to see
    signal_bytes: ClassVar[int] = 65_536  # evenly spaced numbers of larger outputs are kept
    label_offset: int = 0
    top_k: int = 5

    def decode(self, outputs: Sequence[Any]) -> Answers:
        output = np.asarray(outputs[0])
        kind = model_outputs.kind_of(output)
        flat = output.reshape(len(output), -1)
        if kind == INTEGERS:
            return Answers({NUMBERS: flat})
        if kind == SCORES:
            return Answers({CLASS: flat.argmax(axis=1)}, details={SCORES_OF: flat})
        return Answers({VALUES: self._evenly(flat)})

    def signal(self, outputs: Sequence[Any]) -> NDArray[Any]:
        output = np.asarray(outputs[0])
        return self._evenly(output.reshape(len(output), -1))

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        if VALUES in reference.values:
            want, got = reference.values[VALUES], answers.values[VALUES]
            return model_outputs.relative_errors(want, got)
        name = CLASS if CLASS in reference.values else NUMBERS
        want, got = (np.atleast_2d(a.values[name].T).T for a in (reference, answers))
        changed: NDArray[np.float64] = (~model_outputs.equal_answers(want, got)).astype(np.float64)
        return changed

    def leads(self, reference: Answers, answers: Answers) -> tuple[Floats, Floats] | None:
        want, got = (a.details.get(SCORES_OF) for a in (reference, answers))
        if want is None or got is None or want.shape[1] < 2:
            return None
        return leads_of(want, got)

    def difficulty(self, reference: Answers) -> NDArray[np.float64]:
        """Return how near the second class is to the first; 0 where the output is no scores."""
        scores = reference.details.get(SCORES_OF)
        if scores is None or scores.shape[1] < 2:
            return np.zeros(len(reference))
        last = np.partition(np.asarray(scores, dtype=np.float64), -2, axis=1)
        return np.asarray(last[:, -2] - last[:, -1])

    def example(self, reference: Answers, answers: Answers) -> Json:
        """Return the classes, or the first numbers, of one sample."""
        words = []
        for model_answers in (reference, answers):
            if CLASS in model_answers.values:
                words.append(f"class {int(model_answers.values[CLASS][0]) - self.label_offset}")
            else:
                flat = next(iter(model_answers.values.values()))[0].reshape(-1)[:8]
                words.append(", ".join(f"{x:.4g}" for x in flat))
        return text_example(*words)

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return accuracy and the mean F1 of the classes.

        Nothing where the output names no class.
        """
        predicted = answers.values.get(CLASS, answers.values.get(NUMBERS))
        labelled = np.asarray(labels)
        if predicted is None or predicted.size != len(labelled) or not len(labelled):
            return {}
        _check_labels(labelled)
        named = predicted.reshape(-1).astype(np.int64) - self.label_offset
        return {
            "accuracy": float((named == labelled).mean()),
            "macro_f1": macro_f1(named, labelled),
        }

    def figures(self, reference: Answers, answers: Answers) -> Mapping[str, NDArray[np.float64]]:
        """Return whether the first K classes lack float's, and Kendall's tau over them.

        The published tool correlates class numbers, which says nothing about order; this is the
        tau over the same top-K, of their ranks.
        """
        if CLASS not in reference.values:
            return {}
        want, got = (np.asarray(a.details[SCORES_OF], np.float64) for a in (reference, answers))
        missed = ~np.any(self._first(got) == reference.values[CLASS][:, None], axis=1)
        chosen = self._first(want)
        a, b = (np.take_along_axis(x, chosen, axis=1) for x in (want, got))
        sign_a, sign_b = (_signs(x[:, :, None], x[:, None, :]) for x in (a, b))
        k = chosen.shape[1]
        tau = (sign_a * sign_b).sum(axis=(1, 2)) / max(k * (k - 1), 1)
        return {"top_k_loss": missed.astype(np.float64), "kendall_tau": tau}

    def check(self, outputs: Sequence[Any], *, name: str) -> str | None:
        """Say what counts as an answer, where the output is not one score a class."""
        output = np.asarray(outputs[0])
        kind = model_outputs.kind_of(output)
        if kind == SCORES:
            return None
        shape = sizes(output.shape[1:]) if output.ndim > 1 else "one number"
        if kind == INTEGERS:
            what = "holds integers: an answer counts as changed when any of its numbers differs"
        else:
            what = "is no vector of class scores: the loss is the mean relative error, at most 1"
        return f"Output {name!r} ({shape} a sample) {what}."

    def _evenly(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return all numbers of a sample, or as many evenly spaced ones as `signal_bytes` allow."""
        most = self.signal_bytes // flat.dtype.itemsize
        if flat.shape[1] <= most:
            return flat
        return flat[:, np.linspace(0, flat.shape[1] - 1, most).astype(np.int64)]

    def _first(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        k = min(self.top_k, scores.shape[1])
        order: NDArray[np.int64] = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return order


def _signs(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the signs of a − b; 0 for two infinite numbers, whose difference is none."""
    return (a > b).astype(np.float64) - (a < b)


def _check_labels(labels: NDArray[Any]) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"labels are {labels.dtype} of shape {sizes(labels.shape)}: classification needs one "
            "class number per sample; give such labels, none, or choose another task"
        )


def macro_f1(named: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the mean F1 over the classes that are among the labels or were named."""
    classes, positions = np.unique(np.concatenate([named, labels]), return_inverse=True)
    first, second = positions[: len(named)], positions[len(named) :]
    count = len(classes)
    hits = np.bincount(first[first == second], minlength=count)
    both = np.bincount(first, minlength=count) + np.bincount(second, minlength=count)
    return float((2 * hits / both).mean())

"""Answers of any output: the class with the highest score, integers, or values within a tolerance.

outputs.py says which of the three an output holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.data.preprocess import sizes
from seqto.errors import DataError
from seqto.model import outputs as model_outputs
from seqto.model.outputs import INTEGERS, SCORES

if TYPE_CHECKING:
    from seqto.records import Array


@dataclass(frozen=True, slots=True)
class Classification:
    """label = argmax(scores) - label_offset; the scores are the judged output."""

    one_output: ClassVar[bool] = True  # the judged output is all it wants to see
    label_offset: int = 0
    top_k: int = 5
    tolerance: float = 0.1

    def agree(self, reference: list[Array], outputs: list[Array]) -> NDArray[np.bool_]:
        want, got = np.asarray(reference[0]), np.asarray(outputs[0])
        kind = model_outputs.kind_of(want)
        same: NDArray[np.bool_]
        if kind == INTEGERS:
            same = model_outputs.equal_answers(want, got)
        elif kind == SCORES:
            same = self._top(reference) == self._top(outputs)
        else:
            same = model_outputs.relative_errors(want, got) <= self.tolerance
        return same

    def correct(self, outputs: list[Array], labels: Array) -> NDArray[np.bool_] | None:
        """None where the output names no class, so that labels say nothing about it."""
        found = np.asarray(outputs[0])
        kind = model_outputs.kind_of(found)
        right: NDArray[np.bool_]
        if kind == SCORES or (kind == INTEGERS and found.size == len(found)):
            _check_labels(labels)
        if kind == INTEGERS and found.size == len(found):
            right = found.reshape(-1).astype(np.int64) - self.label_offset == labels
        elif kind == SCORES:
            right = self._top(outputs) - self.label_offset == labels
        else:
            return None
        return right

    def top_k_misses(
        self, reference: list[Array], outputs: list[Array]
    ) -> NDArray[np.bool_] | None:
        """Per sample: float's answer is not even among the candidate's first K."""
        if model_outputs.kind_of(np.asarray(reference[0])) != SCORES:
            return None
        wanted = self._top(reference)[:, None]
        missed: NDArray[np.bool_] = ~np.any(self._first(outputs) == wanted, axis=1)
        return missed

    def kendall_tau(
        self, reference: list[Array], outputs: list[Array]
    ) -> NDArray[np.float64] | None:
        """Per sample: rank correlation of the candidate's scores over float's first K classes.

        The published tool correlates class numbers, which says nothing about order; this is the
        tau over the same top-K, of their ranks.
        """
        if model_outputs.kind_of(np.asarray(reference[0])) != SCORES:
            return None
        chosen = self._first(reference)
        a = np.take_along_axis(self._scores(reference), chosen, axis=1)
        b = np.take_along_axis(self._scores(outputs), chosen, axis=1)
        sign_a = np.sign(a[:, :, None] - a[:, None, :])
        sign_b = np.sign(b[:, :, None] - b[:, None, :])
        k = chosen.shape[1]
        pairs = max(k * (k - 1), 1)
        tau: NDArray[np.float64] = (sign_a * sign_b).sum(axis=(1, 2)) / pairs
        return tau

    def remark(self, outputs: list[Array], *, name: str) -> str | None:
        """What counts as an answer, where the output is not one score a class."""
        found = np.asarray(outputs[0])
        kind = model_outputs.kind_of(found)
        if kind == SCORES:
            return None
        shape = sizes(found.shape[1:]) if found.ndim > 1 else "one number"
        if kind == INTEGERS:
            what = "holds integers: an answer counts as changed when any of its numbers differs"
        else:
            what = (
                "is no vector of class scores: an answer counts as changed when its relative "
                f"error is above {100 * self.tolerance:g} %"
            )
        return f"Output {name!r} ({shape} a sample) {what}."

    def _scores(self, outputs: list[Array]) -> NDArray[np.float64]:
        first = np.asarray(outputs[0], dtype=np.float64)
        return first.reshape(first.shape[0], -1)

    def _top(self, outputs: list[Array]) -> NDArray[np.int64]:
        best: NDArray[np.int64] = self._scores(outputs).argmax(axis=1)
        return best

    def _first(self, outputs: list[Array]) -> NDArray[np.int64]:
        scores = self._scores(outputs)
        k = min(self.top_k, scores.shape[1])
        order: NDArray[np.int64] = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return order


def _check_labels(labels: Array) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(
            f"labels are {labels.dtype} of shape {sizes(labels.shape)}: classification needs one "
            "class number per sample; give such labels, none, or choose another task"
        )

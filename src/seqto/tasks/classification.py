"""Classification: the answer is the class with the highest score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from seqto.contracts import Array


@dataclass(frozen=True, slots=True)
class Classification:
    """label = argmax(scores) - label_offset; the scores are the first output."""

    label_offset: int = 0
    top_k: int = 5

    def agree(self, reference: list[Array], outputs: list[Array]) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = self._top(reference) == self._top(outputs)
        return same

    def correct(self, outputs: list[Array], labels: Array) -> NDArray[np.bool_]:
        right: NDArray[np.bool_] = self._top(outputs) - self.label_offset == labels
        return right

    def top_k_misses(self, reference: list[Array], outputs: list[Array]) -> NDArray[np.bool_]:
        """Per sample: float's answer is not even among the candidate's first K."""
        wanted = self._top(reference)[:, None]
        missed: NDArray[np.bool_] = ~np.any(self._first(outputs) == wanted, axis=1)
        return missed

    def kendall_tau(self, reference: list[Array], outputs: list[Array]) -> NDArray[np.float64]:
        """Per sample: rank correlation of the candidate's scores over float's first K classes.

        The published tool correlates class numbers, which says nothing about order; this is the
        tau over the same top-K, of their ranks.
        """
        chosen = self._first(reference)
        a = np.take_along_axis(self._scores(reference), chosen, axis=1)
        b = np.take_along_axis(self._scores(outputs), chosen, axis=1)
        sign_a = np.sign(a[:, :, None] - a[:, None, :])
        sign_b = np.sign(b[:, :, None] - b[:, None, :])
        k = chosen.shape[1]
        pairs = max(k * (k - 1), 1)
        tau: NDArray[np.float64] = (sign_a * sign_b).sum(axis=(1, 2)) / pairs
        return tau

    def remark(self, outputs: list[Array]) -> str | None:
        """A word of caution where the first output does not look like one score a class."""
        shape = np.shape(outputs[0])[1:]
        if sum(side > 1 for side in shape) < 2:
            return None
        numbers = "×".join(str(side) for side in shape)
        return (
            f"The model's first output has {numbers} numbers a sample, and the largest of all its "
            "numbers is taken for the answer: if it is a map, boxes or a sequence, say what an "
            "answer is with a task of your own."
        )

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

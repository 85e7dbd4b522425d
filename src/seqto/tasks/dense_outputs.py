"""All outputs of a model: arrays of numbers; the mean over outputs of the relative error.

For models whose answer lies in several outputs that no decoder puts together: the raw heads of a
detector, boxes beside key points. Judged by one output alone, a plan that destroys another looks
perfect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from seqto.tasks.answers import Floats, Outputs, named
from seqto.tasks.dense import relative_error, thinned, unbounded_error
from seqto.tasks.settings import check_count
from seqto.tasks.sketch import STRIDED_VALUES
from seqto.tasks.task import CHUNK_ROWS, RELATIVE_ERROR, Answers

LARGEST_ERROR = 1e3  # of one output, in damage: squares stay far from overflow


@dataclass(frozen=True, slots=True)
class DenseOutputs:
    """Answers are the numbers of all outputs; each output counts the same, whatever its size.

    At most `max_values` numbers a sample are kept, shared evenly by the outputs.
    """

    one_output: ClassVar[bool] = False
    chunk_rows: ClassVar[int] = CHUNK_ROWS
    changed: ClassVar[str] = RELATIVE_ERROR
    signal_bytes: ClassVar[int] = 8 * STRIDED_VALUES
    max_values: int = 256 * 256
    # of the outputs: the model's, not the user's
    names: tuple[str, ...] = field(default=(), metadata={"setting": False})

    def __post_init__(self) -> None:
        check_count("max_values", self.max_values)

    def for_model(self, *, outputs: Sequence[str], size: tuple[int, int] | None) -> DenseOutputs:
        """Return the task with the names of its outputs."""
        del size
        return replace(self, names=tuple(outputs))

    def check(self, outputs: Outputs, *, name: str | None = None) -> str | None:
        """Return a caution where numbers of an output are not finite."""
        del name  # every output is judged
        for own, value in named(outputs, self.names).items():
            bad = int((~np.isfinite(np.asarray(value, dtype=np.float64))).sum())
            if bad:
                return f"Output {own!r} of the float model has {bad} numbers that are not finite."
        return None

    def decode(self, outputs: Outputs) -> Answers:
        by_name = named(outputs, self.names)
        most = max(1, self.max_values // len(by_name))
        return Answers({n: thinned(v, most).astype(np.float32) for n, v in by_name.items()})

    def signal(self, outputs: Outputs) -> Floats:
        """Return numbers of all outputs; logarithms of their sizes, as outputs differ in scale."""
        by_name = named(outputs, self.names)
        most = max(1, STRIDED_VALUES // len(by_name))
        parts = []
        for value in by_name.values():
            rows = np.nan_to_num(thinned(value, most).astype(np.float64))
            parts.append(np.sign(rows) * np.log1p(np.abs(rows)) / np.sqrt(rows.shape[1]))
        return np.concatenate(parts, axis=1)

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return the mean over outputs of the relative error, each at most 1."""
        return self._mean(relative_error, reference, answers)

    def gaps(self, reference: Answers, answers: Answers) -> Floats:
        """Return the mean over outputs of the squared relative error: what damage adds up."""
        return self._mean(
            lambda a, b: np.minimum(unbounded_error(a, b), LARGEST_ERROR) ** 2, reference, answers
        )

    def spread(self, reference: Answers) -> float:
        """Return the gap that counts as 1: an error as large as the outputs themselves."""
        del reference
        return 1.0

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return none: labels of one array do not say which output they are of."""
        del answers, labels
        return {}

    @staticmethod
    def _mean(measure: Any, reference: Answers, answers: Answers) -> Floats:
        errors = [measure(want, answers.values[n]) for n, want in reference.values.items()]
        mean: Floats = np.mean(errors, axis=0)
        return mean

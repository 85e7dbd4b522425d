"""Dense outputs and regression: arrays of numbers; relative error; MAE and R² with labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from seqto.errors import DataError
from seqto.records import ScoreKind
from seqto.tasks.answers import Floats, Outputs, Values, label_values
from seqto.tasks.outputs import choose_output
from seqto.tasks.settings import check_count
from seqto.tasks.sketch import STRIDED_VALUES, strided
from seqto.tasks.task import CHUNK_ROWS, RELATIVE_ERROR, Answers


@dataclass(frozen=True, slots=True)
class Dense:
    """Answers are the numbers of one output.

    At most `max_values` numbers a sample are kept (float32: 256 KiB): of a larger array every
    k-th. `signal` keeps at most 4,096 (32 KiB).
    """

    one_output: ClassVar[bool] = True
    label_form: ClassVar[str] = "arrays"
    chunk_rows: ClassVar[int] = CHUNK_ROWS
    changed: ClassVar[str] = RELATIVE_ERROR  # what loss is, for reports
    signal_bytes: ClassVar[int] = 8 * STRIDED_VALUES
    score_kinds: ClassVar[Mapping[str, ScoreKind]] = {
        "MAE": ScoreKind(lower_is_better=True, share=False),
        "R2": ScoreKind(share=False),
    }
    output: str | None = None
    max_values: int = 256 * 256

    def __post_init__(self) -> None:
        check_count("max_values", self.max_values)

    def for_labels(self) -> Dense:
        """Return the task that scores are measured with: the same."""
        return self

    def check(self, outputs: Outputs, *, name: str | None = None) -> str | None:
        """Return a caution where numbers are not finite."""
        output_name, value = choose_output(outputs, self.output)
        name = name or output_name
        bad = int((~np.isfinite(np.asarray(value, dtype=np.float64))).sum())
        if bad:
            return f"Output {name!r} of the float model has {bad} numbers that are not finite."
        return None

    def decode(self, outputs: Outputs) -> Answers:
        _, value = choose_output(outputs, self.output)
        return Answers({"values": thinned(value, self.max_values).astype(np.float32)})

    def signal(self, outputs: Outputs) -> Floats:
        _, value = choose_output(outputs, self.output)
        return np.nan_to_num(thinned(value, STRIDED_VALUES).astype(np.float64))

    def distance(self, reference: Answers, answers: Answers) -> Floats:
        """Return ‖answer − reference‖ / ‖reference‖ per sample, at most 1."""
        return relative_error(reference.values["values"], answers.values["values"])

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        """Return MAE and R² over all numbers; labels have the output's shape."""
        predicted = answers.values["values"].astype(np.float64)
        labelled = thinned(label_values(labels, "values"), self.max_values).astype(np.float64)
        if predicted.shape != labelled.shape:
            raise DataError(
                f"labels have {labelled.shape[1]} numbers a sample, the output "
                f"{predicted.shape[1]}: give labels of the output's shape"
            )
        if not predicted.size:
            return {}
        scores = {"MAE": float(np.abs(predicted - labelled).mean())}
        spread = float(((labelled - labelled.mean()) ** 2).sum())
        if spread > 0:
            scores["R2"] = 1.0 - float(((predicted - labelled) ** 2).sum()) / spread
        return scores


def relative_error(want: Values, got: Values) -> Floats:
    """Return the relative error of each row, at most 1; numbers that are not finite make it 1."""
    return np.minimum(unbounded_error(want, got), 1.0)


def unbounded_error(want: Values, got: Values) -> Floats:
    """Return ‖got − want‖ / ‖want‖ of each row; 1 where numbers are not finite or `want` is 0."""
    a = np.asarray(want, dtype=np.float64).reshape(len(want), -1)
    b = np.asarray(got, dtype=np.float64).reshape(len(got), -1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, b - a)
        distance = np.sqrt((gap**2).sum(axis=1))
        size = np.sqrt((np.where(np.isfinite(a), a, 0.0) ** 2).sum(axis=1))
        error = np.where(distance == 0, 0.0, distance / size)
    finite: Floats = np.nan_to_num(error, nan=1.0, posinf=1.0)
    return finite


def thinned(value: Values, most: int) -> Values:
    """Return one row a sample with at most `most` of its numbers."""
    rows = np.asarray(value)
    if rows.ndim < 2:
        return rows.reshape(len(rows), 1)
    axes = min(2, rows.ndim - 1)
    thin = strided(rows, most=most, axes=axes)
    flat = thin.reshape(len(rows), -1)
    # many channels: the axes that were thinned cannot be thinned enough
    return strided(flat, most=most, axes=1)

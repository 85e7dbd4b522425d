"""Answers of many samples in few arrays, also where samples have unlike numbers of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Floats = NDArray[np.float64]
Outputs = Mapping[str, Values] | Sequence[Values]  # in the model's order; first axis: samples
Named = Mapping[str, Values]


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers, or labels in the same form: one row a sample, or `lengths` rows a sample."""

    values: Mapping[str, Values]
    lengths: Values | None = None

    def take(self, rows: Values) -> Answers:
        """Return the answers of these samples, in this order."""
        chosen = np.asarray(rows, dtype=np.int64)
        if self.lengths is None:
            return Answers({name: value[chosen] for name, value in self.values.items()})
        lengths = self.lengths[chosen]
        starts = (np.cumsum(self.lengths) - self.lengths)[chosen]
        inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        items = np.repeat(starts, lengths) + inner
        return Answers({name: value[items] for name, value in self.values.items()}, lengths)


def named(outputs: Outputs, names: Sequence[str] = ()) -> Named:
    """Return outputs by name; without names they are called by their position."""
    if isinstance(outputs, Mapping):
        return outputs
    if len(names) != len(outputs):
        names = [str(position) for position in range(len(outputs))]
    return dict(zip(names, outputs, strict=True))


def label_values(labels: Any, key: str) -> Values:
    """Return labels that are one array, or the value of that name of labels in answers' form."""
    return np.asarray(labels.values[key] if isinstance(labels, Answers) else labels)


def spans(lengths: Values) -> list[slice]:
    """Return where the items of each sample are."""
    ends = np.cumsum(lengths)
    return [slice(int(end - n), int(end)) for n, end in zip(lengths, ends, strict=True)]

"""Functions on answers: outputs by name, labels in answers' form, items of each sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.tasks.task import Answers

Values = NDArray[Any]
Floats = NDArray[np.float64]
Outputs = Mapping[str, Values] | Sequence[Values]  # in the model's order; first axis: samples
Named = Mapping[str, Values]


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

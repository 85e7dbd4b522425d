"""Labels of samples as the data give them: a class number, or an array of any shape."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.errors import DataError
from seqto.text import shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Label


LARGEST_CLASS = 2**63 - 1  # class numbers are kept as int64


def is_class_number(number: int) -> bool:
    """Return whether a whole number can be kept as the number of a class."""
    return -LARGEST_CLASS <= number <= LARGEST_CLASS


def as_label(value: Any) -> Label | None:
    """Return a label from the user's data: an int where it is one whole number, else an array."""
    if value is None:
        return None
    if isinstance(value, int) and not is_class_number(value):
        raise DataError(f"the label {shorten(value, 40)} is too large for the number of a class")
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise DataError(
            f"a label is {type(value).__name__}, which is no number, text or array of them"
        )
    if array.ndim == 0 and array.dtype.kind != "c":
        try:
            whole = int(array)
        except (ValueError, OverflowError):  # text, or not finite
            return array
        if is_class_number(whole) and (array.dtype.kind in "US" or whole == array):
            return whole
    return array


def pack(labels: Sequence[Label | None]) -> tuple[list[Any], bytes | None]:
    """Split labels into a JSON list and the content of a `.npy` file, if one is needed.

    Class numbers need none. Else the list holds the shape of each label (None: no label), and the
    file holds the values of all of them, one after the other.
    """
    if all(label is None or isinstance(label, int) for label in labels):
        return list(labels), None
    arrays = [None if label is None else np.asarray(label) for label in labels]
    values = np.concatenate([a.reshape(-1) for a in arrays if a is not None])
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=False)
    return [None if a is None else list(a.shape) for a in arrays], stream.getvalue()


def unpack(shapes: Sequence[Any], values: NDArray[Any]) -> list[NDArray[Any] | None]:
    """Return the labels that `pack` has put into a list of shapes and a file of values."""
    labels: list[NDArray[Any] | None] = []
    start = 0
    for shape in shapes:
        if shape is None:
            labels.append(None)
            continue
        stop = start + int(np.prod(shape, dtype=np.int64))
        labels.append(np.array(values[start:stop]).reshape(shape))
        start = stop
    return labels


def joined(labels: Sequence[Label | None]) -> NDArray[Any] | None:
    """Return the labels as one array with a row per sample; None where any sample has none.

    Labels of different shapes (boxes, texts) become an array of arrays, so that rows can be chosen
    from it as from any other.
    """
    if not labels or any(label is None for label in labels):
        return None
    if all(isinstance(label, int) for label in labels):
        return np.array(labels, dtype=np.int64)
    arrays = [np.asarray(label) for label in labels]
    if len({a.shape for a in arrays}) == 1:
        return np.stack(arrays)
    ragged = np.empty(len(arrays), dtype=object)
    for row, array in enumerate(arrays):
        ragged[row] = array
    return ragged

"""Edit distance of sequences, one row of the table at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def edit_distance(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return the fewest insertions, deletions and replacements from one to the other (Levenshtein).

    Items are compared with ==: numbers, characters of a string, words of a list.
    """
    a, b = _numbered(first, second)
    if len(a) < len(b):
        a, b = b, a  # the loop runs over one of them, numpy over the other: the same either way
    positions = np.arange(len(b) + 1)
    row = positions.copy()
    for step, item in enumerate(a, start=1):
        replaced = row[:-1] + (b != item)
        best = np.minimum(row[1:] + 1, replaced)
        row = np.concatenate([[step], best])
        # an insertion costs 1 more than the place before: a running minimum of row[j] - j
        row = np.minimum.accumulate(row - positions) + positions
    return int(row[-1])


def _numbered(first: Sequence[Any], second: Sequence[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return both as arrays of numbers that are equal where the items are."""
    known: dict[Any, int] = {}
    both = [[known.setdefault(item, len(known)) for item in items] for items in (first, second)]
    return np.array(both[0], np.int64), np.array(both[1], np.int64)

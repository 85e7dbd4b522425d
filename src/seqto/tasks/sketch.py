"""Large outputs → few numbers whose squared distances are those of the outputs, nearly.

What is kept of float's outputs for `damage` must be small (84 × 8400 floats are 2.8 MB a picture),
and float and candidate must be reduced alike although the worker sees one model at a time. Two
reductions do not look at the data:

count sketch  each number is added, with a sign drawn once, to one of `width` sums drawn once.
              Squared distances are kept in expectation, with a relative standard deviation of at
              most sqrt(2 / width) (Charikar, Chen, Farach-Colton 2002). For cells that lie at the
              same place in both models.
stride        every k-th number of a map: neighbours in a map say nearly the same.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[Any]
Floats = NDArray[np.float64]

SEED = 13
STRIDED_VALUES = 4096  # at most, a sample: 32 KiB


@lru_cache(maxsize=2)  # a pure function; 11 MB for 80 × 8400 numbers
def _hashes(length: int, width: int) -> tuple[NDArray[np.int64], Floats]:
    generator = np.random.default_rng((SEED, length, width))
    sums = generator.integers(0, width, length)
    signs = generator.choice(np.array([-1.0, 1.0]), length)
    return sums, signs


def count_sketch(values: Numbers, *, width: int) -> Floats:
    """Return `width` signed sums of each row; rows that are short enough stay as they are."""
    rows = np.nan_to_num(np.asarray(values, dtype=np.float64).reshape(len(values), -1))
    if rows.shape[1] <= width:
        return rows
    sums, signs = _hashes(rows.shape[1], width)
    return np.stack([np.bincount(sums, row * signs, minlength=width) for row in rows])


def sketch_of_rows(values: Numbers, rows: NDArray[np.int64], *, count: int, width: int) -> Floats:
    """Return `width` signed sums of a table of `count` rows that is zero but for some rows."""
    sums, signs = _hashes(count * values.shape[1], width)
    numbers = np.nan_to_num(values) * signs.reshape(count, -1)[rows]
    places = sums.reshape(count, -1)[rows].ravel()
    return np.bincount(places, numbers.ravel(), minlength=width).astype(np.float64)


def strided(values: Numbers, *, most: int, axes: int = 2) -> Numbers:
    """Return each sample with its last `axes` axes thinned so that `most` numbers are left.

    The step is the same along these axes and depends on the shape alone.
    """
    count = math.prod(values.shape[1:])
    step = max(1, math.ceil((count / most) ** (1 / axes)))
    while step > 1 and _left(values.shape, step - 1, axes) <= most:
        step -= 1
    while _left(values.shape, step, axes) > most and step < max(values.shape[-axes:]):
        step += 1
    start = step // 2 if all(side > step // 2 for side in values.shape[-axes:]) else 0
    where: Any = (..., *(slice(start, None, step) for _ in range(axes)))
    return np.asarray(values[where])


def _left(shape: tuple[int, ...], step: int, axes: int) -> int:
    sides_left = [math.ceil(side / step) for side in shape[-axes:]]
    return math.prod(shape[1:-axes]) * math.prod(sides_left)

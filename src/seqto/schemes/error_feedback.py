"""Rounding column by column, where later columns make up for the errors of earlier ones.

For a row w of a weight matrix and the Gram matrix H = XᵀX of what the weights multiply, the output
error of rounding w to q is (w-q) H (w-q)ᵀ. Each column's error is passed on to the columns that
are not rounded yet, by the inverse of H (Frantar et al., "GPTQ", 2022). The grid says which values
a column may take; it knows nothing of the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]


TRIAL_ROWS = 48  # output channels on which dampings are compared
BLOCK = 128  # columns whose errors are passed on together: the same result, better locality


class Grid(Protocol):
    """The integers that the weights of a matrix may take, and the values these stand for."""

    def column(self, values: Doubles, index: int, data: Doubles) -> tuple[Doubles, Doubles]:
        """Return the integers nearest to the values of column `index`, and what they stand for.

        `data` holds the integers of all columns that are rounded already, NaN elsewhere.
        """
        ...


class JudgedGrid(Grid, Protocol):
    """A grid that can also round to the nearest, for some of its rows."""

    def some(self, rows: NDArray[np.int64]) -> JudgedGrid: ...

    def nearest(self, rows: Doubles) -> Doubles: ...

    def restored(self, data: Doubles) -> Doubles: ...


@dataclass(frozen=True, slots=True)
class Factor:
    """The order in which columns are rounded, and U with inv(H) = Uᵀ U in that order."""

    order: NDArray[np.int64]
    upper: Doubles


def factor(gram: Doubles, damping: float) -> Factor:
    """Factor a Gram matrix, most important columns first: later ones can make up for them.

    With the columns of H in reverse, L Lᵀ = H gives U = inv(L) in reverse: no inverse of H is
    formed, which is ten times faster. `damping` is a share of the mean diagonal.
    """
    from scipy.linalg.lapack import dpotrf, dtrtri

    diagonal = np.diag(gram)
    diagonal = diagonal + np.where(diagonal <= 0, 1.0, 0.0)
    diagonal = diagonal + damping * float(np.mean(diagonal))
    order = np.argsort(-diagonal, kind="stable")
    backwards = order[::-1]
    # a copy, in the order that LAPACK reads
    matrix = np.asfortranarray(gram[np.ix_(backwards, backwards)])
    np.fill_diagonal(matrix, diagonal[backwards])
    lower, failed = dpotrf(matrix, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise np.linalg.LinAlgError("the damped Gram matrix is not positive definite")
    inverse, _ = dtrtri(lower, lower=1, overwrite_c=1)
    return Factor(order, np.ascontiguousarray(inverse[::-1, ::-1]))


def round_columns(rows: Doubles, passed: Factor, grid: Grid) -> Doubles:
    """Return the integers of `rows`, rounded column by column with the errors passed on."""
    upper, size = passed.upper, rows.shape[1]
    # one column after the other is read and written: they lie together
    work = np.asfortranarray(rows[:, passed.order])
    data = np.full(rows.shape, np.nan, order="F")
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        errors = np.empty((rows.shape[0], stop - start), order="F")
        for position in range(start, stop):
            index = int(passed.order[position])
            data[:, index], restored = grid.column(work[:, position], index, data)
            error = (work[:, position] - restored) / upper[position, position]
            errors[:, position - start] = error
            work[:, position + 1 : stop] -= np.outer(upper[position, position + 1 : stop], error).T
        work[:, stop:] -= errors @ upper[start:stop, stop:]
    return data


def best_damping(
    rows: NDArray[Any], grid: JudgedGrid, grams: Doubles, dampings: Sequence[float]
) -> float | None:
    """Round some rows by one half of the samples, judge by the other; None: nearest wins."""
    count = len(rows)
    chosen = np.linspace(0, count - 1, min(TRIAL_ROWS, count)).astype(np.int64)
    some, small = rows[chosen].astype(np.float64), grid.some(chosen)
    plain = output_error(some - small.restored(small.nearest(some)), grams[1])
    errors: dict[float | None, float] = {None: plain}
    for damping in dampings:
        data = round_columns(some, factor(grams[0], damping), small)
        errors[damping] = output_error(some - small.restored(data), grams[1])
    return min(errors, key=errors.__getitem__)


def output_error(gap: Doubles, gram: Doubles) -> float:
    """Return the squared error at the output that a gap in the weights leaves."""
    return float(((gap @ gram) * gap).sum())

"""Disjoint random splits of the samples: calibration, evaluation, report."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from seqto.errors import DataError
from seqto.records import CALIBRATION, EVALUATION, REPORT

MOST_ROWS = 10_000_000  # above it rows are drawn one by one, not by shuffling all of them


def split_rows(
    count: int,
    *,
    calibration: int,
    evaluation: int,
    report: int | None,
    seed: int,
    calibration_rows: Sequence[int] | None = None,
) -> dict[str, list[int]]:
    """Return disjoint rows for the three splits, drawn without replacement.

    The order is random too.
    `report` of None takes all that is left, 0 none. Rows in `calibration_rows` serve calibration
    alone, and calibration is drawn from nowhere else.
    """
    reserved = set() if calibration_rows is None else {int(row) for row in calibration_rows}
    if any(not 0 <= row < count for row in reserved):
        raise DataError(f"calibration_rows names rows outside the {count} samples of the data")
    if min(calibration, evaluation, report or 0) < 0:
        raise DataError(
            f"negative number of samples: calibration {calibration}, evaluation {evaluation}, "
            f"report {report}"
        )
    needed = calibration + evaluation + (report or 0)
    order = _shuffled(count, needed, seed=seed, reserved=reserved, whole=report is None)
    if calibration_rows is None:
        first, others = order[:calibration], order[calibration:]
    else:
        first = [row for row in order if row in reserved][:calibration]
        others = [row for row in order if row not in reserved]
    if len(first) < calibration or len(others) < evaluation + (report or 0):
        reserved_note = (
            "" if calibration_rows is None else f" ({len(reserved)} of them for calibration only)"
        )
        raise DataError(
            f"too few samples: {needed} are needed (calibration {calibration}, evaluation "
            f"{evaluation}, report {'the rest' if report is None else report}), the data have "
            f"{count}{reserved_note}: lower the numbers or give more data"
        )
    stop = None if report is None else evaluation + report
    return {CALIBRATION: first, EVALUATION: others[:evaluation], REPORT: others[evaluation:stop]}


def _shuffled(
    count: int, needed: int, *, seed: int, reserved: Collection[int], whole: bool
) -> list[int]:
    """Return rows in random order: all, or as many as are needed where there are very many."""
    random = np.random.default_rng(seed)
    if count <= MOST_ROWS:
        return [int(row) for row in random.permutation(count)]
    if whole:
        raise DataError(
            f"the data have {count:,} samples and data.report is not set, which asks for all that "
            "calibration and evaluation leave: set data.report to a number"
        )
    if needed > MOST_ROWS:
        raise DataError(
            f"{needed:,} samples are asked for, at most {MOST_ROWS:,} can be used: lower "
            "data.calibration, data.evaluation or data.report"
        )
    drawn = random.choice(count, size=needed + len(reserved), replace=False)
    free = [int(row) for row in drawn if int(row) not in reserved]
    return [*(int(row) for row in random.permutation(sorted(reserved))), *free]

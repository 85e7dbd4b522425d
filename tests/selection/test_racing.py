"""Rivals and the order of samples, from typed trials alone."""

from __future__ import annotations

import dataclasses

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Loss, Measurement
from seqto.selection.racing import complete, hardest_first, rivals, saw_all_samples


def trial(number: int, same: list[bool], *, size: int = 100) -> Trial:
    """A trial by whether each answer is float's."""
    bits = np.packbits(np.array(same)).tobytes().hex()
    loss = same.count(False) / len(same)
    measured = Measurement(EVALUATION, "x", Loss(loss, loss, loss, len(same), bits))
    return Trial(number, Plan(), size, measurements={EVALUATION: measured})


WHOLE = trial(0, [True, False, True, False])
seen = WHOLE.measurements[EVALUATION]
STOPPED = dataclasses.replace(
    WHOLE, measurements={EVALUATION: dataclasses.replace(seen, stopped_early=True)}
)
FAILED = dataclasses.replace(WHOLE, error=Failure("run", "no"))
NOT_RUN = Trial(3, Plan())


def test_only_a_trial_that_ran_on_all_samples_is_complete() -> None:
    assert saw_all_samples(WHOLE)
    assert not any(map(saw_all_samples, (STOPPED, FAILED, NOT_RUN)))
    assert complete([STOPPED, WHOLE, FAILED, NOT_RUN]) == [(WHOLE, seen.loss)]


def test_rivals_are_bytes_and_summed_distance_of_what_nothing_beats() -> None:
    smaller, equal = trial(1, [True, True, True, False], size=7), trial(2, [True] * 4, size=200)
    assert rivals([WHOLE, STOPPED, smaller]) == ((7, 1.0),), "it beats the larger one in both"
    assert rivals([WHOLE, equal]) == ((100, 2.0), (200, 0.0))


def test_the_samples_that_most_trials_change_come_first() -> None:
    others = [trial(1, [True, False, True, True]), trial(2, [True, False, False, False])]
    assert hardest_first([WHOLE, *others], 4).tolist() == [1, 3, 2, 0]


def test_trials_of_another_number_of_samples_do_not_count() -> None:
    assert hardest_first([trial(1, [False] * 9)], 4).tolist() == [0, 1, 2, 3]

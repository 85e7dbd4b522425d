"""The order in which models are timed."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from seqto.execution.latency import in_turn, round_orders
from seqto.model.batch import Batch


class Recording:
    """A session that notes its runs, in place of a model."""

    def __init__(self, name: int, runs: list[int]) -> None:
        self.name, self.runs = name, runs

    def time_ms(self, _feeds: Batch) -> float:
        self.runs.append(self.name)
        return 1.0 + len(self.runs) % 7  # no ratio is precise, so that all rounds are run


@pytest.mark.parametrize("count", [2, 3, 9])
def test_every_model_runs_once_a_round_and_never_twice_in_a_row(count: int) -> None:
    runs: list[int] = []
    sessions = [Recording(i, runs) for i in range(count)]
    times = in_turn(sessions, Batch({}, 1), seconds=0.0, rounds=(40, 40))  # type: ignore[arg-type]
    assert [len(t) for t in times] == [40] * count
    rounds = [runs[i : i + count] for i in range(0, len(runs), count)]
    assert all(sorted(r) == list(range(count)) for r in rounds)
    assert all(a != b for a, b in itertools.pairwise(runs))


def test_a_model_follows_each_of_the_others_about_as_often() -> None:
    runs = [i for order in itertools.islice(round_orders(5), 2000) for i in order]
    before = Counter(a for a, b in itertools.pairwise(runs) if b == 0)
    assert set(before) == {1, 2, 3, 4}
    assert max(before.values()) < 1.2 * min(before.values())


def test_one_model_alone_is_timed() -> None:
    assert list(itertools.islice(round_orders(1), 3)) == [[0]] * 3

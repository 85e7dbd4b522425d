"""The order in which models are timed."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from seqto.execution.latency import in_turn, round_orders
from seqto.model.batch import Batch


class Recording:
    """A session that notes its runs, in place of a model."""

    def __init__(self, name: int, runs: list[int], ms: float = 1.0) -> None:
        self.name, self.runs, self.ms = name, runs, ms

    def time_ms(self, _feeds: Batch) -> float:
        self.runs.append(self.name)
        # no ratio is precise, so that all rounds are run
        return self.ms * (1.0 + len(self.runs) % 7)


def times_of(sessions: list[Recording]) -> list[list[float]]:
    return in_turn(sessions, Batch({}, 1), seconds=0.0, rounds=(40, 40))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [2, 3, 9])
def test_every_model_is_timed_once_a_round_and_never_twice_in_a_row(count: int) -> None:
    runs: list[int] = []
    times = times_of([Recording(i, runs, ms=100.0) for i in range(count)])
    assert [len(t) for t in times] == [40] * count
    runs = runs[1:]  # float, to know how long a run is
    rounds = [runs[i : i + count] for i in range(0, len(runs), count)]
    assert all(sorted(r) == list(range(count)) for r in rounds)
    assert all(a != b for a, b in itertools.pairwise(runs))


@pytest.mark.parametrize("ms", [0.5, 20.0])
def test_a_short_run_is_timed_with_the_model_in_the_caches(ms: float) -> None:
    """After another model's run its weights lie there; a program that runs one finds its own."""

    class Cached(Recording):
        """Twice as slow after another session's run."""

        def time_ms(self, feeds: Batch) -> float:
            cold = not self.runs or self.runs[-1] != self.name
            super().time_ms(feeds)
            return self.ms * (2.0 if cold else 1.0) * (1.0 + 0.1 * (len(self.runs) % 7))

    times = times_of([Cached(i, [], ms=ms) for i in range(3)])
    assert max(max(own) for own in times) < 1.7 * ms


def test_a_model_follows_each_of_the_others_about_as_often() -> None:
    runs = [i for order in itertools.islice(round_orders(5), 2000) for i in order]
    before = Counter(a for a, b in itertools.pairwise(runs) if b == 0)
    assert set(before) == {1, 2, 3, 4}
    assert max(before.values()) < 1.2 * min(before.values())


def test_one_model_alone_is_timed() -> None:
    assert list(itertools.islice(round_orders(1), 3)) == [[0]] * 3

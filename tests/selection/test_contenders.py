"""Which trials are timed in one session with the picks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from seqto.assembly.plan import Plan
from seqto.record.events import BaselineMeasured, RunStarted, SchemesTried, TrialFinished
from seqto.record.replay import RunState, replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Latency, Loss, Measurement
from seqto.selection.contenders import contenders
from seqto.selection.recommend import Recommendation


@dataclass(frozen=True)
class Row:
    loss: float
    size: int
    ratio: float | None


ROWS = (
    Row(0.16, 100, 0.50),  # 0: the fully quantized model
    Row(0.010, 98, 0.60),  # 1: the pick
    Row(0.010, 98, 0.85),  # 2: perhaps as fast as that
    Row(0.010, 98, 0.95),  # 3: no match for it
    Row(0.010, 120, 0.60),  # 4: too large
    Row(0.100, 90, 0.60),  # 5: loses too much
    Row(0.011, 99, 0.70),  # 6
    Row(0.010, 98, None),  # 7: not timed
)


def state_of(rows: tuple[Row, ...]) -> RunState:
    trials = []
    for number, row in enumerate(rows):
        counted = Loss(row.loss, row.loss, row.loss, 300)
        measured = Measurement(EVALUATION, "x", counted, damage=row.loss)
        latency = None if row.ratio is None else Latency(1.0, 1.0, row.ratio, 0.0, 0.0, 10)
        plan = Plan.of({f"layer{number}": "fp16"})
        trials.append(
            Trial(number, plan, row.size, measurements={EVALUATION: measured}, latency=latency)
        )
    return replay(
        [
            RunStarted(2, {}, {}, {"search": {"tolerance": 0.025}}, {}, {}, ()),
            BaselineMeasured(400, {EVALUATION: 0.8}),
            SchemesTried("x", trials[0].plan.key),
            *(TrialFinished(t) for t in trials),
        ]
    )


@pytest.mark.parametrize(
    ("picks", "most", "want"),
    [
        ({"fast": 1}, 8, [1, 6, 2]),
        ({"fast": 1}, 2, [1, 6]),
        ({"fast": 1, "loss": 4}, 8, [1, 4, 6, 2]),
        ({"fast": 1, "loss": 4, "size": 5}, 2, [1, 4, 5]),  # picks are never left out
        ({"loss": 4}, 8, [4]),  # what the choice is not between
    ],
)
def test_picks_and_what_comes_near_them(picks: dict[str, int], most: int, want: list[int]) -> None:
    assert contenders(state_of(ROWS), Recommendation(picks=picks), most=most) == want

"""Which trials are recommended, on typed trials and without any run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from seqto.assembly.plan import Plan
from seqto.record.events import BaselineMeasured, RunStarted, SchemesTried, TrialFinished
from seqto.record.replay import replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, ExpectedLoss, Failure, Latency, Layer, Loss, Measurement
from seqto.selection.expected_loss import LossCurve, Observation, bound, expected
from seqto.selection.recommend import (
    Recommendation,
    byte_limit,
    choose,
    front_of_loss_and_size,
    fully_quantized,
    near_lowest_loss,
    observation_of,
    probable_loss,
    recommend,
    title_of,
)

BASELINE = BaselineMeasured(400, {EVALUATION: 0.8})


def trial(
    number: int,
    *,
    loss: float,
    size: int,
    ratio: float | None = None,
    damage: float = 0.01,
    low: float = 0.0,
    high: float = 0.0,
    stopped: bool = False,
    same_as: int | None = None,
    error: Failure | None = None,
) -> Trial:
    counted = Loss(loss, loss, loss, 300)
    measured = Measurement(EVALUATION, "x", counted, damage=damage, stopped_early=stopped)
    return Trial(
        number,
        Plan.of({f"layer{number}": "fp16"}),
        size,
        measurements={EVALUATION: measured},
        latency=None if ratio is None else Latency(1.0, 1.0, ratio, low, high, 10),
        same_as=same_as,
        error=error,
    )


FULL = trial(0, loss=0.16, size=100, ratio=0.7)
TRIALS = [
    FULL,
    trial(1, loss=0.0, size=200, ratio=1.0),
    trial(2, loss=0.008, size=98, ratio=0.9),
    trial(3, loss=0.012, size=80, ratio=1.1),
    trial(4, loss=0.013, size=104, ratio=0.6),
    trial(5, loss=0.12, size=40, ratio=0.9),
]


def chosen(
    trials: Sequence[Trial],
    *,
    full: Trial | None = FULL,
    tolerance: float = 0.02,
    objectives: Sequence[str] = ("loss", "size", "latency"),
) -> Recommendation:
    return choose(
        trials,
        objectives=objectives,
        baseline=BASELINE,
        fully_quantized=full,
        tolerance=tolerance,
        within_tolerance=True,
    )


def picks(trials: Sequence[Trial], **how: object) -> Mapping[str, int]:
    return chosen(trials, **how).picks  # type: ignore[arg-type]


def test_practical_picks_keep_their_promises() -> None:
    found = picks(TRIALS)
    assert found["drop_in"] == 2, "no larger than int8, no slower than float"
    assert found["small"] == 3
    assert found["fast"] == 2, "trial 4 is faster, and larger than int8"
    assert found["size"] == 5
    assert TRIALS[found["balanced"]].loss.value <= 0.02  # type: ignore[union-attr]


def test_nothing_within_tolerance_leaves_the_plain_picks() -> None:
    found = picks(TRIALS, tolerance=-1.0)
    assert {"small", "fast"} & set(found) == set()
    assert {"balanced", "loss", "size", "latency"} <= set(found)


def test_without_a_fully_quantized_model_the_float_models_bytes_are_the_limit() -> None:
    assert byte_limit(None, 400) == 400
    assert byte_limit(FULL, 400) == 100
    failed = trial(0, loss=0.1, size=100, error=Failure("load", "no"))
    assert byte_limit(failed, 400) == 400
    assert picks(TRIALS, full=None)["drop_in"] == 4


def curve_of(*rows: tuple[float | None, float], samples: int = 300) -> LossCurve | None:
    return LossCurve.fit(Observation(damage, loss, samples) for damage, loss in rows)


def test_a_lucky_count_is_not_taken_for_a_low_loss() -> None:
    """Two trials count 1.3 %; their damage decides which of them probably keeps 2 %."""
    others = [Observation(d, 2.0 * d, 300) for d in (0.001, 0.002, 0.005, 0.01, 0.02, 0.04)]
    curve = LossCurve.fit(others)
    assert curve is not None
    lucky, steady_one = Observation(0.03, 4 / 300, 300), Observation(0.003, 4 / 300, 300)
    assert bound(lucky, curve) > 0.02 > bound(steady_one, curve)
    rows = [
        trial(n, loss=x[1], size=90, ratio=0.5 + n / 10, damage=x[0])
        for n, x in enumerate([*others, lucky, steady_one])
    ]
    assert probable_loss(rows[6], curve) == bound(lucky, curve)
    assert picks(rows)["fast"] not in (3, 4, 5, 6)


def test_of_those_that_lose_least_the_fastest_drops_in() -> None:
    a = trial(1, loss=0.0033, size=1, ratio=0.99, damage=0.002)
    b = trial(2, loss=0.0033, size=1, ratio=0.75, damage=0.003)
    c = trial(3, loss=0.0600, size=1, ratio=0.50, damage=0.05)
    curve = curve_of((0.002, 0.0033), (0.003, 0.0033), (0.05, 0.06))
    assert [t.number for t in near_lowest_loss([a, b, c], curve)] == [1, 2]


def test_a_curve_needs_trials_and_stays_monotone() -> None:
    assert curve_of((0.1, 0.1), (None, 0.2)) is None
    curve = curve_of((0.001, 0.03), (0.01, 0.02), (0.1, 0.01))
    assert curve is not None
    assert curve.loss_at(0.1) > curve.loss_at(0.001)
    assert abs(curve.loss_at(curve.damage_at(0.02)) - 0.02) < 1e-9
    assert expected(Observation(None, 0.01, 300), curve)[0] == 0.01


def test_the_fully_quantized_model_is_no_drop_in_where_it_loses_too_much() -> None:
    assert "drop_in" not in picks([FULL, TRIALS[1]])
    harmless = trial(0, loss=0.01, size=100, ratio=0.7)
    assert picks([harmless, TRIALS[1]], full=harmless)["drop_in"] == 0


def test_a_drop_in_is_surely_no_slower_where_that_is_to_be_had() -> None:
    even = trial(1, loss=0.0, size=90, ratio=1.0, damage=0.0001, low=0.98, high=1.02)
    faster = trial(2, loss=0.016, size=90, ratio=0.8, damage=0.001, low=0.79, high=0.81)
    lossy = trial(3, loss=0.08, size=90, ratio=0.6, damage=0.01)
    assert picks([even, faster, lossy], objectives=("loss", "size"))["drop_in"] == 2
    assert picks([even, lossy], objectives=("loss", "size"))["drop_in"] == 1


@pytest.mark.parametrize(
    "left_out",
    [
        trial(9, loss=0.0, size=1, ratio=0.1, stopped=True),
        trial(9, loss=0.0, size=1, ratio=0.1, same_as=1),
        trial(9, loss=0.0, size=1, ratio=0.1, error=Failure("run", "no")),
        trial(9, loss=0.0, size=1),
    ],
    ids=["stopped early", "copy", "failed", "not timed"],
)
def test_only_complete_trials_with_all_figures_are_chosen(left_out: Trial) -> None:
    assert chosen([*TRIALS, left_out]) == chosen(TRIALS)


def test_an_objective_without_figures_is_left_out_of_the_front() -> None:
    untimed = [trial(n, loss=0.01 * n, size=100 - n) for n in range(3)]
    found = chosen(untimed)
    assert found.objectives == ("loss", "size", "latency")
    assert found.ranked_by == ("loss", "size")
    assert found.front == (0, 1, 2)


def test_no_trials_give_an_empty_recommendation() -> None:
    found = chosen([], full=None)
    assert (found.front, found.picks, found.best) == ((), {}, None)


def test_the_front_in_loss_and_size_ignores_time() -> None:
    assert front_of_loss_and_size(TRIALS) == [1, 2, 3, 5]


def test_every_pick_has_a_title() -> None:
    assert title_of("balanced") == "balanced"
    assert title_of("loss") == "lowest loss"
    assert title_of("drop_in") == "drop-in"
    assert title_of("unheard of") == "unheard of"


# ---------------------------------------------------------------------------- from a run's state

LAYERS = tuple(Layer(n, "Conv", (n,), ("x",), n, 9) for n in ("a", "b"))


def header(**search: object) -> RunStarted:
    settings = {"search": dict(search)}
    return RunStarted(2, {"sha256": "0"}, {}, settings, {}, {}, LAYERS)


def of_plan(number: int, schemes: Mapping[str, str], **more: object) -> TrialFinished:
    base = trial(number, loss=0.1 * number, size=100 - number)
    return TrialFinished(
        Trial(number, Plan.of(schemes), base.size_bytes, measurements=base.measurements, **more)  # type: ignore[arg-type]
    )


STATIC = "static-s8-u8-channel"


def test_the_fully_quantized_model_is_the_plan_that_the_run_names() -> None:
    partly = of_plan(0, {"a": STATIC})
    run = [header(), partly, of_plan(1, {"a": STATIC, "b": STATIC})]
    named = SchemesTried("c", partly.trial.plan.key, (("b", STATIC),))
    assert fully_quantized(replay([*run, named])) == partly.trial


def test_an_older_run_does_not_name_it_then_nothing_is_float() -> None:
    failed = of_plan(0, {"a": STATIC, "b": STATIC}, error=Failure("run", "no"))
    whole = of_plan(3, {"a": STATIC, "b": STATIC}, same_as=None)
    found = fully_quantized(replay([header(), failed, of_plan(2, {"a": STATIC}), whole]))
    assert found == whole.trial
    half = [of_plan(0, {"b": STATIC}), of_plan(2, {"a": STATIC, "b": "fp16"})]
    assert fully_quantized(replay([header(), *half])) is None


def test_a_run_is_judged_by_the_settings_of_its_last_call() -> None:
    run = [header(objectives=["loss", "unheard of"]), of_plan(1, {"a": STATIC})]
    assert recommend(replay(run)).objectives == ("loss",)
    assert recommend(replay([header(), *run[1:]])).objectives == ("loss", "size")


def test_the_balanced_pick_keeps_the_tolerance_where_the_search_chose_schemes() -> None:
    # trial 1 loses 0 and is large; trial 5 loses half and is tiny; 3 lies between, untolerable
    def run(code: str) -> list[TrialFinished]:
        rows = [(1, 0.0, 100), (3, 0.1, 30), (5, 0.5, 20)]
        found = []
        for number, loss, size in rows:
            base = trial(number, loss=loss, size=size)
            plan = Plan.of({"a": STATIC if number < 5 else code, "b": STATIC} if number > 1 else {})
            found.append(TrialFinished(Trial(number, plan, size, measurements=base.measurements)))
        return found

    for strategy in ("stepwise", "frontier", "of another package"):
        one = replay([header(strategy=strategy), *run(STATIC)])
        several = replay([header(strategy=strategy), *run("weight-s4-channel")])
        assert recommend(one).picks["balanced"] == 3, strategy
        assert recommend(several).picks["balanced"] == 1, strategy


# --------------------------------------------------------------------- what a loss may be expected


def test_a_curve_that_explains_the_counts_outweighs_them() -> None:
    rng = np.random.default_rng(0)
    damages = np.geomspace(0.001, 0.03, 40)
    counted = [(d, rng.poisson(300 * 2 * d) / 300) for d in damages]
    scattered = [(d, rng.poisson(300 * 2 * d * rng.gamma(1.0)) / 300) for d in damages]
    good, poor = curve_of(*counted), curve_of(*scattered)
    assert good is not None
    assert poor is not None
    assert good.scatter < 0.15
    assert poor.scatter > 0.3
    lucky = Observation(0.01, 1 / 300, 300)  # 2 % by the curve
    assert expected(lucky, good)[0] > 0.012
    assert expected(lucky, poor)[0] < 0.008


def test_few_trials_do_not_outweigh_a_count() -> None:
    few = curve_of((0.001, 0.002), (0.005, 0.01), (0.02, 0.04))
    assert few is not None
    assert few.scatter > 0.1


def test_an_expected_loss_stands_for_the_count() -> None:
    base = trial(1, loss=0.0, size=1, damage=0.01)
    measurement = base.measurements[EVALUATION]
    known = dataclasses.replace(measurement, expected_loss=ExpectedLoss(0.02, 0.004))
    told = dataclasses.replace(base, measurements={EVALUATION: known})
    assert observation_of(told) == Observation(0.01, 0.02, 300, 0.004)
    assert observation_of(base) == Observation(0.01, 0.0, 300)
    curve = curve_of((0.001, 0.002), (0.005, 0.01), (0.02, 0.04))
    assert expected(observation_of(told), curve) == (0.02, 0.004)
    assert probable_loss(told, curve) == pytest.approx(0.022)

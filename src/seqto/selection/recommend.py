"""The trials to recommend: the front's extremes, and what a practitioner asks for.

goal       what the user asked for (goal.py), where something was asked for and some trial does it
balanced   nearest the ideal point after normalisation; where layers were quantized in several
           ways (frontier, evolve), of trials within the tolerated loss, if there are any, since
           such a front reaches down to files that are tiny and useless
loss, …    the best of the front in each objective
portable   of the trials whose answers do not depend on the width of the CPU's sums
           (schemes/pairs.py): the goal's, else the drop-in within the tolerated loss, else the
           balanced one; the recommended trial itself where that is portable and does as well
drop_in    no larger than the fully quantized model and no slower than float: better than plain
           int8 in everything, so not that itself unless it is within the tolerated loss; of
           those that lose least the fastest. Trials that are clearly faster
           than float and within the tolerated loss go before those that are about as fast
small      the smallest file within the tolerated loss
fast       the fastest within the tolerated loss and 1.01 × the fully quantized model's bytes; of
           those that are as fast the one with the least damage

With constraints.portable the front and all picks are taken from portable trials.
Where the fully quantized model did not run, the float model's bytes take its place as the limit.
The study (what is timed again, confirmed, saved), the strategies (what they plan for) and the
report take all of this from here.

Losses on a few hundred samples differ by chance, and the lowest of many is partly low by chance:
`small`, `fast` and `balanced` want trials that will *probably* stay within the tolerated
loss on other samples (expected_loss.py), where there are any; "lose least" allows one standard
error.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.errors import ConfigError, nearest
from seqto.record.events import BaselineMeasured
from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.records import EVALUATION
from seqto.schemes.scheme import Scheme
from seqto.selection import pareto
from seqto.selection.expected_loss import LossCurve, Observation, bound, expected
from seqto.selection.goal import Answer, Goal, find_answer
from seqto.selection.objectives import OBJECTIVES, figure_of
from seqto.selection.racing import complete

FAST_SIZE = 1.01  # of the fully quantized model's bytes: with scales of each channel it is larger
TOLERANCE = 0.025  # tolerated loss, where no setting says another
CLEARLY_FASTER = 0.95  # of float's time; two sessions of one model differ by about two per cent
SAME_LATENCY = 1.03  # times that differ by less are the same: the less damage counts

BALANCED, DROP_IN, SMALL, FAST = pareto.BALANCED, "drop_in", "small", "fast"
GOAL, PORTABLE = "goal", "portable"
PRACTICAL = (GOAL, BALANCED, PORTABLE, DROP_IN, SMALL, FAST)  # in the order in which they are shown


def title_of(pick: str) -> str:
    """Return the name of a pick for people: 'balanced', 'drop-in', 'lowest loss'."""
    if pick in OBJECTIVES:
        return OBJECTIVES[pick].best
    return pick.replace("_", "-")


def pick_named(name: str | None, picks: Mapping[str, int]) -> str:
    """Return the pick that a user names: 'lowest loss', 'lowest-loss' and 'loss' are the same.

    None: the goal's, or the balanced one where there is no goal.
    """
    if name is None:
        name = GOAL if GOAL in picks else BALANCED
    plain_name = _plain_name(name)
    for pick in picks:
        if plain_name in (_plain_name(pick), _plain_name(title_of(pick))):
            return pick
    titles = [title_of(pick) for pick in picks]
    known = f"its picks are {', '.join(titles)}" if titles else "no trial succeeded"
    raise ConfigError(f"this run has no pick {name!r}{nearest(name, titles)} ({known})")


def _plain_name(name: str) -> str:
    return name.strip().lower().replace("_", " ").replace("-", " ")


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Numbers of the trials that matter."""

    front: tuple[int, ...] = ()  # trials that none beats in all of `ranked_by`
    picks: Mapping[str, int] = field(default_factory=dict)
    fully_quantized: int | None = None
    objectives: tuple[str, ...] = ()  # as the settings say
    ranked_by: tuple[str, ...] = ()  # those of them that some trial has a figure for
    answer: Answer | None = None  # to the user's goal; None where there is none
    # with constraints.portable: what would be best without it, where that was searched too
    unconstrained: int | None = None

    @property
    def best(self) -> int | None:
        """The trial to take where nobody says which."""
        return next((self.picks[p] for p in (GOAL, BALANCED, "loss") if p in self.picks), None)


def recommend(state: RunState) -> Recommendation:
    """Return the front and the picks of a run, by the settings of its last call."""
    search = state.settings.get("search", {})
    trials = state.numbered
    full = fully_quantized(state)
    tolerance = tolerance_of(state)
    select = functools.partial(
        choose,
        objectives=chosen_objectives(state),
        baseline=state.baseline,
        fully_quantized=full,
        tolerance=tolerance,
        within_tolerance=has_several_schemes(trials),
        goal=Goal.of(search),
        curve=loss_curve(trials),
    )
    portable = [t for t in trials if t.is_portable]
    if state.settings.get("constraints", {}).get("portable", False):
        chosen = select(portable)
        # the fully quantized model is run for comparison, it does not stand for a search
        best = select([t for t in trials if t is not full or t.is_portable]).best
        other = best if best is not None and not state.trials[best].is_portable else None
        chosen = dataclasses.replace(chosen, unconstrained=other)
        return _with_portable(chosen, chosen, state, tolerance=tolerance)
    return _with_portable(select(trials), select(portable), state, tolerance=tolerance)


def _with_portable(
    chosen: Recommendation, portable: Recommendation, state: RunState, *, tolerance: float
) -> Recommendation:
    """Return the recommendation with the trial to take on CPUs that nobody knows.

    A fleet has CPUs on which nothing was timed, so that a file which is no larger than int8 and no
    slower than float goes before the best compromise of this one.
    """
    trials = state.trials
    best = trials.get(chosen.best) if chosen.best is not None else None
    drop_in = portable.picks.get(DROP_IN)
    if GOAL in portable.picks or drop_in is None or loss_of(trials[drop_in]) > tolerance:
        number = portable.best if best is None or not best.is_portable else best.number
    elif best is not None and best.is_portable and _is_drop_in(best, state, tolerance=tolerance):
        number = best.number
    else:
        number = drop_in
    if number is None:
        return chosen
    return dataclasses.replace(chosen, picks={**chosen.picks, PORTABLE: number})


def _is_drop_in(trial: Trial, state: RunState, *, tolerance: float) -> bool:
    """Return whether a trial is no larger than int8, no slower than float and loses little."""
    limit = byte_limit(fully_quantized(state), state.baseline.size_bytes if state.baseline else 0)
    return trial.size_bytes <= limit and not_slower(trial) and loss_of(trial) <= tolerance


def choose(
    trials: Sequence[Trial],
    *,
    objectives: Sequence[str],
    baseline: BaselineMeasured | None,
    fully_quantized: Trial | None,
    tolerance: float,
    within_tolerance: bool,
    goal: Goal | None = None,
    curve: LossCurve | None = None,
) -> Recommendation:
    """Return the front and the picks among trials; copies of other trials do not count.

    `curve`: what a loss costs in damage; None: by these trials.
    """
    curve = curve or loss_curve(trials)
    ranked_by = [
        n for n in objectives if any(figure_of(t, n, baseline) is not None for t in trials)
    ]
    rows = []
    for trial in trials:
        figures = [figure_of(trial, name, baseline) for name in ranked_by]
        point = [f for f in figures if f is not None]
        if trial.same_as is None and ranked_by and len(point) == len(ranked_by):
            rows.append((trial, point))
    front, picks = _choose(
        rows,
        names=ranked_by,
        full=fully_quantized,
        limit=byte_limit(fully_quantized, baseline.size_bytes if baseline else 0),
        tolerance=tolerance,
        within_tolerance=within_tolerance,
        curve=curve,
    )
    number = None if fully_quantized is None else fully_quantized.number
    answer = None
    if goal is not None:
        candidates = [trial for trial, _ in rows]
        answer = find_answer(
            goal,
            candidates,
            baseline=baseline,
            probable=lambda t: probable_loss(t, curve),
            objectives=ranked_by,
        )
        if answer.trial is not None:
            picks = {GOAL: answer.trial, **picks}
    return Recommendation(tuple(front), picks, number, tuple(objectives), tuple(ranked_by), answer)


def _choose(
    rows: Sequence[tuple[Trial, list[float]]],
    *,
    names: Sequence[str],
    full: Trial | None,
    limit: float,
    tolerance: float,
    within_tolerance: bool,
    curve: LossCurve | None,
) -> tuple[list[int], dict[str, int]]:
    if not rows:
        return [], {}
    trials, points = [trial for trial, _ in rows], [point for _, point in rows]
    on_front = pareto.front(points)
    best = pareto.top([points[i] for i in on_front], names=names)
    chosen = {name: trials[on_front[i]].number for name, i in best.items()}
    tolerable = {t.number for t in within(trials, tolerance, curve)}
    usable = [i for i in on_front if trials[i].number in tolerable]
    if within_tolerance and usable:
        balanced = pareto.top([points[i] for i in usable], names=names)[BALANCED]
        chosen[BALANCED] = trials[usable[balanced]].number
    if math.isfinite(limit):
        others = [t for t in trials if t is not full or loss_of(t) <= tolerance]
        chosen.update(_practical(others, tolerable, limit, curve, tolerance=tolerance))
    return sorted(trials[i].number for i in on_front), chosen


def _practical(
    trials: Sequence[Trial],
    tolerable: Container[int],
    limit: float,
    curve: LossCurve | None,
    *,
    tolerance: float,
) -> dict[str, int]:
    usable = [t for t in trials if t.number in tolerable]
    picks: dict[str, int] = {}
    fitting = [t for t in trials if t.size_bytes <= limit and not_slower(t)]
    # what only stores integers runs float's kernels, and a clock cannot say whether it is slower
    faster = [t for t in fitting if clearly_faster(t) and loss_of(t) <= tolerance]
    fitting = faster or fitting
    if fitting:
        picks[DROP_IN] = min(near_lowest_loss(fitting, curve), key=_by(ratio_of, loss_of)).number
    if usable:
        picks[SMALL] = min(usable, key=lambda t: (t.size_bytes, loss_of(t))).number
    quick = [t for t in usable if t.latency and t.size_bytes <= FAST_SIZE * limit]
    if quick:
        same = SAME_LATENCY * min(ratio_of(t) for t in quick)
        fastest = [t for t in quick if ratio_of(t) <= same]
        picks[FAST] = min(fastest, key=_by(damage_of, ratio_of)).number
    return picks


def front_of_loss_and_size(trials: Iterable[Trial]) -> list[int]:
    """Return the numbers of complete trials that no other beats in loss and size."""
    whole = complete(trials)
    points = [(loss.value, float(trial.size_bytes)) for trial, loss in whole]
    return [whole[i][0].number for i in pareto.front(points)]


# ------------------------------------------------------------------------- limits of the picks


def byte_limit(fully_quantized: Trial | None, float_bytes: float) -> float:
    """Return the bytes of the fully quantized model; the float model's where that did not run."""
    if fully_quantized is None or fully_quantized.error is not None:
        return float(float_bytes) or math.inf
    return float(fully_quantized.size_bytes) or math.inf


def loss_curve(trials: Iterable[Trial]) -> LossCurve | None:
    """Return what a loss costs in damage, by the trials that saw all samples."""
    return LossCurve.fit(observation_of(trial) for trial, _ in complete(trials))


def probable_loss(trial: Trial, curve: LossCurve | None) -> float:
    """Return the loss that a trial probably stays below on other samples."""
    return bound(observation_of(trial), curve)


def within(trials: Sequence[Trial], tolerance: float, curve: LossCurve | None) -> list[Trial]:
    """Return trials that probably lose no more than is tolerated, else those that did not."""
    counted = [t for t in trials if loss_of(t) <= tolerance]
    return [t for t in counted if probable_loss(t, curve) <= tolerance] or counted


def near_lowest_loss(trials: Sequence[Trial], curve: LossCurve | None) -> list[Trial]:
    """Return the trials whose expected loss is within one standard error of the lowest."""
    losses = [expected(observation_of(t), curve) for t in trials]
    lowest, error = min(losses)
    slack = max(error, 1.0 / max(1, observation_of(trials[0]).samples))
    return [t for t, (mean, _) in zip(trials, losses, strict=True) if mean <= lowest + slack]


def not_slower(trial: Trial) -> bool:
    """Return whether a trial is no slower than float, as far as can be measured."""
    latency = trial.latency
    return latency is not None and (latency.ratio_low or latency.ratio) <= 1.0


def clearly_faster(trial: Trial) -> bool:
    latency = trial.latency
    return latency is not None and (latency.ratio_high or latency.ratio) <= CLEARLY_FASTER


def observation_of(trial: Trial) -> Observation:
    """Return what is known of a trial's loss on other samples."""
    measurement = trial.measurements.get(EVALUATION)
    if measurement is None:
        return Observation(None, math.inf, 0)
    samples, expected_loss = measurement.loss.samples, measurement.expected_loss
    if expected_loss is None:
        return Observation(measurement.damage, measurement.loss.value, samples)
    value, error = expected_loss.value, expected_loss.error
    return Observation(measurement.damage, value, samples, error)


def loss_of(trial: Trial) -> float:
    return math.inf if trial.loss is None else trial.loss.value


def damage_of(trial: Trial) -> float:
    """Return the damage on the evaluation split; infinite where there is none."""
    damage = observation_of(trial).damage
    return math.inf if damage is None else damage


def ratio_of(trial: Trial) -> float:
    return math.inf if trial.latency is None else trial.latency.ratio


def _by(*keys: Callable[[Trial], float]) -> Callable[[Trial], tuple[float, ...]]:
    return lambda trial: tuple(key(trial) for key in keys)


# --------------------------------------------------------------------- what a run's state implies


def chosen_objectives(state: RunState) -> list[str]:
    """Return the objectives of the last call that this version knows."""
    asked = state.settings.get("search", {}).get("objectives", ())
    return [name for name in asked if name in OBJECTIVES] or ["loss", "size"]


def tolerance_of(state: RunState) -> float:
    return float(state.settings.get("search", {}).get("tolerance", TOLERANCE))


def quantizable_layers(state: RunState) -> list[str]:
    """Return the layers that the analysis or some plan quantized, in graph order."""
    known = {row.layer for row in state.analysis.ranking} if state.analysis else set()
    for trial in (*state.trials.values(), *state.probes.values()):
        known |= _quantized(trial.plan)
    layers = state.header.layers if state.header else ()
    return [layer.name for layer in layers if layer.name in known]


def kept_float(plan: Plan, layers: Sequence[str]) -> list[str]:
    """Return those of the layers that a plan keeps in floating point."""
    quantized = _quantized(plan)
    return [name for name in layers if name not in quantized]


def _quantized(plan: Plan) -> set[str]:
    return {name for name, scheme in plan.schemes if not scheme.is_float}


def has_several_schemes(trials: Iterable[Trial]) -> bool:
    """Return whether some layer was quantized in more than one way."""
    first: dict[str, Scheme] = {}
    for trial in trials:
        for layer, scheme in trial.plan.schemes:
            if not scheme.is_float and first.setdefault(layer, scheme) != scheme:
                return True
    return False


def fully_quantized(state: RunState) -> Trial | None:
    """Return the trial of the default plan if it ran: every layer by the mode, minus refusals.

    Journals of 0.1.0 do not name that plan: there it is the first trial that keeps nothing float
    which could be quantized.
    """
    ran = [t for t in state.numbered if t.plan.schemes and t.error is None]
    if state.default_key:
        return next((t for t in ran if t.plan.key == state.default_key), None)
    layers = quantizable_layers(state)
    whole = (t for t in ran if t.same_as is None and not kept_float(t.plan, layers))
    return next(whole, None)

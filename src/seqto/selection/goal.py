"""A goal: one figure to make small, and bounds that other figures must keep.

`--want smallest --within 1%` is Goal("size", (Bound("loss", 0.01),)). It looks at the region
that the bounds leave, the answer is the best trial in it: by the wanted figure, or by what is not
bounded where none is wanted.

A trial is chosen by the search's figures and then measured on the report split; where it misses a
bound then, the next best is measured (study/finish.py), so an answer holds on samples that no
search has seen. Scores are those of the labelled set or the report split where they are measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqto.record.events import BaselineMeasured
from seqto.record.trial import Trial
from seqto.records import EVALUATION, LABELLED, REPORT, Json
from seqto.selection import pareto
from seqto.selection.objectives import OBJECTIVES, Format, score_drop, scores_of_float
from seqto.text import milliseconds, percent, size

WANTS: Mapping[str, str] = {"smallest": "size", "fastest": "latency", "lowest-loss": "loss"}
FINAL_SPLITS = (LABELLED, REPORT)  # where a figure is taken from first


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that can be bounded."""

    setting: str  # of [search], and with dashes the option
    objective: str  # that the search makes small to get there
    label: str
    format: Format
    read: Callable[[Trial, BaselineMeasured | None], float | None]  # None: not measured
    least: bool = False  # the bound is a lower one

    def text(self, value: float) -> str:
        match self.format:
            case Format.SHARE:
                return percent(value)
            case Format.BYTES:
                return size(value)
            case Format.MILLISECONDS:
                return milliseconds(value)
            case _:
                return f"{value:.2f} ×"


def _loss(trial: Trial, _baseline: BaselineMeasured | None) -> float | None:
    """Return the loss over the search's and the held-out samples together.

    It is at least that of the held-out samples alone, where these are half of all or more.
    0 of 30 held-out answers do not outweigh 15 of 300 that the search saw change; and where many
    are held out, what they show is not made smaller by a search that was lucky.
    """
    losses = [trial.measurements[s].loss for s in (EVALUATION, REPORT) if s in trial.measurements]
    if not losses:
        return None
    samples = sum(loss.samples for loss in losses)
    pooled = sum(loss.value * loss.samples for loss in losses) / max(1, samples)
    many = 2 * losses[-1].samples >= samples
    return max(pooled, losses[-1].value) if many else pooled


def _score_drop(trial: Trial, baseline: BaselineMeasured | None) -> float | None:
    for split in (*FINAL_SPLITS, EVALUATION):
        if split not in trial.measurements:
            continue
        known = scores_of_float(baseline) if baseline and split == EVALUATION else {}
        drop = score_drop(trial.measurements[split], known)
        if drop is not None:
            return drop
    return None


def _speedup(trial: Trial, _baseline: BaselineMeasured | None) -> float | None:
    return None if trial.latency is None or not trial.latency.ratio else 1 / trial.latency.ratio


def _peak_memory(trial: Trial, _baseline: BaselineMeasured | None) -> float | None:
    return None if trial.latency is None else trial.latency.peak_memory_bytes


FIGURES: Mapping[str, Figure] = {
    figure.setting: figure
    for figure in (
        Figure("max_loss", "loss", "changed answers", Format.SHARE, _loss),
        Figure("max_score_drop", "accuracy_drop", "score drop", Format.SHARE, _score_drop),
        Figure("max_size", "size", "file size", Format.BYTES, lambda t, _: t.size_bytes or None),
        Figure("min_speedup", "latency", "speed-up", Format.RATIO, _speedup, least=True),
        Figure(
            "max_latency",
            "latency",
            "latency",
            Format.MILLISECONDS,
            lambda t, _: None if t.latency is None else t.latency.median,
        ),
        Figure("max_peak_memory", "peak_memory", "peak memory", Format.BYTES, _peak_memory),
    )
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit of one figure, by the name of its setting."""

    setting: str
    limit: float

    @property
    def figure(self) -> Figure:
        return FIGURES[self.setting]

    def excess(self, value: float) -> float:
        """Return by how much of the limit a figure misses it; 0 or less where it is kept."""
        beyond = self.limit - value if self.figure.least else value - self.limit
        return beyond / max(abs(self.limit), 1e-3)

    def text(self, loss: str = "changed answers") -> str:
        """Return 'at most 1.0 % changed answers'; `loss` is what the task calls that."""
        side = "at least" if self.figure.least else "at most"
        label = loss if self.setting == "max_loss" else self.figure.label
        return f"{side} {self.figure.text(self.limit)} {label}"


@dataclass(frozen=True, slots=True)
class Goal:
    """The bounds that a user has set, and the objective to improve within them."""

    want: str | None = None  # an objective
    bounds: tuple[Bound, ...] = ()

    @classmethod
    def of(cls, search: Mapping[str, Any]) -> Goal | None:
        """Return the goal of the settings [search]; None where nothing is asked for."""
        bounds = [Bound(name, search[name]) for name in FIGURES if search.get(name) is not None]
        want = WANTS.get(search.get("want") or "")
        return cls(want, tuple(bounds)) if bounds or want else None

    def limit(self, setting: str) -> float | None:
        return next((b.limit for b in self.bounds if b.setting == setting), None)

    @property
    def objectives(self) -> tuple[str, ...]:
        """Objectives that must be measured to judge the goal."""
        named = [b.figure.objective for b in self.bounds] + ([self.want] if self.want else [])
        return tuple(dict.fromkeys(named))

    def text(self, loss: str = "changed answers") -> str:
        """Return 'the smallest file with at most 1.0 % changed answers'."""
        first = {
            "size": "the smallest file",
            "latency": "the fastest model",
            "loss": "the lowest loss",
        }.get(self.want or "", "the best model")
        bounds = " and ".join(bound.text(loss) for bound in self.bounds)
        return f"{first} with {bounds}" if bounds else first


@dataclass(frozen=True, slots=True)
class Miss:
    """A bound that a trial does not keep."""

    setting: str
    value: float | None  # None: not measured
    excess: float  # over the limit, as a share of it


@dataclass(frozen=True, slots=True)
class Answer:
    """The trial that meets a goal, or the one that is nearest to it."""

    goal: Goal
    trial: int | None = None
    pending: int | None = None  # where none meets it: a trial that may, once all is measured
    nearest: int | None = None  # where none meets it
    misses: tuple[Miss, ...] = ()  # of the nearest, the largest first
    # bounds without each of which alone some trial would do
    opened_by: tuple[str, ...] = ()
    costliest: str | None = None  # the bound without which a trial would come nearest to the others

    @property
    def met(self) -> bool:
        return self.trial is not None

    def to_json(self) -> Json:
        bounds = [
            {"setting": b.setting, "limit": b.limit, "text": b.text()} for b in self.goal.bounds
        ]
        misses = [{"setting": m.setting, "value": m.value, "excess": m.excess} for m in self.misses]
        return {
            "want": self.goal.want,
            "bounds": bounds,
            "text": self.goal.text(),
            "met": self.met,
            "trial": self.trial,
            "nearest": self.nearest,
            "misses": misses,
            "opened_by": list(self.opened_by),
            "costliest": self.costliest,
        }


def find_answer(
    goal: Goal,
    trials: Sequence[Trial],
    *,
    baseline: BaselineMeasured | None,
    probable: Callable[[Trial], float],
    objectives: Sequence[str],
) -> Answer:
    """Return the best trial within the bounds; `probable` is the loss to expect elsewhere."""
    inside = [t for t in trials if not misses(goal, t, baseline)]
    limit = goal.limit("max_loss")
    if limit is not None:
        # the best of many is so partly by chance: what will probably hold elsewhere goes first
        likely = [t for t in inside if REPORT in t.measurements or probable(t) <= limit]
        inside = likely or inside
    if inside:
        return Answer(goal, _best(goal, inside, baseline, objectives).number)
    if not trials:
        return Answer(goal)
    # scores of a labelled set and memory are measured of few trials, at the end
    unknown = [t for t in trials if all(m.value is None for m in misses(goal, t, baseline))]
    drop = goal.limit("max_score_drop")
    hopeful = [t for t in unknown if drop is None or probable(t) <= drop]
    pending = _best(goal, hopeful, baseline, objectives).number if hopeful else None
    nearest = min(trials, key=lambda t: (_distance(misses(goal, t, baseline)), t.number))
    opened = [b.setting for b in goal.bounds if _any_without(goal, b, trials, baseline)]
    missed = sorted(misses(goal, nearest, baseline), key=lambda m: -m.excess)
    costliest = _costliest(goal, trials, baseline)
    return Answer(goal, None, pending, nearest.number, tuple(missed), tuple(opened), costliest)


def misses(goal: Goal, trial: Trial, baseline: BaselineMeasured | None) -> list[Miss]:
    """Return the bounds that a trial does not keep, or whose figure it lacks."""
    missed = []
    for bound in goal.bounds:
        value = bound.figure.read(trial, baseline)
        excess = math.inf if value is None else bound.excess(value)
        if excess > 1e-12:
            missed.append(Miss(bound.setting, value, excess if math.isfinite(excess) else 1.0))
    return missed


def _distance(missed: Iterable[Miss]) -> float:
    return math.hypot(*(m.excess for m in missed))


def _costliest(
    goal: Goal, trials: Sequence[Trial], baseline: BaselineMeasured | None
) -> str | None:
    """Return the bound without which a trial comes nearest to the others; None of a single one."""
    if len(goal.bounds) < 2:
        return None
    missed = [{m.setting: m for m in misses(goal, trial, baseline)} for trial in trials]

    def left_without(bound: Bound) -> tuple[float, float]:
        others = [[m for name, m in row.items() if name != bound.setting] for row in missed]
        nearest = min(_distance(row) for row in others)
        # of several without which some trial does: the one that it misses by most
        own = [row[bound.setting].excess if bound.setting in row else 0.0 for row in missed]
        lifted = [o for o, row in zip(own, others, strict=True) if _distance(row) <= nearest]
        return nearest, -min(lifted)

    return min(goal.bounds, key=left_without).setting


def _any_without(
    goal: Goal, bound: Bound, trials: Sequence[Trial], baseline: BaselineMeasured | None
) -> bool:
    others = Goal(goal.want, tuple(b for b in goal.bounds if b != bound))
    return any(not misses(others, t, baseline) for t in trials)


def _best(
    goal: Goal,
    trials: Sequence[Trial],
    baseline: BaselineMeasured | None,
    objectives: Sequence[str],
) -> Trial:
    def figures(trial: Trial, names: Sequence[str]) -> list[float]:
        values = [OBJECTIVES[n].value(trial, baseline) for n in names]
        return [math.inf if v is None else v for v in values]

    if goal.want is not None:
        order = [goal.want, *(n for n in objectives if n != goal.want)]
        return min(trials, key=lambda t: (*figures(t, order), t.number))
    bounded = {b.figure.objective for b in goal.bounds}
    free = [n for n in objectives if n not in bounded] or list(objectives)
    points = [figures(t, free) for t in trials]
    whole = [i for i, point in enumerate(points) if all(map(math.isfinite, point))]
    if not whole:
        return trials[0]
    return trials[whole[pareto.top([points[i] for i in whole], names=free)[pareto.BALANCED]]]

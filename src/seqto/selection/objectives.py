"""The table of objectives: figures of a trial that a search can make small.

A new objective is a row here and the place that measures it: a field of Measurement or Latency, or
an entry of `Latency.extra`. Settings, front, picks, plots, page, CSV, terminal and comparison read
the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from seqto.assembly.plan import Plan
from seqto.record.events import BaselineMeasured
from seqto.record.trial import Trial, main_score
from seqto.records import EVALUATION, Json, Latency, Loss, Measurement
from seqto.selection.racing import saw_all_samples
from seqto.text import milliseconds, percent, size


class Need(StrEnum):
    """A condition for an objective to have figures."""

    TIMING = "timing"
    LABELS = "labels"


class Format(StrEnum):
    """The form in which a figure is written."""

    SHARE = "share"
    BYTES = "bytes"
    RATIO = "ratio"  # to the float model
    MILLISECONDS = "milliseconds"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Objective:
    """One figure of a trial; lower is better."""

    name: str  # in settings, reports and picks
    label: str  # in sentences and legends
    best: str  # title of the trial that is best in it
    value: Callable[[Trial, BaselineMeasured | None], float | None]  # None: not measured
    format: Format
    difference: Literal["points", "percent"] = "percent"  # how two runs compare
    needs: frozenset[Need] = frozenset()
    grows_only: bool = False  # counted while samples run, it never falls: racing may stop on it
    axis: str = ""  # title of an axis where the format does not say enough
    short: str = ""  # head of a table's column

    def text(self, value: float | None) -> str:
        """Return the figure for people."""
        if value is None:
            return "–"
        match self.format:
            case Format.SHARE:
                return percent(value)
            case Format.BYTES:
                return size(value)
            case Format.RATIO:
                return f"{value:.2f} ×"
            case Format.MILLISECONDS:
                return milliseconds(value)
            case Format.NUMBER:
                return f"{value:.4g}"

    def to_json(self) -> Json:
        """Return what the page needs to know."""
        return {
            "name": self.name,
            "label": self.label,
            "best": self.best,
            "format": self.format.value,
            "axis": self.axis,
        }


def _loss(trial: Trial, _baseline: BaselineMeasured | None) -> float | None:
    return None if trial.loss is None else trial.loss.value


def _size(trial: Trial, _baseline: BaselineMeasured | None) -> float | None:
    return trial.size_bytes or None


def _score_drop(trial: Trial, baseline: BaselineMeasured | None) -> float | None:
    known = {} if baseline is None else scores_of_float(baseline)
    return score_drop(trial.measurements[EVALUATION], known)


def score_drop(measured: Measurement, float_scores: Mapping[str, float]) -> float | None:
    """Return how much worse the first score is: shares in points, others relative to float's.

    `float_scores`: the float model's, where the measurement has none of its own.
    """
    name = main_score(measured.scores)
    if name is None:
        return None
    before = measured.baseline_scores.get(name, float_scores.get(name))
    if before is None:
        return None
    kind = measured.kind_of_score(name)
    drop = kind.drop(before, measured.scores[name])
    if kind.share or drop == 0:
        return drop
    return drop / abs(before) if before else math.copysign(math.inf, drop)


def scores_of_float(baseline: BaselineMeasured) -> Mapping[str, float]:
    """Return the float model's scores on the samples of the search."""
    if baseline.scores is not None:
        return baseline.scores.get(EVALUATION, {})
    accuracy = baseline.accuracy.get(EVALUATION)  # of version 0.1.0
    return {} if accuracy is None else {"accuracy": accuracy}


def of_latency(
    field: Callable[[Latency], float | None],
) -> Callable[[Trial, BaselineMeasured | None], float | None]:
    """Return the reader of a figure that is measured when a trial is timed."""

    def read(trial: Trial, _baseline: BaselineMeasured | None) -> float | None:
        return None if trial.latency is None else field(trial.latency)

    return read


LOSS = Objective(
    "loss",
    "answers changed",
    "lowest loss",
    _loss,
    Format.SHARE,
    difference="points",  # a share that is often 0: a ratio would not compare it
    grows_only=True,
)
SIZE = Objective("size", "file size", "smallest", _size, Format.BYTES, grows_only=True)
LATENCY = Objective(
    "latency",
    "latency",
    "fastest",
    # the ratio is measured against float in the same rounds, so drift of the machine's speed
    # between trials cancels out; the median would carry it
    of_latency(lambda latency: latency.ratio),
    Format.RATIO,
    needs=frozenset({Need.TIMING}),
    axis="latency (× float)",
)
ACCURACY_DROP = Objective(
    "accuracy_drop",
    "accuracy drop",
    "most accurate",
    _score_drop,
    Format.SHARE,
    difference="points",
    needs=frozenset({Need.LABELS}),
    axis="accuracy drop (points)",
    short="drop",
)
PEAK_MEMORY = Objective(
    "peak_memory",
    "peak memory",
    "least memory",
    of_latency(lambda latency: latency.peak_memory_bytes),
    Format.BYTES,
    needs=frozenset({Need.TIMING}),
    short="memory",
)
LOAD_TIME = Objective(
    "load_time",
    "load time",
    "fastest to load",
    of_latency(lambda latency: latency.load_ms),
    Format.MILLISECONDS,
    needs=frozenset({Need.TIMING}),
    short="load",
)
OBJECTIVES: dict[str, Objective] = {
    o.name: o for o in (LOSS, SIZE, LATENCY, ACCURACY_DROP, PEAK_MEMORY, LOAD_TIME)
}


def figure_of(trial: Trial, objective: str, baseline: BaselineMeasured | None) -> float | None:
    """Return a trial's figure for an objective; None where it was not measured on all samples."""
    if not saw_all_samples(trial):
        return None
    value = OBJECTIVES[objective].value(trial, baseline)
    return value if value is not None and math.isfinite(value) else None


def figures_of_float(baseline: BaselineMeasured) -> dict[str, float | None]:
    """Return the float model's own figure for each objective, where it has one."""
    scores, none = scores_of_float(baseline), Loss(0.0, 0.0, 0.0, 0)
    same = Measurement(EVALUATION, "", none, scores=scores, baseline_scores=scores)
    model = Trial(-1, Plan(), baseline.size_bytes, "", {EVALUATION: same}, baseline.latency)
    return {name: figure_of(model, name, baseline) for name in OBJECTIVES}


def need_timing(objectives: Iterable[str]) -> bool:
    """Return whether trials must be timed for these objectives."""
    return any(Need.TIMING in OBJECTIVES[name].needs for name in objectives if name in OBJECTIVES)


def can_race(objectives: Sequence[str]) -> bool:
    """Return whether a trial can be stopped for being beaten in these objectives already.

    Loss and size are counted, latency is known by the graph or foretold by the strategy.
    """
    known = [OBJECTIVES[name] for name in objectives if name in OBJECTIVES]
    return len(known) == len(list(objectives)) and all(o.grows_only or o is LATENCY for o in known)

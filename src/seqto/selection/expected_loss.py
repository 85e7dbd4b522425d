"""The loss to be expected of a trial on samples that nobody has seen.

A loss counted on a few hundred samples moves in steps, and the lowest of fifty counts is partly low
by chance. Damage (squared error of the outputs) is smooth, and over the trials of a run it tells
the loss fairly well: a curve is fitted to them. How well is told by the run too: counts scatter
around the curve by chance, and by what damage does not tell. The less of the second there is, the
more a trial's own count gives way to the curve.

Where the task tells how narrowly answers stay (tasks/change_risk.py), the expected loss is known
from a trial's own outputs, with its error, and takes the place of the count.

Losses of trials with one damage are taken as gamma-distributed around the curve, counts as Poisson
(an empirical Bayes estimate): the posterior mean adds 1 / scatter changes to those counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray

Doubles = NDArray[Any]

BOUND_SIGMA = 0.5  # standard errors: two of three trials lose no more than `bound` says
NEAR_PICKS = 0.1  # loss up to which scatter is looked at: picks are there, and curves bend above
SLOPES = (0.2, 1.5)  # of log loss over log damage; beyond these few points have misled the fit
UNKNOWN_SCATTER = 1.0  # a trial's own count decides
STEPS = 25  # it stands still after about eight


class Observation(NamedTuple):
    """What is known of a trial's loss."""

    damage: float | None
    loss: float
    samples: int
    error: float | None = None  # of a loss that is expected; None: of one that was counted


@dataclass(frozen=True, slots=True)
class LossCurve:
    """loss ≈ exp(offset) · damage ^ slope, fitted to the trials of a run.

    scatter     of the losses of trials with one damage, as a share of the curve's loss, squared
    """

    offset: float
    slope: float
    scatter: float

    @classmethod
    def fit(cls, observations: Iterable[Observation]) -> LossCurve | None:
        """Fit the curve to trials; None where fewer than three tell anything."""
        import numpy as np

        rows = [
            (o.damage, o.loss * o.samples, o.samples)
            for o in observations
            if o.damage and 0 < o.damage < 1e3 and o.samples > 0
        ]
        if len(rows) < 3:
            return None
        x = np.log([d for d, _, _ in rows])
        changed, counted = np.array([k for _, k, _ in rows]), np.array([n for _, _, n in rows])
        # Poisson regression, by least squares with weights that are fitted again: a count of
        # nothing is a count too, which logarithms of counts cannot say
        height = np.log((changed + 0.5) / counted)
        middle, slope = 0.0, 1.0
        for _ in range(STEPS):
            fitted = counted * np.exp(np.minimum(height, 0.0))
            target = height + (changed - fitted) / fitted
            centre = float(np.average(x, weights=fitted))
            middle = float(np.average(target, weights=fitted))
            spread = float(np.sum(fitted * (x - centre) ** 2))
            slope = float(np.sum(fitted * (x - centre) * (target - middle))) / max(spread, 1e-12)
            slope = min(max(slope, SLOPES[0]), SLOPES[1])
            height = middle + slope * (x - centre)
        fitted = counted * np.exp(np.minimum(height, 0.0))
        near = fitted <= NEAR_PICKS * counted
        some = near if near.sum() >= 3 else np.ones_like(near)
        return cls(middle - slope * centre, slope, _scatter(changed[some], fitted[some]))

    def loss_at(self, damage: float) -> float:
        return min(1.0, math.exp(self.offset + self.slope * math.log(max(damage, 1e-12))))

    def damage_at(self, loss: float) -> float:
        return math.exp((math.log(max(loss, 1e-9)) - self.offset) / self.slope)


def _scatter(changed: Doubles, fitted: Doubles) -> float:
    """Return the variance of losses around the curve, as a share of its square, by moments.

    Counts vary around the curve by chance alone with the variance `fitted`. The estimate's own
    standard error is added: few trials do not tell that a curve is right.
    """
    power = float((fitted**2).sum())
    if power == 0.0:
        return UNKNOWN_SCATTER
    excess = float(((changed - fitted) ** 2 - fitted).sum()) / power
    error = math.sqrt(float((2 * fitted**2 + fitted).sum())) / power
    return min(max(excess, 0.0) + error, UNKNOWN_SCATTER)


def expected(observation: Observation, curve: LossCurve | None) -> tuple[float, float]:
    """Return the loss to be expected on other samples, and its standard error."""
    damage, loss, samples, known_error = observation
    if known_error is not None:
        return loss, known_error
    changed, counted = loss * samples, float(samples)
    if curve is None or damage is None:
        mean = changed / max(counted, 1.0)
        return mean, math.sqrt(max(mean * (1.0 - mean), 0.0) / max(counted, 1.0))
    more = 1.0 / curve.scatter
    changed, counted = changed + more, counted + more / max(curve.loss_at(damage), 1e-9)
    return changed / counted, math.sqrt(changed) / counted


def bound(observation: Observation, curve: LossCurve | None) -> float:
    """Return the loss that a trial probably stays below."""
    mean, error = expected(observation, curve)
    return mean + BOUND_SIGMA * error

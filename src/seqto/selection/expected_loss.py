"""The loss to be expected of a trial on samples that nobody has seen.

A loss counted on a few hundred samples moves in steps, and the lowest of fifty counts is partly low
by chance. Damage (squared error of the outputs) is smooth, and over the trials of a run it tells
the loss fairly well. The estimate is a posterior mean: the trial's own count plus PRIOR_SAMPLES
pseudo-samples at the loss that is fitted to trials of the same damage.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

PRIOR_SAMPLES = 150.0  # samples that the curve counts for


BOUND_SIGMA = 0.5  # standard errors: two of three trials lose no more than `bound` says


SLOPES = (0.2, 1.5)  # of log loss over log damage; beyond these few points have misled the fit


STEPS = 25  # it stands still after about eight


Observation = tuple[float | None, float, int]  # damage, loss, samples


@dataclass(frozen=True, slots=True)
class LossCurve:
    """loss ≈ exp(offset) · damage ^ slope, fitted to the trials of a run."""

    offset: float
    slope: float

    @classmethod
    def fit(cls, observations: Iterable[Observation]) -> LossCurve | None:
        """Fit the curve to trials; None where fewer than three tell anything."""
        import numpy as np

        rows = [(d, loss * n, n) for d, loss, n in observations if d and 0 < d < 1e3 and n > 0]
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
        return cls(middle - slope * centre, slope)

    def loss_at(self, damage: float) -> float:
        return min(1.0, math.exp(self.offset + self.slope * math.log(max(damage, 1e-12))))

    def damage_at(self, loss: float) -> float:
        return math.exp((math.log(max(loss, 1e-9)) - self.offset) / self.slope)


def expected(observation: Observation, curve: LossCurve | None) -> tuple[float, float]:
    """Return the loss to be expected on other samples, and its standard error."""
    damage, loss, samples = observation
    changed, counted = loss * samples, float(samples)
    if curve is not None and damage is not None:
        changed, counted = changed + PRIOR_SAMPLES * curve.loss_at(damage), counted + PRIOR_SAMPLES
    mean = changed / max(counted, 1.0)
    return mean, math.sqrt(max(mean * (1.0 - mean), 0.0) / max(counted, 1.0))


def bound(observation: Observation, curve: LossCurve | None) -> float:
    """Return the loss that a trial probably stays below."""
    mean, error = expected(observation, curve)
    return mean + BOUND_SIGMA * error

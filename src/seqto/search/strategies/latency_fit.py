"""Profiled milliseconds, corrected by what whole plans took.

A profile times kernels one after the other: it does not see what changing between layouts costs,
and a machine that others use is not as fast when the next plan is profiled. Ratios to the float
model, which are measured in turn with it, are better; so every kernel family gets a factor, and
every change between float and integers a price, with which the plans timed so far come out right.
Few plans move them little: they are held near one and zero by what is usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.schemes.scheme import FP32
from seqto.schemes.types import FLOAT_KERNEL, Kernel
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.noise_model import NoiseModel

RATIO_ERROR = 0.04  # how far a measured ratio is off, usually
FACTOR_ERROR = 0.3  # how far a profile is off, usually
LEAST_TIMED = 4  # trials: fewer do not tell how far predictions are off
CHANGE_SHARE = 0.5  # of a layer's mean time: what a change between layouts may well cost


def float_ms(space: Space) -> float:
    """Return the profiled milliseconds of the float model."""
    return sum(space.latency_of.get((x.name, FP32), 0.0) for x in space.layers)


def lowest_ratios(
    model: NoiseModel | None, trials: Iterable[Trial], plans: Sequence[Plan]
) -> tuple[float | None, ...]:
    """Return the ratio to float's time that each plan will not undercut, with 97.5 % confidence.

    How far predictions are off is taken from the trials that were timed; None where nothing is
    known. `model` has the times that were fitted to them.
    """
    unknown = (None,) * len(plans)
    if model is None or float_ms(model.space) <= 0:
        return unknown
    whole = float_ms(model.space)
    errors = [
        t.latency.ratio - model.prices_of(t.plan)[2] / whole
        for t in trials
        if t.latency is not None and _is_priced(model.space, t.plan)
    ]
    if len(errors) < LEAST_TIMED:
        return unknown
    error = max(RATIO_ERROR, float(np.sqrt(np.mean(np.square(errors)))))
    return tuple(
        model.prices_of(plan)[2] / whole - 1.96 * error if _is_priced(model.space, plan) else None
        for plan in plans
    )


def with_fitted_latency(model: NoiseModel, trials: Iterable[Trial]) -> NoiseModel:
    """Return the model with times that agree with the trials; `model` has those of the profile."""
    space = model.space
    whole = float_ms(space)
    timed = [t for t in trials if t.latency is not None and _is_priced(space, t.plan)]
    if whole <= 0 or not timed:
        return model
    kernel = {scheme: scheme.kernel for _, scheme in space.latency_of}
    kernels = list(dict.fromkeys(kernel.values()))
    free = [k for k in kernels if k != FLOAT_KERNEL]  # the float model's own ratio is one
    rows = np.array([_features(model, t.plan, [FLOAT_KERNEL, *free]) for t in timed])
    ratios = np.array([t.latency.ratio for t in timed if t.latency is not None])
    known = ratios - rows[:, 0] / whole
    matrix = rows[:, 1:] / whole
    usual = np.array([*[1.0] * len(free), 1.0, 0.0])
    mean_layer = whole / max(1, len(space.layers))
    spread = np.array([*[FACTOR_ERROR] * len(free), 1.0, CHANGE_SHARE * mean_layer])
    fitted = _regularised_fit(matrix / RATIO_ERROR, known / RATIO_ERROR, usual, spread)
    factor = {FLOAT_KERNEL: 1.0, **dict(zip(free, fitted, strict=False))}
    per_ms, per_change = float(fitted[-2]), float(fitted[-1])
    return dataclasses.replace(
        model,
        space=dataclasses.replace(
            space,
            latency_of={k: ms * factor[kernel[k[1]]] for k, ms in space.latency_of.items()},
            boundary_ms={n: ms * per_ms + per_change for n, ms in space.boundary_ms.items()},
        ),
    )


def _is_priced(space: Space, plan: Plan) -> bool:
    return all(key in space.latency_of for key in scheme_by_layer(space, plan).items())


def _features(model: NoiseModel, plan: Plan, kernels: Sequence[Kernel]) -> list[float]:
    """Return milliseconds by kernel, milliseconds of changes, and the number of changes."""
    space = model.space
    schemes = scheme_by_layer(space, plan)
    spent = dict.fromkeys(kernels, 0.0)
    for name, scheme in schemes.items():
        spent[scheme.kernel] += space.latency_of[(name, scheme)]
    changes = {t: model.changes(t, schemes) for t in model.tensor}
    changing = sum(space.boundary_ms.get(t, 0.0) * count for t, count in changes.items())
    return [*spent.values(), changing, float(sum(changes.values()))]


def _regularised_fit(
    matrix: NDArray[np.float64],
    right: NDArray[np.float64],
    usual: NDArray[np.float64],
    spread: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Solve least squares with x ≥ 0, held near the usual values by a ridge of width `spread`."""
    from scipy.optimize import nnls

    stacked = np.vstack([matrix, np.diag(1.0 / spread)])
    solution, _ = nnls(stacked, np.concatenate([right, usual / spread]))
    return np.asarray(solution)

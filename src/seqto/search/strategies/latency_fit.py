"""Profiled milliseconds, mended by what whole plans took.

A profile times kernels one after the other: it does not see what changing between layouts costs,
and a machine that others use is not as fast when the next plan is profiled. Ratios to the float
model, which are measured in turn with it, are better; so every kernel family gets a factor, and
every change between float and integers a price, with which the plans timed so far come out right.
Few plans move them little: they are held near one and zero by what is usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.schemes.scheme import Scheme
from seqto.search.space import Space
from seqto.search.strategies.noise_model import NoiseModel

FLOAT = "float"


RATIO_ERROR = 0.04  # how far a measured ratio is off, usually


FACTOR_ERROR = 0.3  # how far a profile is off, usually


CHANGE_SHARE = 0.5  # of a layer's mean time: what a change between layouts may well cost


def float_ms(space: Space) -> float:
    """The profiled time of the float model."""
    return sum(space.latency_of.get((x.name, "fp32"), 0.0) for x in space.layers)


def paced(model: NoiseModel, trials: Iterable[Trial]) -> NoiseModel:
    """The model with times that agree with the trials; `model` has those of the profile."""
    space = model.space
    whole = float_ms(space)
    timed = [t for t in trials if t.latency is not None and _is_priced(space, t.plan)]
    if whole <= 0 or not timed:
        return model
    kernel = {code: Scheme.parse(code).kernel for _, code in space.latency_of}
    families = list(dict.fromkeys(kernel.values()))
    free = [f for f in families if f != FLOAT]  # the float model's own ratio is one
    rows = np.array([_features(model, t.plan, [FLOAT, *free]) for t in timed])
    ratios = np.array([t.latency.ratio for t in timed if t.latency is not None])
    known = ratios - rows[:, 0] / whole
    matrix = rows[:, 1:] / whole
    usual = np.array([*[1.0] * len(free), 1.0, 0.0])
    mean_layer = whole / max(1, len(space.layers))
    spread = np.array([*[FACTOR_ERROR] * len(free), 1.0, CHANGE_SHARE * mean_layer])
    found = _near(matrix / RATIO_ERROR, known / RATIO_ERROR, usual, spread)
    factor = {FLOAT: 1.0, **dict(zip(free, found, strict=False))}
    per_ms, per_change = float(found[-2]), float(found[-1])
    return dataclasses.replace(
        model,
        space=dataclasses.replace(
            space,
            latency_of={k: ms * factor[kernel[k[1]]] for k, ms in space.latency_of.items()},
            boundary_ms={n: ms * per_ms + per_change for n, ms in space.boundary_ms.items()},
        ),
    )


def _is_priced(space: Space, plan: Plan) -> bool:
    return all((name, code) in space.latency_of for name, code in _whole(space, plan).items())


def _features(model: NoiseModel, plan: Plan, families: Sequence[str]) -> list[float]:
    """Milliseconds by family, milliseconds of changes, and how many changes there are."""
    space = model.space
    codes = _whole(space, plan)
    spent = dict.fromkeys(families, 0.0)
    for name, code in codes.items():
        spent[Scheme.parse(code).kernel] += space.latency_of[(name, code)]
    changes = {t: model.changes(t, codes) for t in model.tensor}
    changing = sum(space.boundary_ms.get(t, 0.0) * count for t, count in changes.items())
    return [*spent.values(), changing, float(sum(changes.values()))]


def _whole(space: Space, plan: Plan) -> Mapping[str, str]:
    from seqto.search.strategies.targets import named

    return named(space, plan)


def _near(
    matrix: NDArray[np.float64],
    right: NDArray[np.float64],
    usual: NDArray[np.float64],
    spread: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Least squares with x ≥ 0, held near what is usual."""
    from scipy.optimize import nnls

    stacked = np.vstack([matrix, np.diag(1.0 / spread)])
    solution, _ = nnls(stacked, np.concatenate([right, usual / spread]))
    return np.asarray(solution)

"""Knowledge of an earlier run of the same graph, as far as it holds for this run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.schemes.scheme import Scheme


@dataclass(frozen=True, slots=True)
class Prior:
    """Knowledge that a search may start from; study/warm_start.py has checked that it applies."""

    plans: tuple[Plan, ...] = ()  # that were good, the recommended ones first
    damage: Mapping[tuple[str, Scheme], float] = field(default_factory=dict)  # of single layers
    float_model: Plan | None = None  # the transforms that `damage` was probed under
    kept_float: tuple[str, ...] = ()  # layers without which the uniform plan was of use

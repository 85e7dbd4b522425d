"""The protocol of a search strategy, and the batches of plans that it asks for."""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from seqto.assembly.plan import Plan
from seqto.errors import PlanError
from seqto.record.trial import Trial
from seqto.search.space import Space


class Need(enum.Enum):
    """A strategy's requirement; the study measures only what is required."""

    RANKING = "ranking"  # Space.ranking: the layer analysis
    WIDE_CHOICES = "wide choices"  # Space.menu with more than the mode's scheme, and transforms
    PRIOR = "prior"  # Space.prior: what an earlier run knew, where `--from` names one
    LATENCY_TABLE = "latency table"  # Space.latency_of and boundary_ms, where latency counts


@dataclass(frozen=True, slots=True)
class Ask:
    """A batch a strategy wants run. A probe sees few samples and is no candidate."""

    plans: tuple[Plan, ...]
    notes: tuple[str, ...] = ()
    probe: bool = False
    latency: bool = False  # also time them, alone
    # a plan's ratio to float's time that it will not undercut, with 97.5 % confidence: one that is
    # beaten by what is faster still need not run to its end, nor be timed. None: not foretold
    not_below: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if self.probe and self.latency:
            raise PlanError(
                "a probe cannot be timed: it sees few samples and is no trial; ask for its plans "
                "without probe to have their latency"
            )


Answers = Sequence[Trial]


@runtime_checkable
class PlanningStrategy(Protocol):
    """A strategy that plans for some objectives only; the others are measured and ranked."""

    plans_for: ClassVar[frozenset[str]]


@runtime_checkable
class EstimatingStrategy(Protocol):
    """A strategy that foretells how many trials a search takes."""

    @property
    def expected_trials(self) -> int: ...


@runtime_checkable
class Strategy(Protocol):
    """Chooses the plans to try next. No file, no device, no clock: a generator."""

    needs: ClassVar[frozenset[Need]]

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]: ...

"""One plan, measured and no more: what `seqto apply` runs."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from seqto.assembly.plan import Plan
from seqto.search.space import Space
from seqto.search.strategy import Answers, Ask, Need


@dataclass(frozen=True, slots=True)
class OnePlan:
    """Asks for its plan; the schemes of it are the menu, so that weights are rounded for it."""

    plan: Plan
    timed: bool = True
    needs: ClassVar[frozenset[Need]] = frozenset((Need.WIDE_CHOICES,))

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        yield Ask((self.plan,), ("applied",), latency=self.timed)

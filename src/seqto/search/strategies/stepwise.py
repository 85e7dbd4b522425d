"""The papers' procedure: from fully quantized, give back one more layer each step, worst first."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from seqto.errors import ConfigError
from seqto.model.layers import OUTPUT_OP
from seqto.search.space import Space
from seqto.search.strategy import Answers, Ask, Need

ORDERS = ("worst", "reverse", "random")


@dataclass(frozen=True, slots=True)
class Stepwise:
    """order: worst (the papers'), reverse or random, to show what the ranking is worth."""

    order: str = "worst"
    stop_loss: float = 0.0  # a step that loses no more than this is the last one
    batch: int = 4  # steps asked at once, so that workers have something to do
    needs: ClassVar[frozenset[Need]] = frozenset((Need.RANKING,))

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ConfigError(f"stepwise order {self.order!r} is none of {', '.join(ORDERS)}")

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        full = space.fully_quantized
        left = {**space.default, **space.fixed}
        order = [name for name in self._ordered(space, seed=seed) if name in left]
        steps = [(full, "fully quantized")]
        for count, name in enumerate(order, start=1):
            left.pop(name)
            for layer in space.layers:
                # an output whose producer is float stays float
                if layer.op_type == OUTPUT_OP and _producer(space, layer.inputs[0]) == name:
                    left.pop(layer.name, None)
            steps.append((full.with_schemes(left), f"step {count}: without {name}"))
        for start in range(0, len(steps), self.batch):
            chosen = steps[start : start + self.batch]
            trials = yield Ask(tuple(p for p, _ in chosen), tuple(n for _, n in chosen))
            if any(t.loss is not None and t.loss.value <= self.stop_loss for t in trials):
                return

    def _ordered(self, space: Space, *, seed: int) -> list[str]:
        names = [row.layer for row in space.ranking if row.layer not in space.fixed]
        if self.order == "reverse":
            return names[::-1]
        if self.order == "random":
            import random

            random.Random(seed).shuffle(names)
        return names


def _producer(space: Space, tensor: str) -> str | None:
    for layer in space.layers:
        if layer.output == tensor and layer.op_type != OUTPUT_OP:
            return layer.name
    return None

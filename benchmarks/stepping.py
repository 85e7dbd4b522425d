"""Strategies that only benchmarks need: orders, rankings and single layers, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqto.assembly.plan import Plan
    from seqto.record.trial import Trial
    from seqto.records import LayerError
    from seqto.search.space import Space
    from seqto.search.strategy import Answers, Ask, Need

Json = dict[str, Any]
Steps = list[tuple["Plan", str]]

BATCH = 4  # plans asked at once: workers have something to do, and few run beyond the goal
RANDOM_ORDERS = 5


def stepwise_plans(space: Space, *, order: str = "worst", seed: int = 0) -> Steps:
    """Return all steps that the product's stepwise would take over this space."""
    from seqto.search.strategies.stepwise import Stepwise

    generator = Stepwise(order=order, stop_loss=-1.0).search(space, seed=seed)
    steps: Steps = []
    try:
        ask = next(generator)
        while True:
            steps += zip(ask.plans, ask.notes, strict=True)
            ask = generator.send([])
    except StopIteration:
        return steps


def thinned(steps: Steps, every: int) -> Steps:
    """Return the first, every N-th after it, and the last."""
    kept = steps[::every]
    return kept if kept[-1] is steps[-1] else [*kept, steps[-1]]


def excluded_bytes(space: Space, plan: Plan) -> int:
    """Return float bytes of the layers that a plan leaves out of the default one."""
    kept = dict(plan.schemes)
    return sum(
        4 * x.parameters for x in space.layers if x.name in space.default and x.name not in kept
    )


@dataclass
class Halving:
    """Walks several orders, each until half of the first loss is gone."""

    every: int
    found: Json = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategies.stepwise import Stepwise

        return Stepwise.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.search.strategy import Ask

        walks = {"paper": stepwise_plans(space), "reverse": stepwise_plans(space, order="reverse")}
        for i in range(RANDOM_ORDERS):
            walks[f"random {i + 1}"] = stepwise_plans(space, order="random", seed=i)
        (full,) = yield Ask((walks["paper"][0][0],), ("fully quantized",))
        half = _loss(full) / 2
        self.found = {"fq_loss": _loss(full), "fq_bytes": full.size_bytes, "orders": {}}
        for name, steps in walks.items():
            left = thinned(steps, self.every)[1:]
            for start in range(0, len(left), BATCH):
                batch = left[start : start + BATCH]
                trials = yield Ask(tuple(p for p, _ in batch), tuple(n for _, n in batch))
                hit = next((t for t in trials if _loss(t) <= half), None)
                if hit is not None:
                    self.found["orders"][name] = {
                        "excluded_bytes": excluded_bytes(space, hit.plan),
                        "grown_bytes": hit.size_bytes - full.size_bytes,
                        "excluded_layers": len(full.plan.schemes) - len(hit.plan.schemes),
                        "loss": _loss(hit),
                    }
                    break


@dataclass
class Rankings:
    """Stepwise in the order of each ranking, all steps."""

    every: int
    found: Json = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategies.stepwise import Stepwise

        return Stepwise.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.search.strategy import Ask

        damage = yield from probed(space)
        for name, ranking in rankings_of(space, damage).items():
            steps = thinned(stepwise_plans(dataclasses.replace(space, ranking=ranking)), self.every)
            rows = []
            for start in range(0, len(steps), BATCH):
                batch = steps[start : start + BATCH]
                trials = yield Ask(tuple(p for p, _ in batch), tuple(n for _, n in batch))
                rows += [[_loss(t), t.size_bytes] for t in trials if t.error is None]
            self.found[name] = {"points": rows, "first": [row.layer for row in ranking[:5]]}


@dataclass
class Singles:
    """What one layer does, really: left out of the full plan, and quantized alone."""

    found: Json = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategies.stepwise import Stepwise

        return Stepwise.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.assembly.plan import Plan
        from seqto.search.strategy import Ask

        damage = yield from probed(space)
        names = [row.layer for row in space.ranking]
        without = [_without(space, row) for row in space.ranking]
        alone = [Plan.of({n: space.default[n]}) for n in names]
        trials: list[Trial] = []
        plans = [stepwise_plans(space)[0][0], *without, *alone]
        for start in range(0, len(plans), 16):
            trials += yield Ask(tuple(plans[start : start + 16]))
        added = _added(space)
        full, left_out = trials[0], trials[1 : 1 + len(names)]
        self.found = {
            row.layer: {
                "qdq_err": row.qdq_err,
                "xmodel_err": row.xmodel_err,
                "both": row.error,
                "damage": damage[row.layer],
                "added": added[row.layer],
                "loss_gone": _loss(full) - _loss(left_out[i]),
                "damage_gone": _damage(full) - _damage(left_out[i]),
                "damage_alone": _damage(trials[1 + len(names) + i]),
                "loss_alone": _loss(trials[1 + len(names) + i]),
            }
            for i, row in enumerate(space.ranking)
        }


@dataclass
class OnlyFull:
    """The fully quantized model and the ranking, nothing else."""

    found: Json = field(default_factory=dict)

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategies.stepwise import Stepwise

        return Stepwise.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.search.strategy import Ask

        (full,) = yield Ask((stepwise_plans(space)[0][0],), ("fully quantized",))
        self.found = {
            "loss": _loss(full),
            "damage": _damage(full),
            "error": {row.layer: row.error for row in space.ranking},
        }


def probed(space: Space) -> Generator[Ask, Answers, dict[str, float]]:
    """Damage at the output of every layer of the ranking, quantized alone, on few samples."""
    from seqto.assembly.plan import Plan
    from seqto.search.strategy import Ask

    names = [row.layer for row in space.ranking]
    plans = tuple(Plan.of({name: space.default[name]}) for name in names)
    trials = yield Ask(plans, probe=True)
    return {name: _damage(trial) for name, trial in zip(names, trials, strict=True)}


def rankings_of(space: Space, damage: Mapping[str, float]) -> dict[str, tuple[LayerError, ...]]:
    from seqto.diagnosis.layer_errors import rank

    rows = [
        {"layer": r.layer, "qdq_err": r.qdq_err, "xmodel_err": r.xmodel_err} for r in space.ranking
    ]
    by_damage = sorted(space.ranking, key=lambda row: (-damage[row.layer], row.layer))
    return {
        "qdq_err": rank(rows, qdq_weight=1.0, xmodel_weight=0.0),
        "xmodel_err": rank(rows, qdq_weight=0.0, xmodel_weight=1.0),
        "both": rank(rows),
        "damage": tuple(dataclasses.replace(r, rank=i) for i, r in enumerate(by_damage)),
    }


def _added(space: Space) -> dict[str, float]:
    """xmodel_err that a layer adds to the worst of what it receives."""
    error = {row.layer: row.xmodel_err or 0.0 for row in space.ranking}
    maker = {x.output: x.name for x in space.layers if x.name in error}
    return {
        x.name: error[x.name] - max((error[maker[t]] for t in x.inputs if t in maker), default=0.0)
        for x in space.layers
        if x.name in error
    }


def _without(space: Space, row: LayerError) -> Plan:
    """Return the full plan without one layer, as stepwise leaves it out."""
    return stepwise_plans(dataclasses.replace(space, ranking=(row,)))[1][0]


def _loss(trial: Trial) -> float:
    return trial.loss.value if trial.error is None and trial.loss else 1.0


def _damage(trial: Trial) -> float:
    seen = next(iter(trial.measurements.values()), None)
    return seen.damage if seen is not None and seen.damage is not None else 1e6

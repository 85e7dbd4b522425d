"""NSGA-II (pymoo) over layer → scheme, seeded with what `frontier` finds.

An individual is one integer a layer: the place of its scheme in the layer's menu. pymoo asks and
is told; the plans go out as batches like those of any other strategy.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.frontier import Frontier
from seqto.search.strategies.targets import damage_of
from seqto.search.strategy import Answers, Ask, Need
from seqto.selection.objectives import OBJECTIVES, need_timing

FAILED = 1e9  # an objective of what did not run


@dataclass(frozen=True, slots=True)
class Evolve:
    """`generations` of `population` after a short frontier search."""

    objectives: tuple[str, ...] = ("loss", "size", "latency")
    population: int = 16
    generations: int = 5
    seeds: int = 12  # frontier's plans that are confirmed first
    needs: ClassVar[frozenset[Need]] = Frontier.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        known: list[Trial] = []
        first = Frontier(self.objectives, confirm=self.seeds, rounds=0).search(space, seed=seed)
        yield from _recording(first, known)
        float_model = min(known, key=damage_of).plan if known else Plan()
        algorithm = self._algorithm(space, known, seed=seed)
        while algorithm.has_next():
            asked = algorithm.ask()
            plans = [_decoded(space, x, float_model) for x in asked.get("X")]
            unique = {p.key: p for p in plans}
            notes = (f"generation {algorithm.n_iter or 1}",) * len(unique)
            timed = need_timing(self.objectives)
            trials = yield Ask(tuple(unique.values()), notes, latency=timed)
            by_key = {t.plan.key: t for t in trials}
            asked.set("F", np.array([self._figures(by_key[p.key]) for p in plans]))
            algorithm.tell(infills=asked)

    def _algorithm(self, space: Space, known: Sequence[Trial], *, seed: int) -> Any:
        from pymoo.algorithms.moo.nsga2 import NSGA2
        from pymoo.core.problem import Problem
        from pymoo.operators.crossover.ux import UniformCrossover

        limits = np.array([len(space.menu[x.name]) - 1 for x in space.layers])
        problem = Problem(
            n_var=len(space.layers), n_obj=len(self.objectives), xl=0, xu=limits, vtype=int
        )
        algorithm = NSGA2(
            pop_size=self.population,
            sampling=self._population(space, known, seed=seed),
            crossover=UniformCrossover(),
            mutation=_step_mutation(limits),
            eliminate_duplicates=True,
        )
        algorithm.setup(problem, termination=("n_gen", self.generations), seed=seed, verbose=False)
        return algorithm

    def _population(self, space: Space, known: Sequence[Trial], *, seed: int) -> NDArray[np.int64]:
        """Return the best known plans, filled up with mutants of them."""
        rng = np.random.default_rng(seed)
        good = sorted((t for t in known if t.error is None), key=damage_of)[: self.population]
        rows = [_encoded(space, t.plan) for t in good] or [_encoded(space, Plan())]
        while len(rows) < self.population:
            row = rows[int(rng.integers(len(rows)))].copy()
            layer = int(rng.integers(len(row)))
            row[layer] = int(rng.integers(len(space.menu[space.layers[layer].name])))
            rows.append(row)
        return np.array(rows[: self.population])

    def _figures(self, trial: Trial) -> list[float]:
        if trial.error is not None or trial.loss is None:
            return [FAILED] * len(self.objectives)
        values = [OBJECTIVES[name].value(trial, None) for name in self.objectives]
        figures = [FAILED if value is None else float(value) for value in values]
        # damage breaks the ties that few samples leave between losses
        tie = 1e-3 * min(damage_of(trial), 1.0)
        pairs = zip(self.objectives, figures, strict=True)
        return [figure + tie if name == "loss" else figure for name, figure in pairs]


def _recording(
    inner: Generator[Ask, Answers, None], known: list[Trial]
) -> Generator[Ask, Answers, None]:
    """Run another strategy and keep the trials that are candidates."""
    try:
        ask = next(inner)
        while True:
            trials = yield ask
            if not ask.probe:
                known.extend(trials)
            ask = inner.send(trials)
    except StopIteration:
        return


def _encoded(space: Space, plan: Plan) -> NDArray[np.int64]:
    schemes = scheme_by_layer(space, plan)
    row = []
    for layer in space.layers:
        menu = space.menu[layer.name]
        scheme = schemes[layer.name]
        row.append(menu.index(scheme) if scheme in menu else 0)
    return np.array(row)


def _decoded(space: Space, row: Sequence[int], float_model: Plan) -> Plan:
    chosen = {x.name: space.menu[x.name][int(i)] for x, i in zip(space.layers, row, strict=True)}
    return float_model.with_schemes(chosen)


def _step_mutation(limits: NDArray[np.int64]) -> Any:
    """Return a mutation that redraws each layer's choice with probability 1/layers."""
    from pymoo.core.mutation import Mutation

    class Redraw(Mutation):  # type: ignore[misc]
        def _do(
            self, problem: Any, X: Any, *args: Any, random_state: Any = None, **more: Any
        ) -> Any:
            rng = random_state if random_state is not None else np.random.default_rng(0)
            fresh = (rng.random(X.shape) * (limits + 1)).astype(int)
            return np.where(rng.random(X.shape) < 1.0 / X.shape[1], fresh, X)

    return Redraw(prob=1.0)

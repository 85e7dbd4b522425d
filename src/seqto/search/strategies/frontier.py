"""Choose each layer's scheme: probe, price, sweep the trade-off, confirm, refine.

1. The fully quantized model of the papers, and a good uniform plan. Where that loses too much to
   be useful, the layers that must stay float are looked for (culprits.py), and stay float in the
   uniform plans that follow. Then the uniform plan under every transform of the float model and
   with bias correction: the transforms that leave the least damage are kept.
2. Anchors: uniform plans of each scheme, on real samples.
   Where an earlier run of the graph is known (Space.prior), its transforms are taken and its good
   plans run first.
3. Probes: every (layer, scheme) alone, on the device, few samples: damage at the output. Of large
   models groups of layers, taken apart where they hurt (probing.py).
4. A noise model is fitted (noise_model.py) and corrected by the anchors; with exact bytes and
   profiled milliseconds it prices any plan in microseconds.
5. Lagrangian sweeps: for many prices of a byte and of a millisecond, the plan with the least
   noise + bytes + time; contiguous regions are flipped as a whole where that pays.
6. Plans of the predicted front are confirmed on the evaluation samples. Then come rounds of plans
   for what a user asks for (the region that a goal's bounds leave, goal_plans.py; the fastest and
   the smallest within the tolerated loss, the best that is no larger than plain int8), with what
   the trials so far have taught about damage, and of neighbours of the measured front: the swaps
   that the model expects to pay most. Last, a
   few plans close in on the fastest and on the smallest that will do.

Between plans the search compares *damage* (squared error of the outputs), not loss: damage is
smooth, while the loss on a few hundred samples moves in steps and favours chance.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from seqto.assembly.plan import Plan
from seqto.record.trial import Trial
from seqto.schemes.scheme import FP16, Scheme
from seqto.schemes.types import S8
from seqto.schemes.weight_only import WeightOnly
from seqto.search.prior import Prior
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.closing_plans import CLOSING_ROUNDS, bisect_picks
from seqto.search.strategies.culprits import culprits, without
from seqto.search.strategies.descent import Descent
from seqto.search.strategies.front_points import (
    clamp_damage,
    harmless_damage,
    hopeless_damage,
    is_hopeless,
    price_point,
    spread_points,
)
from seqto.search.strategies.goal_plans import goal_plans, is_planned_for, region_of
from seqto.search.strategies.latency_fit import lowest_ratios, with_fitted_latency
from seqto.search.strategies.neighbours import neighbours
from seqto.search.strategies.noise_model import NoiseModel, Schemes, fit
from seqto.search.strategies.probing import probe
from seqto.search.strategies.size_plans import Named, gap_limits, int8_limit, plans_within
from seqto.search.strategies.targets import (
    damage_of,
    measured_trials,
    target_plans,
)
from seqto.search.strategies.uniform_plans import anchors, has_bias, plain_uniform, uniform_choice
from seqto.search.strategy import Answers, Ask, Need
from seqto.selection.goal import Goal
from seqto.selection.objectives import need_timing
from seqto.selection.pareto import front
from seqto.selection.recommend import TOLERANCE

UNIFORM = 12  # trials of uniform plans, about
NEAR = 0.15  # of a bound: plans that miss a goal by less are confirmed too


@dataclass(frozen=True, slots=True)
class Frontier:
    """Ends by itself after about `confirm` + `rounds` · `refine` trials; a budget may be less."""

    objectives: tuple[str, ...] = ("loss", "size", "latency")
    tolerance: float = TOLERANCE  # loss that the user puts up with
    needs: ClassVar[frozenset[Need]] = frozenset(
        (Need.WIDE_CHOICES, Need.LATENCY_TABLE, Need.PRIOR)
    )
    plans_for: ClassVar[frozenset[str]] = frozenset(("loss", "size", "latency"))
    want: str | None = None  # what a user asks for, as in the settings [search]
    max_loss: float | None = None
    max_score_drop: float | None = None
    max_size: float | None = None
    min_speedup: float | None = None
    max_latency: float | None = None
    confirm: int = 14  # plans of the predicted front that are run
    rounds: int = 2
    refine: int = 10  # plans a round near the measured front
    ask: int = 8  # plans asked at once: more keep more workers busy; part of the run's identity
    # where there is one, plans that give a front are run first: the time may be up any moment
    max_minutes: float | None = field(default=None, metadata={"resume": True})

    @property
    def timed(self) -> bool:
        return "latency" in self.objectives

    @property
    def expected_trials(self) -> int:
        """Estimate of a search's trials: uniform plans, the predicted front, rounds, last plans."""
        return UNIFORM + self.confirm + (self.rounds + 1) * self.refine

    @property
    def goal(self) -> Goal | None:
        return Goal.of({f.name: getattr(self, f.name) for f in dataclasses.fields(self)})

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        known: dict[str, Trial] = {}
        kept_float = yield from self._kept_float(space, known)
        float_model = yield from self._choose_float_model(space, known, kept_float)
        prior = space.prior or Prior()
        good = [(plan, f"of the earlier run {i + 1}") for i, plan in enumerate(prior.plans)]
        yield from self._run(good, known)
        plans = anchors(space, float_model, timed=self.timed, kept_float=kept_float)
        yield from self._run(plans, known)
        damage = yield from probe(
            space,
            float_model,
            uniform_damage=least_damage(known, space, kept_float),
            known=prior.damage if prior.float_model == float_model else {},
        )
        profiled = with_anchor_scale(fit(space, damage), known.values(), float_model)
        model = with_fitted_latency(profiled, known.values())
        swept = self._sweeps(model)
        chosen = self._spread(model, [float_model.with_schemes(p) for p in swept], known)
        named = [(p, f"swept {i + 1}") for i, p in enumerate(chosen)]
        # what is as small as plain int8 comes first: most users look for such a plan
        limits = int8_limit(space, known)
        small = plans_within(limits, model, swept, known, float_model, timed=self.timed)
        yield from self._run([*small, *named], known, model)
        limits = gap_limits(known)
        squeezed = plans_within(limits, model, swept, known, float_model, timed=self.timed)
        yield from self._run(squeezed[: max(0, self.refine - len(small))], known, model)
        for number in range(self.rounds):
            model = with_fitted_latency(profiled, known.values())
            plans = self._targets(model, known, float_model)
            plans += neighbours(model, known, count=self.refine, timed=self.timed)[
                : max(0, self.refine - len(plans))
            ]
            named = [(p, f"round {number + 1}: {n}") for p, n in plans]
            yield from self._run(named, known, model)
        yield from self._close_in(profiled, known, float_model)

    def _close_in(
        self, profiled: NoiseModel, known: dict[str, Trial], float_model: Plan
    ) -> Generator[Ask, Answers, None]:
        """Close in on the smallest and the fastest trial that will do, as long as they improve."""
        fresh: frozenset[str] | None = None
        for _ in range(CLOSING_ROUNDS):
            before = frozenset(known)
            model = with_fitted_latency(profiled, known.values())
            plans = bisect_picks(
                model,
                known,
                float_model,
                tolerance=self.tolerance,
                timed=self.timed,
                fresh=fresh,
            )
            if not plans:
                return
            yield from self._run(plans, known, model)
            fresh = frozenset(known) - before

    def _targets(
        self, model: NoiseModel, known: Mapping[str, Trial], float_model: Plan
    ) -> list[tuple[Plan, str]]:
        """Return plans for the region of a goal, where there is one, then for the usual picks."""
        usual = target_plans(model, known, float_model, tolerance=self.tolerance, timed=self.timed)
        goal = self.goal
        if goal is None or not is_planned_for(goal):
            return usual
        for_goal = goal_plans(goal, model, known, float_model, objectives=self.objectives)
        return [*for_goal, *usual][: self.refine]

    def _run(
        self,
        plans: Sequence[tuple[Plan, str]],
        known: dict[str, Trial],
        model: NoiseModel | None = None,
    ) -> Generator[Ask, Answers, None]:
        """Ask for plans that are not known; `model` foretells their times."""
        first = {plan.key: (plan, note) for plan, note in reversed(plans)}
        fresh = [first[k] for k in dict.fromkeys(p.key for p, _ in plans) if k not in known]
        for batch in even_parts(fresh, self.ask):
            asked_plans = tuple(p for p, _ in batch)
            asked = Ask(
                asked_plans,
                tuple(n for _, n in batch),
                latency=need_timing(self.objectives),
                not_below=lowest_ratios(model, known.values(), asked_plans),
            )
            trials = yield asked
            known.update({t.plan.key: t for t in trials})

    def _kept_float(
        self, space: Space, known: dict[str, Trial]
    ) -> Generator[Ask, Answers, tuple[str, ...]]:
        """Return the layers without which the good uniform plan is of use; none if it is as is."""
        plain = plain_uniform(space)
        first = [(space.fully_quantized, "fully quantized"), (Plan.of(plain), "good uniform")]
        if self.max_minutes is not None:
            first += quick_plans(space)
        yield from self._run(first, known)
        trial = known.get(Plan.of(plain).key)
        if trial is None or not is_hopeless(trial):
            return ()
        if space.prior is not None and space.prior.kept_float:
            return space.prior.kept_float
        return (yield from culprits(space.layers, plain, Plan()))

    def _choose_float_model(
        self, space: Space, known: dict[str, Trial], kept_float: Sequence[str]
    ) -> Generator[Ask, Answers, Plan]:
        """Return the transforms that leave the good uniform plan the least damage.

        They are a plan without schemes. All are compared with plain rounding: only what wins is
        worth rounding for the output.
        """
        base = Plan.of(without(plain_uniform(space), kept_float))
        options = [Plan.of({}, t) for t in space.transforms if t]
        corrected = [dataclasses.replace(p, correct_bias=True) for p in [Plan(), *options]]
        if not has_bias(space, base.as_dict()):
            corrected = []
        chosen = space.prior.float_model if space.prior is not None else None
        if chosen is not None:  # an earlier run has compared them
            options, corrected = [chosen], []
        note = f"good uniform, {len(kept_float)} float" if kept_float else "good uniform"
        plans = [
            (p.with_schemes(base.as_dict()), f"{note}, {' + '.join(p.transform_codes)}")
            for p in dict.fromkeys([*options, *corrected])
        ]
        yield from self._run([(base, note), *plans], known)
        tried = [base, *(p for p, _ in plans)]
        damages = [(damage_of(known[p.key]), i) for i, p in enumerate(tried) if p.key in known]
        best = tried[min(damages)[1]].with_schemes({})
        return best if chosen is None else chosen

    # ----------------------------------------------------------------------------------- sweeps

    def _sweeps(self, model: NoiseModel) -> list[Schemes]:
        """Return plans for many exchange rates between noise, bytes and milliseconds."""
        space = model.space
        start = {x.name: space.menu[x.name][0] for x in space.layers}
        _, all_bytes, all_ms = model.prices(start)
        mixes = [(1.0, 0.0)]
        if self.timed and space.latency_of:
            mixes = [(1.0, 0.0), (1.0, 0.2), (0.5, 0.5), (0.1, 1.0)]
        plans: list[Schemes] = []
        for share_bytes, share_ms in mixes:
            plan = start
            for rate in np.geomspace(1e-5, 3.0, 24):
                byte_price = rate * share_bytes / max(all_bytes, 1.0)
                ms_price = rate * share_ms / max(all_ms, 1e-9)
                # the last rate's plan is near this one's: start there
                plan = Descent(model, byte_price, ms_price).best_plan(plan)
                plans.append(plan)
        return plans

    def _spread(
        self, model: NoiseModel, plans: Iterable[Plan], known: Mapping[str, Trial]
    ) -> list[Plan]:
        """Return the predicted front without the hopeless, thinned to plans that lie apart."""
        unique = {p.key: p for p in plans if p.key not in known}
        fresh = list(unique.values())
        floor = harmless_damage(known.values())
        prices = [clamp_damage(model.prices_of(p), floor) for p in fresh]
        limit = hopeless_damage(known.values())
        useful = [i for i, p in enumerate(prices) if p[0] <= limit] or list(range(len(fresh)))
        useful = self._near_goal(model, useful, prices, known)
        points = [price_point(prices[i], timed=self.timed) for i in useful]
        best = [useful[i] for i in front(points)] if points else []
        chosen = spread_points(
            [price_point(prices[i], timed=self.timed) for i in best], self.confirm
        )
        return [fresh[best[i]] for i in chosen]  # extremes first, then what lies farthest

    def _near_goal(
        self,
        model: NoiseModel,
        candidates: list[int],
        prices: Sequence[Sequence[float]],
        known: Mapping[str, Trial],
    ) -> list[int]:
        """Return the candidates near the region that a goal's bounds leave; all where none is."""
        goal, trials = self.goal, measured_trials(known)
        if goal is None or not is_planned_for(goal) or not trials:
            return candidates
        region = region_of(goal, model, trials)
        return [i for i in candidates if region.excess(prices[i]) <= NEAR] or candidates


# ------------------------------------------------------------------------------------ small tools


def with_anchor_scale(model: NoiseModel, trials: Iterable[Trial], float_model: Plan) -> NoiseModel:
    """Scale each scheme's weight noise so that its uniform plan costs what was measured.

    Saturating kernels err in one direction, so their errors add up faster than squares do;
    only a plan with many such layers shows it. Plans of no use say nothing: an output that is
    destroyed is not destroyed by the weights.
    """
    scale: dict[Scheme, float] = {}
    stored = {x.name for x in model.space.layers if x.storage}
    for trial in trials:
        named = [(n, s) for n, s in trial.plan.schemes if n not in stored]
        schemes = {s for _, s in named if s.weight is not None}
        alike = {s.without_output_rounding() for s in schemes}
        if trial.error is not None or len(alike) != 1 or is_hopeless(trial):
            continue
        if trial.plan.with_schemes({}) != float_model:
            continue
        plan = scheme_by_layer(model.space, trial.plan)
        noise = model.prices(plan)[0]
        own = sum(model.weight.get(key, 0.0) for key in plan.items() if key[0] not in stored)
        if own > 0:
            scale |= dict.fromkeys(schemes, max(1.0, 1.0 + (damage_of(trial) - noise) / own))
    weight = {key: value * scale.get(key[1], 1.0) for key, value in model.weight.items()}
    return dataclasses.replace(model, weight=weight)


def least_damage(known: Mapping[str, Trial], space: Space, kept_float: Sequence[str]) -> float:
    """Return the damage of the uniform plan to start from, under its best transform."""
    schemes = Plan.of(without(plain_uniform(space), kept_float)).schemes
    return min(damage_of(t) for t in known.values() if t.plan.schemes == schemes)


def even_parts(plans: Sequence[Named], size: int) -> list[Sequence[Named]]:
    """Split plans into parts of about this size: a small last part would leave workers idle."""
    count = max(1, round(len(plans) / size))
    ends = [len(plans) * i // count for i in range(count + 1)]
    return [plans[a:b] for a, b in itertools.pairwise(ends) if a < b]


def quick_plans(space: Space) -> list[tuple[Plan, str]]:
    """Return plans that need neither probes nor rounding for the output.

    Weights stored in half, and in eight bits with float kernels: far apart in size and loss.
    """
    plans = []
    for scheme in (FP16, WeightOnly(S8)):
        plan = {x.name: uniform_choice(space, x, scheme) for x in space.layers if x.weight}
        uniform = Plan.of(plan).with_nearest_rounding()
        if scheme in uniform.as_dict().values():
            plans.append((uniform, f"uniform {scheme}"))
    return plans

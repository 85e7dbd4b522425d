"""What the layer rankings are worth, in the papers' setting (per-tensor, s8 × s8).

    python benchmarks/rankings.py            all steps
    python benchmarks/rankings.py --quick    every third step

orders        bytes that stepwise excludes until half of the fully quantized model's loss is gone:
              the papers' order, its reverse, and the mean of five random orders
fronts        qdq_err only, xmodel_err only, both, and damage at the output as rankings: the
              hypervolume of the front that stepwise gives with each
prediction    Spearman of each layer measure with what really happens: loss and damage that go
              when one layer is excluded from the fully quantized model, and the damage of one
              quantized layer alone; `added` is the xmodel_err beyond that of a layer's inputs
calibration   10, 50 and 100 samples, three draws each: Spearman of the rankings, spread of the loss

Losses are those of the evaluation split, all samples for all candidates.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zoo
from measure import Box, float_bytes

if TYPE_CHECKING:
    import argparse

    from seqto.contracts import Answers, Ask, Data, LayerError, Plan, Sample, Space, Trial

Json = dict[str, Any]
Steps = list[tuple["Plan", str]]

BATCH = 4  # plans asked at once: workers have something to do, and few run beyond the goal
RANDOM_ORDERS = 5
PROBE_SAMPLES = 48
CALIBRATIONS = (10, 50, 100)
DRAWS = 3
PARTS = ("orders", "fronts", "prediction", "calibration")
ORDER_MODELS = ("efficientnet-lite0", "mobilenetv1")  # those the issue names for `orders`
SETTINGS = {
    "search.strategy": "stepwise",
    "search.objectives": ["loss", "size"],
    "search.racing": False,
    "search.probes": PROBE_SAMPLES,
    "analysis.diagnose": False,
    "device.latency_s": 0.02,  # not looked at here
}


def main() -> None:
    parser = zoo.parser("rankings", __doc__, models=zoo.MODELS[:3])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--every", type=int, default=1, help="ask every N-th step only")
    parser.add_argument("--quick", action="store_true", help="the same as --every 3")
    options = parser.parse_args()
    options.every = 3 if options.quick else options.every
    chosen = zoo.cases(options)
    kept = {"set": options.set, "every": options.every}
    results = zoo.Results(options.out, name="rankings", options=kept)
    work = {"orders": orders, "fronts": fronts, "prediction": prediction, "calibration": stability}
    for case in chosen:
        for seed in options.seeds:
            for part in options.parts:
                key = f"{part}/{case.name}/{seed}"
                if key in results.rows or not _wanted(part, case, options):
                    continue
                zoo.note(f"rankings {key}")
                results.put(
                    key, {"model": case.name, "seed": seed} | work[part](case, seed, options)
                )
    print(tables(results.rows))


def _wanted(part: str, case: zoo.Case, options: argparse.Namespace) -> bool:
    """`orders` is asked for two models; any other only when it was named on the command line."""
    default = list(zoo.MODELS[:3])
    return part != "orders" or case.name in ORDER_MODELS or options.models != default


# ----------------------------------------------------------------------------------- strategies


def stepwise_plans(space: Space, *, order: str = "worst", seed: int = 0) -> Steps:
    """All steps that the product's stepwise would take over this space."""
    from seqto.strategies.stepwise import Stepwise

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
    """The first, every N-th after it, and the last."""
    kept = steps[::every]
    return kept if kept[-1] is steps[-1] else [*kept, steps[-1]]


def excluded_bytes(space: Space, plan: Plan) -> int:
    """Float bytes of the layers that a plan leaves out of the default one."""
    kept = dict(plan.schemes)
    return sum(
        4 * x.parameters for x in space.layers if x.name in space.default and x.name not in kept
    )


@dataclass
class Halving:
    """Walks several orders, each until half of the first loss is gone."""

    every: int
    found: Json = field(default_factory=dict)

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.contracts import Ask

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

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.contracts import Ask

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

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.contracts import Ask, Plan

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

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.contracts import Ask

        (full,) = yield Ask((stepwise_plans(space)[0][0],), ("fully quantized",))
        self.found = {
            "loss": _loss(full),
            "damage": _damage(full),
            "error": {row.layer: row.error for row in space.ranking},
        }


def probed(space: Space) -> Generator[Ask, Answers, dict[str, float]]:
    """Damage at the output of every layer of the ranking, quantized alone, on few samples."""
    from seqto.contracts import Ask, Plan

    names = [row.layer for row in space.ranking]
    plans = tuple(Plan.of({name: space.default[name]}) for name in names)
    trials = yield Ask(plans, probe=True)
    return {name: _damage(trial) for name, trial in zip(names, trials, strict=True)}


def rankings_of(space: Space, damage: Mapping[str, float]) -> dict[str, tuple[LayerError, ...]]:
    from seqto.sensitivity import rank

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
    error = {row.layer: row.xmodel_err for row in space.ranking}
    maker = {x.output: x.name for x in space.layers if x.name in error}
    return {
        x.name: error[x.name] - max((error[maker[t]] for t in x.inputs if t in maker), default=0.0)
        for x in space.layers
        if x.name in error
    }


def _without(space: Space, row: LayerError) -> Plan:
    """The full plan without one layer, as stepwise leaves it out."""
    return stepwise_plans(dataclasses.replace(space, ranking=(row,)))[1][0]


def _loss(trial: Trial) -> float:
    return trial.loss.value if trial.error is None and trial.loss else 1.0


def _damage(trial: Trial) -> float:
    seen = next(iter(trial.measurements.values()), None)
    return seen.damage if seen is not None and seen.damage is not None else 1e6


# ---------------------------------------------------------------------------------------- parts


def orders(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    strategy = Halving(options.every)
    _run(case, seed, options, "steps", strategy)
    return strategy.found


def fronts(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    strategy = Rankings(options.every)
    # the run folder of `orders`: steps that both ask for are run once
    job = _run(case, seed, options, "steps", strategy)
    full_loss = strategy.found["both"]["points"][0][0]
    box = Box.of(full_loss, float_bytes(job))
    for row in strategy.found.values():
        row["hypervolume"] = box.share([(loss, size) for loss, size in row["points"]])
    return {
        "rankings": strategy.found,
        "fq_loss": full_loss,
        "reference": [box.loss, box.size_bytes],
    }


def prediction(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    strategy = Singles()
    _run(case, seed, options, "steps", strategy)
    rows = list(strategy.found.values())
    real = ("loss_gone", "damage_gone", "damage_alone", "loss_alone")
    table = {
        measure: {r: spearman([x[measure] for x in rows], [x[r] for x in rows]) for r in real}
        for measure in ("qdq_err", "xmodel_err", "both", "added", "damage")
    }
    return {"spearman": table, "layers": strategy.found}


def stability(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    """Rankings and losses of several draws of few and more samples, on the same pictures."""
    import numpy as np

    data = case.job(options.runs / "none").data
    wanted = case.tables["data"]["evaluation"]
    pool = DRAWS * max(CALIBRATIONS)
    if len(data) < pool + wanted:
        pool = len(data) - wanted
    order = [int(i) for i in np.random.default_rng(seed).permutation(len(data))]
    found: dict[str, list[Json]] = {}
    for count in CALIBRATIONS:
        for draw in range(DRAWS):
            rows = np.random.default_rng([seed, draw, count]).permutation(order[:pool])[:count]
            chosen = Chosen(data, tuple(int(r) for r in rows), tuple(order[pool : pool + wanted]))
            strategy = OnlyFull()
            more = {"data.calibration": count, "analysis.samples": count, "data.report": None}
            name = f"calibration-{count}-{draw}"
            _run(case, seed, options, name, strategy, data=chosen, more=more)
            found.setdefault(str(count), []).append(strategy.found)
    return {"draws": found}


@dataclass(frozen=True)
class Chosen:
    """Chosen rows of other data: the first for calibration alone, then those to evaluate on."""

    inner: Data
    calibration: tuple[int, ...]
    rest: tuple[int, ...]

    @property
    def calibration_rows(self) -> tuple[int, ...]:
        return tuple(range(len(self.calibration)))

    def __len__(self) -> int:
        return len(self.calibration) + len(self.rest)

    def read(self, index: int) -> Sample:
        return self.inner.read((*self.calibration, *self.rest)[index])

    def identity(self) -> Json:
        rows = {"calibration": list(self.calibration), "rest": list(self.rest)}
        return {**self.inner.identity(), "chosen": rows}


def _run(
    case: zoo.Case,
    seed: int,
    options: argparse.Namespace,
    name: str,
    strategy: Any,
    *,
    data: Data | None = None,
    more: Mapping[str, Any] | None = None,
) -> Any:
    from seqto.tune import run

    out = options.runs / case.name / f"seed-{seed}" / name
    settings = {**SETTINGS, "data.seed": seed, **(more or {})}
    job = case.job(out, settings, strategy=strategy, data=data)
    run(job)
    return job


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation; None where one side is constant."""
    from scipy.stats import spearmanr

    if len(set(a)) < 2 or len(set(b)) < 2:
        return None
    value = float(spearmanr(a, b).statistic)
    return value if math.isfinite(value) else None


# --------------------------------------------------------------------------------------- tables


def tables(rows: Mapping[str, Json]) -> str:
    by_part = {p: [r for k, r in rows.items() if k.startswith(p + "/")] for p in PARTS}
    makers = {
        "orders": _orders_table,
        "fronts": _fronts_table,
        "prediction": _prediction_table,
        "calibration": _stability_table,
    }
    return "\n".join(f"### {p}\n\n{makers[p](found)}" for p, found in by_part.items() if found)


def _orders_table(rows: Sequence[Json]) -> str:
    lines = []
    for row in rows:
        found = row["orders"]
        random = [found[n]["excluded_bytes"] for n in found if n.startswith("random")]
        mean = sum(random) / len(random) if random else None
        paper, reverse = (found.get(n, {}).get("excluded_bytes") for n in ("paper", "reverse"))
        earns = None not in (paper, reverse, mean) and paper < reverse and paper < mean
        lines.append(
            (
                row["model"],
                row["seed"],
                zoo.percent(row["fq_loss"]),
                *(zoo.megabytes(x) for x in (paper, reverse, mean)),
                " / ".join(zoo.megabytes(x) for x in random),
                "yes" if earns else "**no**",
            )
        )
    head = ("model", "seed", "FQ loss", "papers' order, MB excluded", "reverse")
    return zoo.table((*head, "mean of 5 random", "each random", "papers' order least?"), lines)


def _fronts_table(rows: Sequence[Json]) -> str:
    names = ("qdq_err", "xmodel_err", "both", "damage")
    lines = [
        (
            row["model"],
            row["seed"],
            zoo.percent(row["fq_loss"]),
            *(_figure(row["rankings"][n]["hypervolume"]) for n in names),
        )
        for row in rows
    ]
    return zoo.table(("model", "seed", "FQ loss", *(f"hypervolume: {n}" for n in names)), lines)


def _prediction_table(rows: Sequence[Json]) -> str:
    real = {
        "loss_gone": "loss gone when excluded",
        "damage_gone": "damage gone when excluded",
        "damage_alone": "damage when quantized alone",
        "loss_alone": "loss when quantized alone",
    }
    lines = [
        (row["model"], row["seed"], measure, *(_figure(found[r]) for r in real))
        for row in rows
        for measure, found in row["spearman"].items()
    ]
    return zoo.table(("model", "seed", "measure", *real.values()), lines)


def _stability_table(rows: Sequence[Json]) -> str:
    lines = []
    for row in rows:
        most = row["draws"][str(CALIBRATIONS[-1])]
        for count, draws in row["draws"].items():
            pairs = [(a, b) for i, a in enumerate(draws) for b in draws[i + 1 :]]
            against = [(a, b) for a in draws for b in most if a is not b]
            losses = [d["loss"] for d in draws]
            lines.append(
                (
                    row["model"],
                    row["seed"],
                    count,
                    _figure(_mean_agreement(pairs)),
                    _figure(_mean_agreement(against)),
                    f"{zoo.percent(min(losses))} – {zoo.percent(max(losses))}",
                )
            )
    head = (
        "model",
        "seed",
        "samples",
        "Spearman between draws",
        f"with {CALIBRATIONS[-1]} samples",
    )
    return zoo.table((*head, "FQ loss, lowest – highest"), lines)


def _mean_agreement(pairs: Sequence[tuple[Json, Json]]) -> float | None:
    found = []
    for a, b in pairs:
        names = sorted(a["error"].keys() & b["error"].keys())
        value = spearman([a["error"][n] for n in names], [b["error"][n] for n in names])
        if value is not None:
            found.append(value)
    return sum(found) / len(found) if found else None


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()

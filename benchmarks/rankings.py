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

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import zoo
from measure import Box, float_bytes
from stepping import Halving, OnlyFull, Rankings, Singles

if TYPE_CHECKING:
    import argparse

    from seqto.data.data import Data
    from seqto.records import Sample

Json = dict[str, Any]

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
    """Return whether a part is asked for.

    `orders` is asked for two models; any other only when it was named on the command line.
    """
    default = list(zoo.MODELS[:3])
    return part != "orders" or case.name in ORDER_MODELS or options.models != default


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
    """Return rankings and losses of several draws of few and more samples, on the same pictures."""
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
    from seqto.api import run_tune

    out = options.runs / case.name / f"seed-{seed}" / name
    settings = {**SETTINGS, "data.seed": seed, **(more or {})}
    job = case.job(out, settings, strategy=strategy, data=data)
    run_tune(job)
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

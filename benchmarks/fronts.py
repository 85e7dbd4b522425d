"""The targets for fronts: ours against the paper's fully quantized model, on unseen pictures.

    python benchmarks/fronts.py

For every model and split seed: `frontier` with default settings, `stepwise` over uniform
per-channel u8 × s8, the stock fully quantized model (FQ); loss of all front trials on the report
split, latency of float, FQ and the recommended trials in turn. Point estimates decide, Wilson's
95 % bounds are printed beside them. A target holds for a model when three of five seeds pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import zoo
from measure import (
    PREPARED,
    Box,
    Referee,
    cpu_kept,
    float_bytes,
    interleaved,
    loss_json,
    rebuilt,
    samples_of,
)

if TYPE_CHECKING:
    import argparse

    from seqto.api import Result
    from seqto.record.trial import Trial

Json = dict[str, Any]
OUTSIDE = 0.30  # front trials that lose more on the evaluation split cannot be in the box
IMAGENET = zoo.MODELS[:4]
TARGETS: Mapping[str, tuple[str, Sequence[str]]] = {
    "drop-in": ("loss ≤ max(2.5 %, 0.15·FQ) and ≤ FQ, bytes ≤ FQ, latency ≤ float", zoo.MODELS),
    "fast": ("loss ≤ 2.5 %, bytes ≤ 1.05·FQ, latency ≤ 0.75·float", IMAGENET),
    "accurate": ("loss ≤ 1 % at ≤ 0.33 of float's bytes", zoo.MODELS),
    "small": ("loss ≤ 5 % at ≤ 0.85·FQ's bytes", zoo.MODELS[:3]),
    "front": ("closes ≥ half of stepwise's gap to the ideal point, never below it", zoo.MODELS),
}
STEPWISE = {
    "search.strategy": "stepwise",
    "search.objectives": ["loss", "size"],
    "quantize.weight": "s8",
    "quantize.activation": "u8",
    "quantize.per_channel": True,
    "analysis.diagnose": False,
    "device.latency_s": 0.05,  # not looked at here
}


def main() -> None:
    parser = zoo.parser("fronts", __doc__, models=zoo.MODELS, seeds=range(5))
    options = parser.parse_args()
    chosen = zoo.cases(options)
    results = zoo.Results(options.out, name="fronts", options={"set": options.set})
    for case in chosen:
        for seed in options.seeds:
            key = f"{case.name}/{seed}"
            if key not in results.rows:
                zoo.note(f"fronts {key}")
                results.put(key, measured(case, seed, options))
                print(verdicts({key: results.rows[key]}), flush=True)
    print(summary(results.rows))


# ------------------------------------------------------------------------------------ measuring


def measured(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    from seqto.api import run_tune
    from seqto.records import REPORT

    folder = options.runs / case.name
    folder.mkdir(parents=True, exist_ok=True)
    job = case.job(folder / f"frontier-{seed}", {"data.seed": seed})
    with cpu_kept(folder / f"frontier-{seed}.cpu.json") if not job.out.exists() else nullcontext():
        ours = run_tune(job)
    steps = run_tune(case.job(folder / f"stepwise-{seed}", {**STEPWISE, "data.seed": seed}))
    zoo.note(f"{len(ours.trials)} and {len(steps.trials)} trials; the report split")
    with samples_of(job) as store:
        fq = zoo.fully_quantized(job.out / PREPARED, store)
        referee = Referee(job, store, REPORT)
        fq_loss = loss_json(referee.measure(fq))
        chosen = sorted(set(ours.recommended.values()))
        by_number = {t.number: t for t in ours.trials}
        models = {str(n): rebuilt(job.out, by_number[n]) for n in chosen}
        latency = interleaved(job, store, {"fq": fq, **models})
        cleanest = {_cleanest(ours, 0.33 * float_bytes(job)), _cleanest(ours, 0.85 * len(fq))}
        rows = _front_rows(ours, referee, cleanest - {None})
        step_rows = _front_rows(steps, referee, set())
    for row in rows:
        row["picks"] = [pick for pick, n in ours.recommended.items() if n == row["number"]]
        if str(row["number"]) in latency:
            row["latency"] = latency[str(row["number"])].to_json()
    row = {
        "model": case.name,
        "seed": seed,
        "float_bytes": float_bytes(job),
        "fq": {"size_bytes": len(fq), "loss": fq_loss, "latency": latency["fq"].to_json()},
        "trials": rows,
        "stepwise": step_rows,
        "counts": ours.report["counts"],
        "seconds": {"frontier": ours.report["seconds"], "stepwise": steps.report["seconds"]},
    }
    return {**row, "targets": judged(row)}


def _cleanest(result: Result, limit: float) -> int | None:
    """Return the trial within a byte limit that does the least damage on the evaluation split.

    Counts of changed answers tie where little is lost, and of two trials that tie the smaller is on
    the front; damage says which is the safer one. The report split has no part in it.
    """
    from seqto.records import EVALUATION

    found = [
        (t.measurements[EVALUATION].damage or 0.0, t.number)
        for t in result.trials
        if EVALUATION in t.measurements and t.error is None and t.size_bytes <= limit
    ]
    return min(found)[1] if found else None


def _front_rows(result: Result, referee: Referee, more: set[int | None]) -> list[Json]:
    """Return front, recommended trials and some more, with their loss on the report split."""
    from pathlib import Path

    from seqto.records import REPORT

    wanted = {*result.front, *result.recommended.values(), *more}
    rows = []
    for trial in result.trials:
        usable = trial.error is None and trial.loss is not None and trial.loss.value <= OUTSIDE
        if trial.number not in wanted or not usable:
            continue
        seen = trial.measurements.get(REPORT)
        if seen is None:
            seen = referee.measure(rebuilt(Path(result.folder), trial))
        rows.append(_row(trial, loss_json(seen)))
    return rows


def _row(trial: Trial, loss: Json) -> Json:
    assert trial.loss is not None
    return {
        "number": trial.number,
        "note": trial.note,
        "size_bytes": trial.size_bytes,
        "loss": loss,
        "evaluation_loss": trial.loss.value,
        "run_ratio": trial.latency.ratio if trial.latency else None,
        "latency": None,
        "picks": [],
    }


# -------------------------------------------------------------------------------------- judging


def judged(row: Json) -> Json:
    """Return {name: {pass, trial}} of each target; the best trial where none passes."""
    fq, trials = row["fq"], row["trials"]
    picked = [t for t in trials if t["picks"]]
    fq_loss, fq_bytes = fq["loss"]["value"], fq["size_bytes"]
    limit = min(fq_loss, max(0.025, 0.15 * fq_loss))
    tests = {
        "drop-in": (picked, (limit, fq_bytes, 1.0)),
        "fast": (picked, (0.025, 1.05 * fq_bytes, 0.75)),
        "accurate": (trials, (0.01, 0.33 * row["float_bytes"], math.inf)),
        "small": (trials, (0.05, 0.85 * fq_bytes, math.inf)),
    }
    found = {name: _best(pool, limits) for name, (pool, limits) in tests.items()}
    found["front"] = _front(row)
    return {n: v for n, v in found.items() if row["model"] in (*TARGETS[n][1], zoo.FASHION)}


def _best(trials: Sequence[Json], limits: tuple[float, float, float]) -> Json:
    """Return the trial that stays farthest inside of all limits, or breaks them least."""
    clean = [x if math.isfinite(x) else None for x in limits]
    if not trials:
        return {"pass": False, "trial": None, "limits": clean}
    worst = {t["number"]: max(_strain(t, limits)) for t in trials}
    best = min(trials, key=lambda t: (worst[t["number"]] > 1.0, worst[t["number"]]))
    return {"pass": worst[best["number"]] <= 1.0, "trial": best, "limits": clean}


def _strain(trial: Json, limits: tuple[float, float, float]) -> tuple[float, float, float]:
    """Return loss, bytes and latency as shares of their limits."""
    loss, size, ratio = limits
    latency = trial["latency"]["ratio"] if trial["latency"] else trial["run_ratio"]
    time_share = 0.0 if math.isinf(ratio) else (latency or math.inf) / ratio
    value = trial["loss"]["value"]
    loss_share = value / loss if loss > 0 else (0.0 if value == 0 else math.inf)
    return loss_share, trial["size_bytes"] / size, time_share


def _front(row: Json) -> Json:
    """Return how much of the gap that stepwise leaves `frontier` closes.

    The ideal point is the best loss with the smallest size of the two fronts inside the box, as
    in `balanced`. `closed_to_zero` takes (0, 0 bytes) instead, which no file can reach.
    """
    box = Box.of(row["fq"]["loss"]["value"], row["float_bytes"])
    points = {
        name: [(t["loss"]["value"], float(t["size_bytes"])) for t in row[name]]
        for name in ("trials", "stepwise")
    }
    ours, theirs = box.share(points["trials"]), box.share(points["stepwise"])
    if ours is None or theirs is None:
        return {"pass": None, "why": "FQ loses nothing: the box is empty"}
    both = [p for p in (*points["trials"], *points["stepwise"]) if _inside(p, box)]
    ideal = box.share([(min(p[0] for p in both), min(p[1] for p in both))]) if both else 0.0
    closed = _closed(ours, theirs, ideal or 0.0)
    return {
        "pass": closed >= 0.5 and ours >= theirs,
        "frontier": ours,
        "stepwise": theirs,
        "ideal": ideal,
        "closed": closed,
        "closed_to_zero": _closed(ours, theirs, 1.0),
        "reference": [box.loss, box.size_bytes],
    }


def _inside(point: tuple[float, float], box: Box) -> bool:
    return point[0] < box.loss and point[1] < box.size_bytes


def _closed(ours: float, theirs: float, ideal: float) -> float:
    return (ours - theirs) / (ideal - theirs) if ideal > theirs else 1.0


# --------------------------------------------------------------------------------------- tables


def verdicts(rows: Mapping[str, Json]) -> str:
    """Return one line a model, seed and target."""
    lines = []
    for row in rows.values():
        fq = row["fq"]
        shown = (
            f"{zoo.bounded(fq['loss'])}, {zoo.megabytes(fq['size_bytes'])} MB, "
            f"×{fq['latency']['ratio']:.2f}"
        )
        for name, target in row["targets"].items():
            verdict = {True: "pass", False: "FAIL", None: "–"}[target["pass"]]
            lines.append((row["model"], row["seed"], shown, name, _figures(target, row), verdict))
    head = ("model", "seed", "FQ: loss, size, latency", "target", "best trial", "")
    return zoo.table(head, lines)


def _figures(target: Json, row: Json) -> str:
    if "closed" in target:
        return (
            f"hypervolume {target['frontier']:.3f} against {target['stepwise']:.3f}: "
            f"{target['closed']:.0%} of the gap closed ({target['closed_to_zero']:.0%} of that "
            "to zero bytes)"
        )
    trial = target.get("trial")
    if trial is None:
        return str(target.get("why", "none"))
    latency = trial["latency"]["ratio"] if trial["latency"] else trial["run_ratio"]
    ratio = "–" if latency is None else f"×{latency:.2f}"
    picks = "/".join(trial["picks"]) or "front"
    size = trial["size_bytes"]
    return (
        f"#{trial['number']} ({picks}): {zoo.bounded(trial['loss'])}, {zoo.megabytes(size)} MB "
        f"({size / row['fq']['size_bytes']:.3f} FQ, {size / row['float_bytes']:.3f} float), {ratio}"
    )


def summary(rows: Mapping[str, Json]) -> str:
    """Return targets that enough seeds pass, by model; then every figure."""
    lines = []
    for name, (text, models) in TARGETS.items():
        cells = []
        for model in zoo.MODELS:
            seen = [
                r["targets"][name]["pass"]
                for r in rows.values()
                if r["model"] == model and name in r["targets"]
            ]
            if model not in models or not seen:
                cells.append("–")
                continue
            passed = sum(bool(p) or p is None for p in seen)
            enough = passed >= math.ceil(0.6 * len(seen))
            cells.append(f"{'pass' if enough else '**FAIL**'} {passed}/{len(seen)}")
        lines.append((name, text, *cells))
    total = sum(r["seconds"]["frontier"] or 0 for r in rows.values())
    told = f"frontier took {total / 60 / max(1, len(rows)):.1f} minutes a run on average.\n"
    return "\n".join([zoo.table(("target", "", *zoo.MODELS), lines), told, verdicts(rows)])


if __name__ == "__main__":
    main()

"""How much of a search a warm start saves: `--from RUN` against a cold start.

    benchmarks/warm_start.py --zoo ZOO --runs RUNS --stage STAGE

    first                   the model; a run of it that is there may stand in RUNS/first instead
    cold, warm              the model with perturbed weights, from nothing and from RUNS/first
    other-cold, other-warm  the model on the other kind of CPU, started as
                            FOLDER/run benchmarks/warm_start.py … (scripts/avx2_onnxruntime.py)
    table                   figures of the stages that are there, into results/warm_start.json

Weights are perturbed by normal noise of 1 % of each tensor's spread, as by some epochs of
fine-tuning. Measured is the work until the front has 95 and 99 % of the hypervolume that the cold
start ends with: model runs on samples (trials and probes), which no load can change, and the
workers' seconds. A stage that is ended goes on where it was.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import zoo

SETTINGS = {
    "data.evaluation": 150,
    "data.report": 50,
    "search.jobs": 1,
    "device.latency_s": 0.2,
    "analysis.diagnose": False,
    "analysis.examples": False,
}
NOISE = 0.01  # of each weight tensor's standard deviation
SHARES = (0.95, 0.99)  # of the hypervolume that the cold start ends with
WORK = ("sample_runs", "worker_seconds", "trials", "probes")
WORST = (0.25, 1.0, 1.5)  # loss, share of float's bytes, ratio: the corner of the hypervolume
PAIRS = {"retrained": ("cold", "warm"), "other CPU": ("other-cold", "other-warm")}


def main() -> int:
    options = zoo.parser("warm_start", __doc__, models=("lite0",), seeds=None)
    stages = ("first", *(s for pair in PAIRS.values() for s in pair), "table")
    options.add_argument("--stage", choices=stages, required=True)
    given = options.parse_args()
    if given.stage == "table":
        results = zoo.Results(given.out, name="warm_start", options={"settings": SETTINGS})
        for name, pair in PAIRS.items():
            if (row := compare(given.runs, *pair)) is not None:
                results.put(name, row)
        print(given.out.read_text(encoding="utf-8"))
        return 0
    run(given)
    return 0


def run(given: Any) -> None:
    import seqto

    config = given.zoo / "efficientnet-lite0.toml"
    model = given.zoo / "efficientnet-lite0.onnx"
    settings: dict[str, Any] = dict(SETTINGS)
    if given.stage in ("cold", "warm"):
        model = given.runs / "retrained" / "efficientnet-lite0.onnx"
        if not model.is_file():
            perturb(given.zoo / "efficientnet-lite0.onnx", model)
    if given.stage.endswith("warm"):
        settings["search.warm_start"] = str(given.runs / "first")
    result = seqto.tune(model, out=given.runs / given.stage, config=config, settings=settings)
    print(result.report["counts"], dict(result.recommended))


def perturb(source: Path, target: Path) -> None:
    """Write the model with noise on its weights."""
    import numpy as np
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(source))
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim > 1:
            noise = NOISE * values.std() * rng.standard_normal(values.shape)
            changed = (values + noise).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    target.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, str(target))


def compare(runs: Path, cold: str, warm: str) -> dict[str, Any] | None:
    """Return the work of both until the front is nearly what the cold start ends with.

    Over loss and size, which are exact, and over loss, size and latency, which are as good as the
    clock.
    """
    if not all((runs / stage / "journal.jsonl").is_file() for stage in (cold, warm)):
        return None
    rows = {stage: progress(runs / stage) for stage in (cold, warm)}
    found: dict[str, Any] = {stage: row[-1] for stage, row in rows.items()}
    for name in ("loss_size", "loss_size_latency"):
        for share in SHARES:
            wanted = share * rows[cold][-1][name]
            first, second = (
                next((row for row in rows[stage] if row[name] >= wanted), None)
                for stage in (cold, warm)
            )
            result: dict[str, Any] = {cold: first, warm: second}
            if first and second:
                result["share"] = {k: round(second[k] / first[k], 3) for k in WORK}
            found[f"{name} {share:.0%}"] = result
    return found


def progress(folder: Path) -> list[dict[str, Any]]:
    """Return work and hypervolume after each trial, in the order of the journal.

    Figures are those that the trials have in the end: latencies are timed more than once.
    """
    from seqto.record.events import ProbeFinished, TrialFinished
    from seqto.record.journal import read_events
    from seqto.record.replay import replay

    events = list(read_events(folder / "journal.jsonl"))
    state = replay(events)
    assert state.baseline is not None
    size = state.baseline.size_bytes
    rows, points = [], []
    work = {"sample_runs": 0, "worker_seconds": 0.0, "trials": 0, "probes": 0}
    for event in events:
        if not isinstance(event, TrialFinished | ProbeFinished):
            continue
        work["sample_runs"] += sum(m.loss.samples for m in event.trial.measurements.values())
        work["worker_seconds"] += event.trial.seconds
        work["trials" if isinstance(event, TrialFinished) else "probes"] += 1
        if isinstance(event, TrialFinished):
            points += point(state.trials[event.trial.number], size)
            rounded = {**work, "worker_seconds": round(work["worker_seconds"], 1)}
            volumes = {
                "loss_size": round(volume([p[:2] for p in points]), 5),
                "loss_size_latency": round(volume(points), 5),
            }
            rows.append({**rounded, **volumes})
    return rows


def point(trial: Any, size: int) -> list[tuple[float, ...]]:
    if trial.error is not None or trial.loss is None or trial.latency is None:
        return []
    figures = (trial.loss.value, trial.size_bytes / size, trial.latency.ratio)
    return [tuple(f / worst for f, worst in zip(figures, WORST, strict=True))]


def volume(points: list[tuple[float, ...]]) -> float:
    """Return the front's hypervolume as a share of the box up to WORST."""
    from seqto.selection.pareto import front, hypervolume

    if not points:
        return 0.0
    return hypervolume([points[i] for i in front(points)], reference=[1.0] * len(points[0]))


if __name__ == "__main__":
    sys.exit(main())

"""What the size of an ask changes: the same search with `search.ask` from 1 to 64.

    python benchmarks/ask_size.py
    python benchmarks/ask_size.py --models fashion-mobilenetv3 --asks 8 64

`frontier` hands out its plans some at a time; whoever finishes first on a cluster waits for the
rest of the ask. Each run searches over loss and size (no clock, so that runs can be compared); the
hypervolume is that of the evaluation split in the box of fronts.py, after all trials and after the
first 16 and 32 of them. With --timed the runs search over latency too, and the hypervolume has
float's time as its third side; times come from a table (replayed_times.py), since two runs on a
clock never time a plan alike. Trials that were stopped early count as beaten.
"""

from __future__ import annotations

from typing import Any

import zoo
from measure import Box, float_bytes

Json = dict[str, Any]
ASKS = (1, 4, 8, 16, 32, 64)
CUTS = (16, 32)


def main() -> None:
    parser = zoo.parser("asks", __doc__, models=(zoo.FASHION, "resnet20"))
    parser.add_argument("--asks", nargs="+", type=int, default=list(ASKS), metavar="N")
    parser.add_argument("--timed", action="store_true", help="latency too, replayed from a table")
    options = parser.parse_args()
    kept = {"set": options.set, **({"timed": True} if options.timed else {})}
    results = zoo.Results(options.out, name="asks", options=kept)
    for case in zoo.cases(options):
        for seed in options.seeds:
            if options.timed:
                replay_times(case, options.runs / case.name / f"{seed}-profiles", seed)
            for ask in options.asks:
                key = f"{case.name}/{seed}/{ask}"
                if key not in results.rows:
                    zoo.note(key)
                    out = options.runs / case.name / f"{seed}-{ask}"
                    settings = {"data.seed": seed, "search.ask": ask}
                    row = measured(case, out, settings, timed=options.timed)
                    results.put(key, {"seed": seed, "ask": ask, **row})
    print(
        f"{len(results.rows)} rows in {options.out}; python benchmarks/results_page.py shows them"
    )


def replay_times(case: zoo.Case, out: Any, seed: int) -> None:
    """Measure profiles in a short run; the runs after it take their times from these."""
    from replayed_times import ReplayedTimes
    from seqto.execution.local.executor import LocalExecutor
    from seqto.study import open_executor

    profiles: dict[str, Any] = {}
    module: Any = open_executor
    for record in (True, False):
        module.LocalExecutor = lambda *a, record=record, **k: ReplayedTimes(
            LocalExecutor(*a, **k), profiles, record=record
        )
        if record:
            measured(case, out, {"data.seed": seed, "search.max_trials": 1}, timed=True)


def measured(case: zoo.Case, out: Any, settings: Json, *, timed: bool) -> Json:
    from seqto.api import run_tune
    from seqto.selection.pareto import hypervolume
    from seqto.selection.racing import saw_all_samples

    objectives = ["loss", "size", "latency"] if timed else ["loss", "size"]
    fixed = {"search.objectives": objectives, "analysis.diagnose": False}
    job = case.job(out, {**settings, **fixed})
    result = run_tune(job)
    trials = [t for t in result.trials if t.error is None and t.loss is not None]
    whole = next(t for t in trials if t.number == result.report["fully_quantized"])
    assert whole.loss is not None
    box = Box.of(whole.loss.value, float_bytes(job))
    if timed:
        sides = [
            (t.loss.value / box.loss, t.size_bytes / box.size_bytes, t.latency.ratio)
            if t.loss is not None and t.latency is not None and saw_all_samples(t)
            else (1.0, 1.0, 1.0)
            for t in trials
        ]
        share = lambda points: hypervolume(points, reference=(1.0,) * 3)  # noqa: E731
    else:
        sides = [(t.loss.value, float(t.size_bytes)) for t in trials if t.loss is not None]
        share = box.share
    return {
        "model": case.name,
        "trials": len(trials),
        "stopped_early": sum(not saw_all_samples(t) for t in trials),
        "hypervolume": share(sides),
        "first": {str(cut): share(sides[:cut]) for cut in CUTS},
        "seconds": result.report["seconds"],
    }


if __name__ == "__main__":
    main()

"""What the size of an ask changes: the same search with `search.ask` from 1 to 64.

    python benchmarks/ask_size.py
    python benchmarks/ask_size.py --models fashion-mobilenetv3 --asks 8 64

`frontier` hands out its plans some at a time; whoever finishes first on a cluster waits for the
rest of the ask. Each run searches over
loss and size (no clock, so that runs can be compared); the hypervolume is that of the evaluation
split in the box of fronts.py, after all trials and after the first 16 and 32 of them.
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
    options = parser.parse_args()
    results = zoo.Results(options.out, name="asks", options={"set": options.set})
    for case in zoo.cases(options):
        for seed in options.seeds:
            for ask in options.asks:
                key = f"{case.name}/{seed}/{ask}"
                if key not in results.rows:
                    zoo.note(key)
                    out = options.runs / case.name / f"{seed}-{ask}"
                    settings = {"data.seed": seed, "search.ask": ask}
                    results.put(key, {"seed": seed, "ask": ask, **measured(case, out, settings)})
    print(
        f"{len(results.rows)} rows in {options.out}; python benchmarks/results_page.py shows them"
    )


def measured(case: zoo.Case, out: Any, settings: Json) -> Json:
    from seqto.api import run_tune

    fixed = {"search.objectives": ["loss", "size"], "analysis.diagnose": False}
    job = case.job(out, {**settings, **fixed})
    result = run_tune(job)
    trials = [t for t in result.trials if t.error is None and t.loss is not None]
    points = [(t.loss.value, float(t.size_bytes)) for t in trials if t.loss is not None]
    whole = next(t for t in trials if t.number == result.report["fully_quantized"])
    assert whole.loss is not None
    box = Box.of(whole.loss.value, float_bytes(job))
    return {
        "model": case.name,
        "trials": len(trials),
        "hypervolume": box.share(points),
        "first": {str(cut): box.share(points[:cut]) for cut in CUTS},
        "seconds": result.report["seconds"],
    }


if __name__ == "__main__":
    main()

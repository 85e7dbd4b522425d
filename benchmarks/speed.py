"""Tuning at the speed of inference: the published procedure and ours, side by side.

    python benchmarks/speed.py

published   the papers' loop on the stock API, candidate by candidate (contenders.py says what
            is done again for each)
ours        the same candidates, all pictures for all of them
racing      the same candidates, those that are clearly dominated stop early
frontier    our search over (loss, size) to its final front

Each runs in its own process; the order turns round with every repeat, ratios are taken within a
repeat. Also: memory of a worker, time of `import seqto` and `seqto --help`. Writes a plot of
hypervolume against time beside the JSON file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import PREPARED, run_metered
from speed_figures import KINDS, plot, tables
from speed_worker import start_times, worker_memory

if TYPE_CHECKING:
    import argparse

Json = dict[str, Any]
PARTS = ("sweep", "memory", "start")
SETTINGS: Json = {
    "search.strategy": "stepwise",
    "search.objectives": ["loss", "size"],
    "analysis.diagnose": False,
    "device.latency_s": 0.02,  # not looked at here
}
BY_KIND: Mapping[str, Json] = {
    "ours": {**SETTINGS, "search.racing": False},
    "racing": {**SETTINGS, "search.racing": True},
    "frontier": {**SETTINGS, "search.strategy": "frontier"},
}


def main() -> None:
    parser = zoo.parser("speed", __doc__, models=zoo.MODELS[:2])
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--every", type=int, default=1, help="every N-th candidate of the list")
    options = parser.parse_args()
    chosen = zoo.cases(options)
    kept = {"set": options.set, "every": options.every}
    results = zoo.Results(options.out, name="speed", options=kept)
    if "start" in options.parts and "start" not in results.rows:
        results.put("start", start_times())
    for case in chosen:
        for seed in options.seeds:
            if "memory" in options.parts and f"memory/{case.name}/{seed}" not in results.rows:
                zoo.note(f"memory of a worker, {case.name}")
                listing = candidates(case, seed, options)
                results.put(
                    f"memory/{case.name}/{seed}",
                    worker_memory(case, seed, options, listing=listing),
                )
            if "sweep" in options.parts:
                sweep(case, seed, options, results)
    print(tables(results.rows))
    plot(results.rows, options.out.with_suffix(".png"))


# ---------------------------------------------------------------------------------- the sweeps


def sweep(case: zoo.Case, seed: int, options: argparse.Namespace, results: zoo.Results) -> None:
    """All contenders, repeat by repeat, each result kept at once."""
    wanted = [
        (repeat, kind)
        for repeat in range(options.repeats)
        for kind in (KINDS if repeat % 2 == 0 else KINDS[::-1])
    ]
    todo = [w for w in wanted if f"sweep/{case.name}/{seed}/{w[0]}/{w[1]}" not in results.rows]
    if not todo:
        return
    listing = candidates(case, seed, options)
    for repeat, kind in todo:
        zoo.note(f"{kind}, {case.name}, repeat {repeat + 1}: {len(listing)} candidates")
        row = contend(case, seed, options, kind=kind, listing=listing)
        if row["metered"]["returncode"] != 0:
            sys.exit(f"{kind} on {case.name} ended with code {row['metered']['returncode']}")
        head = {"model": case.name, "seed": seed, "repeat": repeat, "kind": kind}
        results.put(f"sweep/{case.name}/{seed}/{repeat}/{kind}", {**head, **row})


def _prepared(case: zoo.Case, seed: int, options: argparse.Namespace) -> Path:
    runs: Path = options.runs
    return runs / case.name / f"list-{seed}" / PREPARED


def candidates(case: zoo.Case, seed: int, options: argparse.Namespace) -> list[Json]:
    """Return stepwise's candidates in the papers' setting, made once and kept."""
    folder = options.runs / case.name / f"list-{seed}"
    kept = folder / f"list-{options.every}.json"
    if kept.is_file():
        found: list[Json] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    zoo.note(f"list of candidates, {case.name}")
    spec = {"kind": "list", "every": options.every, "settings": {**SETTINGS, "data.seed": seed}}
    answer, _ = started(case, folder, spec)
    kept.write_text(json.dumps(answer["candidates"]), encoding="utf-8")
    return list(answer["candidates"])


def contend(
    case: zoo.Case,
    seed: int,
    options: argparse.Namespace,
    *,
    kind: str,
    listing: Sequence[Json],
) -> Json:
    """Run one contender from the start of its process to the end of its list."""
    settings = {**BY_KIND.get(kind, SETTINGS), "data.seed": seed}
    with tempfile.TemporaryDirectory(prefix=f"{kind}-", dir=options.runs) as folder:
        spec = {
            "kind": kind,
            "settings": settings,
            "candidates": list(listing),
            "prepared": str(_prepared(case, seed, options)),
        }
        answer, metered = started(case, Path(folder) / "run", spec)
    size = Path(case.tables["model"]["path"]).stat().st_size
    return {**answer, "metered": metered, "candidates": len(listing), "float_bytes": size}


def started(case: zoo.Case, run: Path, spec: Json) -> tuple[Json, Json]:
    """Start contenders.py with a spec; its answer and what it used."""
    run.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spec-") as folder:
        path, answer = Path(folder) / "spec.json", Path(folder) / "answer.json"
        spec = {
            **spec,
            "name": case.name,
            "tables": dict(case.tables),
            "run": str(run),
            "answer": str(answer),
            "started": time.time(),
        }
        path.write_text(json.dumps(spec), encoding="utf-8")
        script = str(zoo.HERE / "contenders.py")
        metered = run_metered([sys.executable, script, str(path)])
        found = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else {}
    return found, metered


if __name__ == "__main__":
    main()

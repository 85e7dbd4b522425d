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

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import PREPARED, Box, private_bytes, run_metered, samples_of

if TYPE_CHECKING:
    import argparse

Json = dict[str, Any]
KINDS = ("published", "ours", "racing", "frontier")
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
STARTS = 7


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
                results.put(f"memory/{case.name}/{seed}", worker_memory(case, seed, options))
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
    """Stepwise's candidates in the papers' setting, made once and kept."""
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
    """One contender from the start of its process to the end of its list."""
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


# ------------------------------------------------------------------------------ memory and start


def worker_memory(case: zoo.Case, seed: int, options: argparse.Namespace) -> Json:
    """Private bytes of one worker: idle, with the float model, and with candidates."""
    from seqto.assembly.plan import Plan
    from seqto.execution.files import LocalFiles
    from seqto.execution.jobs import TryPlan, WorkerSetup
    from seqto.execution.local.executor import LocalExecutor
    from seqto.model import outputs
    from seqto.model.prepare import open_prepared

    listing = candidates(case, seed, options)
    job = case.job(options.runs / case.name / f"list-{seed}", {"data.seed": seed})
    original = Path(job.fetched.path).resolve()
    prepared = open_prepared(job.out / "variants" / "base" / "model.onnx")
    judged = outputs.choose(prepared.proto, prepared.layers)
    with samples_of(job) as store:
        places = {f"original/{original.name}": original, "samples": store.folder.resolve()}
        files = LocalFiles(job.out.resolve(), places)
        setup = WorkerSetup(
            files.put(original),
            (),
            "samples",
            store.identity,
            job.device_json,
            judged,
            (judged.position,),
        )
        rows = store.rows("evaluation")
        found = {}
        plans = [Plan.from_json(c["plan"]) for c in listing[:: max(1, len(listing) // 4)]]
        lists: dict[str, Sequence[Plan | None]] = {"float": [None], "candidates": plans}
        for name, asked in lists.items():
            with contextlib.closing(LocalExecutor(setup, files)) as executor:
                executor.submit(TryPlan(Plan.of({"nowhere": "fp16"}), 1))
                executor.wait()  # it fails, but the worker is up and idle then
                idle = private_bytes(executor._pool._workers[0].pid)
                found[name] = _peak(executor, asked, min(rows, 64)) - idle
            found.setdefault("idle", idle)
    libraries = {
        "float": _import_bytes("onnxruntime"),
        "candidates": _import_bytes("onnx, onnxruntime"),
    }
    net = {k: found[k] - libraries[k] for k in libraries}
    return {
        "model": case.name,
        **{f"{k}_bytes": v for k, v in found.items()},
        "libraries_bytes": libraries,
        "ratio": found["candidates"] / found["float"],
        "ratio_without_libraries": net["candidates"] / net["float"] if net["float"] > 0 else None,
    }


def _peak(executor: Any, plans: Sequence[Any], rows: int) -> int:
    """Largest private memory while a worker evaluates plans, looked at again and again."""
    from seqto.execution.jobs import Evaluate, MakeReference
    from seqto.records import Failure

    peak = 0
    for plan in plans:
        job: Any = MakeReference(None, "evaluation", 0, rows, 4, 4)
        if plan is not None:
            job = Evaluate(plan, "evaluation", rows, 4, 4, None)
        executor.submit(job)
        ended: list[Any] = []
        while not ended:
            ended = executor.wait(0.01)
            workers = executor._pool._workers
            peak = max([peak, *(private_bytes(w.pid) for w in workers)])
        if isinstance(ended[0].outcome, Failure):
            sys.exit(f"a worker failed: {ended[0].outcome.message}")
        executor.files.discard(ended[0].outcome.file)
    return peak


def _import_bytes(modules: str) -> int:
    """What importing libraries costs a process that has numpy: a constant, whatever the model."""
    code = (
        "import numpy, psutil; p = psutil.Process(); a = p.memory_full_info().uss\n"
        f"import {modules}; print(p.memory_full_info().uss - a)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def start_times() -> Json:
    """Seconds of `import seqto` (beyond an empty Python) and of `seqto --help`, best of a few."""
    import os

    path = os.pathsep.join(p for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": path}
    commands = {
        "empty": [sys.executable, "-c", "pass"],
        "import": [sys.executable, "-c", "import seqto"],
        "help": [sys.executable, "-m", "seqto", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(STARTS):
        for name, words in commands.items():
            began = time.perf_counter()
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment)
            times[name].append(time.perf_counter() - began)
    return {
        "import_s": max(0.0, min(times["import"]) - min(times["empty"])),
        "help_s": min(times["help"]),
        "empty_s": min(times["empty"]),
        "all": times,
    }


# --------------------------------------------------------------------------------------- figures


def curve(row: Json, box: Box) -> list[tuple[float, float]]:
    """(seconds, hypervolume) after every candidate that saw all pictures."""
    points: list[tuple[float, float]] = []
    found = []
    for event in sorted(row["events"], key=lambda e: e["at_s"]):
        if event["stopped_early"]:
            continue
        points.append((event["loss"], float(event["size_bytes"])))
        found.append((event["at_s"], box.share(points) or 0.0))
    return found


def figures(row: Json) -> Json:
    """The columns of one contender."""
    loop = row["loop"]
    wall = loop["end_s"] - loop["begin_s"]
    run_s = sum(s["run"] for s in row["seconds"])
    made_s = sum(s["assemble"] + s["load"] for s in row["seconds"])
    workers = 1 if row["kind"] == "published" else _workers()
    return {
        "total_s": loop["end_s"],
        "loop_s": wall,
        "cpu_s": loop["end_cpu_s"],
        "peak_rss_bytes": row["metered"]["peak_rss_bytes"],
        "per_minute": 60 * len(row["events"]) / wall,
        "inference": run_s / (wall * workers),
        "making": made_s / max(1e-9, sum(s["total"] for s in row["seconds"])),
    }


def _workers() -> int:
    import os

    return os.cpu_count() or 1


def by_repeat(rows: Mapping[str, Json]) -> dict[tuple[str, int], dict[int, dict[str, Json]]]:
    found: dict[tuple[str, int], dict[int, dict[str, Json]]] = {}
    for key, row in rows.items():
        if key.startswith("sweep/"):
            place = found.setdefault((row["model"], row["seed"]), {})
            place.setdefault(row["repeat"], {})[row["kind"]] = row
    return found


def tables(rows: Mapping[str, Json]) -> str:
    parts = []
    for (model, seed), repeats in by_repeat(rows).items():
        head = ("", "candidates", "wall s", "loop s", "CPU s", "peak MB", "candidates/min")
        lines = [
            _contender_line(kind, [r[kind] for r in repeats.values() if kind in r])
            for kind in KINDS
            if any(kind in r for r in repeats.values())
        ]
        more = ("pure inference", "assemble + load")
        parts.append(f"### {model}, seed {seed}, medians of {len(repeats)} repeats\n")
        parts.append(zoo.table((*head, *more), lines))
        whole = [r for r in repeats.values() if len(r) == len(KINDS)]
        if whole:
            parts.append(_targets(whole))
    memory = [r for k, r in rows.items() if k.startswith("memory/")]
    if memory:
        parts.append("### Memory of a worker above an idle one\n")
        names = ("float_bytes", "candidates_bytes")
        shown = [
            (
                r["model"],
                *(f"{r[n] / 1e6:.0f}" for n in names),
                f"{r['ratio']:.2f}",
                _or_dash(r["ratio_without_libraries"]),
            )
            for r in memory
        ]
        columns = ("model", "float session MB", "candidates MB")
        more = ("ratio (≤ 1.5)", "ratio without what imports take")
        parts.append(zoo.table((*columns, *more), shown))
    if "start" in rows:
        s = rows["start"]
        parts.append(
            f"`import seqto` {s['import_s']:.3f} s (≤ 0.15), `seqto --help` {s['help_s']:.3f} s "
            f"(≤ 0.3); an empty Python takes {s['empty_s']:.3f} s.\n"
        )
    return "\n".join(parts)


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _contender_line(kind: str, found: Sequence[Json]) -> tuple[str, ...]:
    middle = {k: statistics.median(figures(r)[k] for r in found) for k in figures(found[0])}
    return (
        kind,
        str(len(found[0]["events"])),
        f"{middle['total_s']:.1f}",
        f"{middle['loop_s']:.1f}",
        f"{middle['cpu_s']:.1f}",
        f"{middle['peak_rss_bytes'] / 1e6:.0f}",
        f"{middle['per_minute']:.1f}",
        f"{middle['inference']:.0%}",
        f"{middle['making']:.1%}",
    )


def _targets(repeats: Sequence[Mapping[str, Json]]) -> str:
    """Ratios within each repeat, and their median."""
    tests: dict[str, list[float]] = {}
    fronts_equal = []
    for found in repeats:
        box = box_of(found)
        seconds = {kind: figures(row)["total_s"] for kind, row in found.items()}
        loops = {kind: figures(row)["loop_s"] for kind, row in found.items()}
        curves = {kind: curve(row, box) for kind, row in found.items()}
        last = {kind: c[-1][1] if c else 0.0 for kind, c in curves.items()}
        ours = curves["frontier"]
        beaten = next((at for at, v in ours if v > last["published"]), float("inf"))
        nearly = next((at for at, v in ours if v >= 0.99 * last["frontier"]), float("inf"))
        values = {
            "all pictures: times faster (≥ 2.5)": seconds["published"] / seconds["ours"],
            "… the loop alone": loops["published"] / loops["ours"],
            "racing: times faster (≥ 5)": seconds["published"] / seconds["racing"],
            "… the loop alone ": loops["published"] / loops["racing"],
            "pure inference, all pictures (≥ 0.85)": figures(found["ours"])["inference"],
            "assemble + load (≤ 0.10)": figures(found["ours"])["making"],
            "frontier beats published's final hypervolume after (≤ 0.1 of its time)": beaten
            / seconds["published"],
            "frontier has 99 % of its own after (≤ 0.1)": nearly / seconds["published"],
            "hypervolume: published": last["published"],
            "hypervolume: ours, same list": last["ours"],
            "hypervolume: frontier": last["frontier"],
        }
        for name, value in values.items():
            tests.setdefault(name, []).append(value)
        fronts_equal.append(front_of(found["ours"]) == front_of(found["racing"]))
    lines = [
        (name.strip(), f"{statistics.median(v):.3f}", " / ".join(f"{x:.3f}" for x in v))
        for name, v in tests.items()
    ]
    same = f"{sum(fronts_equal)} of {len(fronts_equal)}"
    lines.append(("racing gives the same front", same, ""))
    return zoo.table(("ratio", "median", "each repeat"), lines)


def box_of(found: Mapping[str, Json]) -> Box:
    """The reference: the published procedure's first candidate is the fully quantized model."""
    return Box.of(found["published"]["events"][0]["loss"], found["published"]["float_bytes"])


def front_of(row: Json) -> list[tuple[int, float]]:
    from seqto.selection.pareto import front

    whole = [e for e in row["events"] if not e["stopped_early"]]
    points = [(e["loss"], float(e["size_bytes"])) for e in whole]
    return sorted((int(points[i][1]), points[i][0]) for i in front(points))


def plot(rows: Mapping[str, Json], path: Path) -> None:
    """Hypervolume against time, one panel a model; every repeat is a line."""
    found = {k: [r for r in v.values() if len(r) == len(KINDS)] for k, v in by_repeat(rows).items()}
    found = {k: v for k, v in found.items() if v}
    if not found:
        return
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(6 * len(found), 4), squeeze=False)
    for axis, ((model, _seed), repeats) in zip(axes[0], found.items(), strict=True):
        for number, kinds in enumerate(repeats):
            box = box_of(kinds)
            for i, kind in enumerate(KINDS):
                points = curve(kinds[kind], box)
                x, y = [p[0] for p in points], [p[1] for p in points]
                label = kind if number == 0 else None
                axis.step(x, y, where="post", color=f"C{i}", label=label, alpha=0.8)
        axis.set(title=model, xlabel="seconds since the process began", xscale="log")
        axis.set_ylabel("hypervolume (loss, size)")
        axis.grid(alpha=0.3)
        axis.legend()
    zoo.save(figure, path)


if __name__ == "__main__":
    main()

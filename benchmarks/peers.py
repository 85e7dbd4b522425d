"""Other tools on the same models, pictures and machine, beside one run of ours.

    python benchmarks/peers.py                                  # all of it
    python benchmarks/peers.py --models resnet20 --parts peers --tools nncf aimet
    python benchmarks/peers.py --parts judge                    # loss and bytes of what is there
    python benchmarks/peers.py --parts time                     # all files in turn with float

Each tool has an environment of its own (benchmarks/peer_tools.py names its packages). All get the
original float model, the same calibration and evaluation pictures, prepared alike, and may lose
2 % against the float model's own answers. The files run as ONNX on ONNX Runtime: loss on the
report split, bytes after the same clean-up, latency in turn with float. What cannot be installed
or does not end is said in the table, with the reason. Our run is one of `fronts.py` where it is
there (--ours FOLDER), and made otherwise.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import float_bytes, interleaved, rebuilt, samples_of
from peer_tools import TOOLS, run_tool

if TYPE_CHECKING:
    import argparse

    from seqto.data.store import SampleStore
    from seqto.study.setup import RunSetup

Json = dict[str, Any]
MODELS = (*zoo.MODELS[:3], "resnet20-cifar10", "fastestdet")
PARTS = ("ours", "peers", "judge", "time")
MAX_DROP = 0.02
OURS = "seqto"
SEED = 0


def main() -> None:
    parser = zoo.parser("peers", __doc__, models=MODELS, seeds=None)
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), metavar="TOOL")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--limit-minutes", type=float, default=30.0, help="for one tool and model")
    parser.add_argument("--ours", type=Path, default=zoo.HERE / "runs" / "fronts")
    parser.add_argument("--environments", type=Path, default=zoo.HERE / ".envs")
    options = parser.parse_args()
    results = zoo.Results(options.out, name="peers", options={"set": options.set})
    for case in zoo.cases(options):
        compare(case, options, results)
    print(
        f"{len(results.rows)} rows in {options.out}; python benchmarks/results_page.py shows them"
    )


def compare(case: zoo.Case, options: argparse.Namespace, results: zoo.Results) -> None:
    from seqto.api import run_tune
    from seqto.study.workspace import prepare_model

    folder: Path = options.runs / case.name
    folder.mkdir(parents=True, exist_ok=True)
    kept = options.ours / case.name / f"frontier-{SEED}"
    job = case.job(kept if kept.is_dir() else folder / "ours", {"data.seed": SEED})
    head = {"model": case.name, "seed": SEED, "float_bytes": float_bytes(job)}
    if "ours" in options.parts and not (job.out / "report.json").is_file():
        zoo.note(f"ours, {case.name}")
        run_tune(job)
    sampled = case.job(folder / "samples", {"data.seed": SEED})
    prepare_model(sampled, sampled.out)
    with samples_of(sampled) as store:
        if "peers" in options.parts:
            run_all(case, store, folder, options, results=results, head=head)
        files = {name: folder / f"{_plain(name)}.onnx" for name in TOOLS}
        made = {n: zoo.cleaned(p.read_bytes()) for n, p in files.items() if p.is_file()}
        if "judge" in options.parts:
            judge(job, sampled, store, made, results=results, head=head)
        if "time" in options.parts:
            time_all(job, store, made, results=results, model=case.name)


def run_all(
    case: zoo.Case,
    store: SampleStore,
    folder: Path,
    options: argparse.Namespace,
    *,
    results: zoo.Results,
    head: Json,
) -> None:
    """Every tool that has no row yet."""
    with tempfile.TemporaryDirectory(prefix="pictures-", dir=folder) as place:
        pictures = write_samples(store, Path(place))
        for name in options.tools:
            key = f"{case.name}/{name}"
            fits = case.name in zoo.MODELS or not TOOLS[name].needs_classes
            if key in results.rows or not fits:
                continue
            zoo.note(f"{name}, {case.name}")
            model = case.tables["model"]["path"]
            spec = {
                "model": model,
                "input": _input_name(model),
                "mode": TOOLS[name].mode,
                "max_drop": MAX_DROP,
                "samples": str(pictures),
                "result": str(folder / f"{_plain(name)}.onnx"),
                "answer": str(folder / f"{_plain(name)}.json"),
            }
            limit_s = 60 * options.limit_minutes
            told = run_tool(name, spec, environments=options.environments, limit_s=limit_s)
            results.put(key, {**head, "tool": name, **told})


def judge(
    job: RunSetup,
    sampled: RunSetup,
    store: SampleStore,
    made: Mapping[str, bytes],
    *,
    results: zoo.Results,
    head: Json,
) -> None:
    """Loss on the report split and bytes of every file."""
    from pictures import Judge, told_of_model
    from seqto.records import REPORT

    model = head["model"]
    wanted = {n: f for n, f in made.items() if "loss" not in results.rows.get(f"{model}/{n}", {})}
    wanted = {n: f for n, f in wanted.items() if f"{model}/{n}" in results.rows}
    run_is_there = (job.out / "report.json").is_file()
    ours_missing = run_is_there and f"{model}/{OURS}" not in results.rows
    if not wanted and not ours_missing:
        return
    referee = Judge(sampled, store, REPORT, told_of_model(sampled, sampled.out))
    for name, file in wanted.items():
        zoo.note(f"judging {name}, {model}")
        row = results.rows[f"{model}/{name}"]
        try:
            found = _loss(referee.measure(file))
        except Exception as error:  # a file that onnxruntime does not load is a result, too
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            results.put(f"{model}/{name}", {**row, "error": f"does not run: {first[:160]}"})
            continue
        results.put(f"{model}/{name}", {**row, "size_bytes": len(file), "loss": found})
    if ours_missing:
        trials = our_trials(job, referee)
        row = {**head, "tool": OURS, "seconds": _seconds(job), "trials": trials}
        results.put(f"{model}/{OURS}", row)


def our_trials(job: RunSetup, referee: Any) -> list[Json]:
    """The recommended trials and the front, with their loss on the report split."""
    from seqto.api import read_report

    report = read_report(job.out)
    picks: dict[int, list[str]] = {}
    for pick, number in report["recommended"].items():
        picks.setdefault(number, []).append(pick)
    wanted = {*picks, *report["front"]}
    rows = []
    for trial in report["trials"]:
        number = trial["number"]
        if number not in wanted or trial["error"] or trial["loss"]["value"] > 0.3:
            continue
        seen = trial["report_split"]
        loss = seen["loss"] if seen else _loss(referee.measure(_model(job, number)))
        rows.append(
            {
                "number": number,
                "picks": picks.get(number, []),
                "size_bytes": trial["size_bytes"],
                "loss": {k: loss[k] for k in ("value", "low", "high", "samples")},
            }
        )
    return rows


def time_all(
    job: RunSetup,
    store: SampleStore,
    made: Mapping[str, bytes],
    *,
    results: zoo.Results,
    model: str,
) -> None:
    """All files of a model in one go, in turn with float; files that do not run are left out."""
    ours = results.rows.get(f"{model}/{OURS}")
    files = {n: f for n, f in made.items() if "loss" in results.rows.get(f"{model}/{n}", {})}
    trials = [] if ours is None else [t for t in ours["trials"] if t["picks"]]
    models = {**files, **{str(t["number"]): _model(job, t["number"]) for t in trials}}
    zoo.note(f"timing {len(models)} files of {model}")
    latency = interleaved(job, store, models, seconds=1.0)
    load = Path("/proc/loadavg").read_text(encoding="utf-8").split()[0]
    for name in files:
        row = results.rows[f"{model}/{name}"]
        told = {"latency": latency[name].to_json(), "load": float(load)}
        results.put(f"{model}/{name}", {**row, **told})
    if ours is not None:
        for trial in trials:
            trial["latency"] = latency[str(trial["number"])].to_json()
        results.put(f"{model}/{OURS}", {**ours, "load": float(load)})


def _model(job: RunSetup, number: int) -> bytes:
    from seqto.record.replay import read_state
    from seqto.study.run import JOURNAL

    state = read_state(job.out / JOURNAL)
    return rebuilt(job.out, next(t for t in state.trials if t.number == number))


def _seconds(job: RunSetup) -> float:
    from pictures import minutes_of

    return 60 * minutes_of(job.out)


def _loss(found: Any) -> Json:
    return {k: getattr(found.loss, k) for k in ("value", "low", "high", "samples")}


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def write_samples(store: SampleStore, folder: Path) -> Path:
    """Prepared pictures of the two splits that a search may see, as plain arrays."""
    import numpy as np

    from seqto.records import CALIBRATION, EVALUATION

    name = store.inputs[0].name
    arrays = {}
    for split in (CALIBRATION, EVALUATION):
        rows = [store.batch(split, i, i + 1)[name] for i in range(store.rows(split))]
        arrays[split] = np.concatenate(rows)
    path = folder / "samples.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def _input_name(model: str) -> str:
    from seqto.model.files import load
    from seqto.model.prepare import input_specs

    specs = input_specs(load(model))
    if len(specs) != 1:
        sys.exit(f"{model} has {len(specs)} inputs; the peers are given one")
    return specs[0].name


if __name__ == "__main__":
    main()

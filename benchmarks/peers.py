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
there (--ours FOLDER/MODEL/frontier-0, or FOLDER/MODEL), and made otherwise. CPU seconds are kept
beside wall seconds: they can be compared where the machine was shared with other work.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import cpu_kept, float_bytes, interleaved, samples_of
from peer_ours import loss_of, model_of, our_trials, run_of
from peer_tools import TOOLS, run_tool

if TYPE_CHECKING:
    import argparse

    from seqto.data.store import SampleStore
    from seqto.study.setup import RunSetup

Json = dict[str, Any]
MODELS = (*zoo.MODELS[:3], "resnet20-cifar10", "fastestdet")
PARTS = ("ours", "history", "peers", "judge", "time")
MAX_DROP = 0.02
OURS, OURS_RUN = "seqto", "seqto run"  # its files; its seconds and what it knew when
SEED = 0


def main() -> None:
    parser = zoo.parser("peers", __doc__, models=MODELS, seeds=None)
    parser.add_argument("--tools", nargs="+", default=list(TOOLS), metavar="TOOL")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--limit-minutes", type=float, default=30.0, help="for one tool and model")
    parser.add_argument("--limit-cpu-minutes", type=float, help="the same, of CPU time")
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
    kept = [options.ours / case.name / f"frontier-{SEED}", options.ours / case.name]
    out = next((x for x in kept if (x / "report.json").is_file()), folder / "ours")
    job = case.job(out, {"data.seed": SEED})
    head = {"model": case.name, "seed": SEED, "float_bytes": float_bytes(job)}
    if "ours" in options.parts and not (job.out / "report.json").is_file():
        zoo.note(f"ours, {case.name}")
        with cpu_kept(out.with_name(f"{out.name}.cpu.json")):
            run_tune(job)
    if "history" in options.parts and (job.out / "report.json").is_file():
        results.put(f"{case.name}/{OURS_RUN}", {**head, "tool": OURS_RUN, **run_of(job)})
    if not {"peers", "judge", "time"} & set(options.parts):
        return
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
            limits = {"limit_s": 60 * options.limit_minutes}
            if options.limit_cpu_minutes:
                limits["limit_cpu_s"] = 60 * options.limit_cpu_minutes
            before = os.getloadavg()[0]
            told = run_tool(name, spec, environments=options.environments, **limits)
            load = [round(before, 1), round(os.getloadavg()[0], 1)]
            results.put(key, {**head, "tool": name, **told, "run_load": load})


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
    from seqto.records import EVALUATION, REPORT

    model = head["model"]
    wanted = {n: f for n, f in made.items() if "loss" not in results.rows.get(f"{model}/{n}", {})}
    wanted = {n: f for n, f in wanted.items() if f"{model}/{n}" in results.rows}
    run_is_there = (job.out / "report.json").is_file()
    ours_missing = run_is_there and f"{model}/{OURS}" not in results.rows
    if not wanted and not ours_missing:
        return
    task = told_of_model(sampled, sampled.out)
    referee = Judge(sampled, store, REPORT, task)
    on_evaluation = None
    for name, file in wanted.items():
        zoo.note(f"judging {name}, {model}")
        row = results.rows[f"{model}/{name}"]
        try:
            found = loss_of(referee.measure(file))
        except Exception as error:  # a file that onnxruntime does not load is a result, too
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            results.put(f"{model}/{name}", {**row, "error": f"does not run: {first[:160]}"})
            continue
        row = {**row, "size_bytes": len(file), "loss": found}
        if TOOLS[name].needs_classes:  # it has searched on these pictures, as ours has
            on_evaluation = on_evaluation or Judge(sampled, store, EVALUATION, task)
            row["evaluation_loss"] = on_evaluation.measure(file).loss.value
        results.put(f"{model}/{name}", row)
    if ours_missing:
        results.put(
            f"{model}/{OURS}",
            {
                **head,
                "tool": OURS,
                "seconds": run_of(job)["seconds"],
                "trials": our_trials(job, referee),
            },
        )


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
    models = {**files, **{str(t["number"]): model_of(job, t["number"]) for t in trials}}
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


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)


def write_samples(store: SampleStore, folder: Path) -> Path:
    """Return prepared pictures of the two splits that a search may see, as plain arrays."""
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
    from seqto.model.inputs import input_specs

    specs = input_specs(load(model))
    if len(specs) != 1:
        sys.exit(f"{model} has {len(specs)} inputs; the peers are given one")
    return specs[0].name


if __name__ == "__main__":
    main()

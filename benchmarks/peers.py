"""NNCF's accuracy control and AIMET's mixed precision against ours: same model, pictures, machine.

    python benchmarks/peers.py
    python benchmarks/peers.py --models resnet20 --peers nncf --limit-minutes 10

Each peer has an environment of its own under benchmarks/.envs, made on the first call. All get the
original float model, the same calibration and evaluation pictures, prepared alike, and may lose
2 % against the float model's own answers. The results run as ONNX on ONNX Runtime: loss on the
report split, bytes after the same clean-up, latency in turn with float. What cannot be installed
or does not end is said in the table, with the reason.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import (
    Referee,
    float_bytes,
    interleaved,
    loss_json,
    rebuilt,
    run_metered,
    samples_of,
)

if TYPE_CHECKING:
    import argparse

    from seqto.data.store import SampleStore

Json = dict[str, Any]
ENVIRONMENTS: Mapping[str, Sequence[str]] = {
    "nncf": ("nncf==3.4.*", "openvino", "onnx", "onnxruntime"),
    # plain torch would bring gigabytes of CUDA along
    "aimet": ("aimet-onnx==2.42.0", "torch==2.13.0"),
}
MODULES = {"nncf": "nncf, onnxruntime", "aimet": "aimet_onnx, torch"}
MAX_DROP = 0.02
OURS = "seqto"


def main() -> None:
    parser = zoo.parser("peers", __doc__, models=zoo.MODELS[:2])
    parser.add_argument("--peers", nargs="+", default=list(ENVIRONMENTS), choices=ENVIRONMENTS)
    parser.add_argument("--limit-minutes", type=float, default=30.0, help="for one peer and model")
    parser.add_argument("--ours-minutes", type=float, default=None, help="budget for our search")
    options = parser.parse_args()
    chosen = zoo.cases(options)
    kept = {"set": options.set, "ours_minutes": options.ours_minutes}
    results = zoo.Results(options.out, name="peers", options=kept)
    for case in chosen:
        for seed in options.seeds:
            todo = [
                p for p in (OURS, *options.peers) if f"{case.name}/{seed}/{p}" not in results.rows
            ]
            if todo:
                compare(case, seed, options, todo=todo, results=results)
    print(tables(results.rows))


def compare(
    case: zoo.Case,
    seed: int,
    options: argparse.Namespace,
    *,
    todo: Sequence[str],
    results: zoo.Results,
) -> None:
    """Run what is to do, then measure it all in one go with what was kept of earlier calls."""
    from seqto.records import EVALUATION, REPORT

    folder = options.runs / case.name / f"seed-{seed}"
    out = folder / "ours"
    settings: Json = {"data.seed": seed}
    if options.ours_minutes is not None:
        settings["search.max_minutes"] = options.ours_minutes
    job = case.job(out, settings)
    zoo.note(f"ours, {case.name}")
    ours = our_run(job, folder)
    with samples_of(job) as store:
        referee = Referee(job, store, REPORT)
        searched = Referee(job, store, EVALUATION)
        with tempfile.TemporaryDirectory(prefix="pictures-", dir=folder) as place:
            pictures = write_samples(store, Path(place))
            told = {
                peer: run_peer(peer, case, pictures, folder, options)
                for peer in todo
                if peer != OURS
            }
        models = {p: (folder / f"{p}.onnx").read_bytes() for p in told if "error" not in told[p]}
        models = {p: zoo.cleaned(m) for p, m in models.items()}
        trials = {str(t["number"]): t["model"] for t in ours["trials"]}
        latency = interleaved(job, store, {**models, **trials})
        head = {"model": case.name, "seed": seed, "float_bytes": float_bytes(job)}
        for peer, answer in told.items():
            row: Json = {**head, "tool": peer, **answer}
            if peer in models:
                row["size_bytes"] = len(models[peer])
                row["loss"] = loss_json(referee.measure(models[peer]))
                row["evaluation_loss"] = loss_json(searched.measure(models[peer]))
                row["latency"] = latency[peer].to_json()
            results.put(f"{case.name}/{seed}/{peer}", row)
        if OURS in todo or told:
            rows = []
            for trial in ours["trials"]:
                found = {k: v for k, v in trial.items() if k != "model"}
                found["loss"] = loss_json(referee.measure(trial["model"]))
                found["evaluation_loss"] = loss_json(searched.measure(trial["model"]))
                found["latency"] = latency[str(trial["number"])].to_json()
                rows.append(found)
            row = {**head, "tool": OURS, "seconds": ours["seconds"], "trials": rows}
            results.put(f"{case.name}/{seed}/{OURS}", row)


# ------------------------------------------------------------------------------------------ ours


def our_run(job: Any, folder: Path) -> Json:
    """The recommended trials, and when each of them was known; kept for a second call."""
    import dataclasses

    from seqto.api import run_tune, write_outputs
    from seqto.record.events import Event, TrialFinished
    from seqto.record.replay import read_state
    from seqto.study.run import JOURNAL

    times_file = folder / "times.json"
    began = time.monotonic()
    times: dict[str, float] = {}

    def listen(event: Event) -> None:
        if isinstance(event, TrialFinished):
            times[str(event.trial.number)] = round(time.monotonic() - began, 1)

    folder.mkdir(parents=True, exist_ok=True)
    if times_file.is_file():  # a run with a budget must not get a second one
        result = write_outputs(job.out, read_state(job.out / JOURNAL))
        kept = json.loads(times_file.read_text(encoding="utf-8"))
    else:
        result = run_tune(dataclasses.replace(job, listener=listen))
        kept = {"times": times, "seconds": round(time.monotonic() - began, 1)}
        times_file.write_text(json.dumps(kept), encoding="utf-8")
    chosen = sorted({*result.recommended.values(), *result.front})
    trials = []
    for trial in result.trials:
        usable = trial.loss is not None and trial.loss.value <= 2 * MAX_DROP
        if trial.number in chosen and trial.error is None and usable:
            picks = [p for p, n in result.recommended.items() if n == trial.number]
            trials.append(
                {
                    "number": trial.number,
                    "picks": picks,
                    "size_bytes": trial.size_bytes,
                    "known_s": kept["times"].get(str(trial.number)),
                    "model": rebuilt(job.out, trial),
                }
            )
    return {"trials": _few(trials), "seconds": kept["seconds"]}


def _few(trials: list[Json]) -> list[Json]:
    """The recommended ones, and of the rest so many by size that timing them all stays honest."""
    picked = [t for t in trials if t["picks"]]
    rest = sorted((t for t in trials if not t["picks"]), key=lambda t: t["size_bytes"])
    step = max(1, len(rest) // 8)
    return [*picked, *rest[::step]]


# ----------------------------------------------------------------------------------------- peers


def write_samples(store: SampleStore, folder: Path) -> Path:
    """Prepared pictures of the two splits that a search may see, as plain arrays."""
    import numpy as np

    from seqto.records import CALIBRATION, EVALUATION

    name = store.inputs[0].name
    arrays = {s: store.batch(s, 0, store.rows(s))[name] for s in (CALIBRATION, EVALUATION)}
    path = folder / "samples.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def run_peer(
    peer: str, case: zoo.Case, pictures: Path, folder: Path, options: argparse.Namespace
) -> Json:
    """What a peer says of its run, or why there is nothing to say."""
    zoo.note(f"{peer}, {case.name}")
    python, reason = environment(peer)
    if python is None:
        return {"error": reason}
    spec_file, answer = folder / f"{peer}-spec.json", folder / f"{peer}-answer.json"
    answer.unlink(missing_ok=True)
    model = case.tables["model"]["path"]
    spec = {
        "model": model,
        "samples": str(pictures),
        "input": _input_name(model),
        "max_drop": MAX_DROP,
        "result": str(folder / f"{peer}.onnx"),
        "answer": str(answer),
    }
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    limit_s = options.limit_minutes * 60
    script = str(zoo.HERE / f"peer_{peer}.py")
    log = folder / f"{peer}.log"
    metered = run_metered([python, script, str(spec_file)], limit_s=limit_s, log=log)
    if metered["timed_out"]:
        return {"error": f"not done after {options.limit_minutes:g} minutes", **metered}
    if metered["returncode"] != 0 or not answer.is_file():
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = words[-1] if words else "without a word"
        return {"error": f"ended with code {metered['returncode']}: {last}", **metered}
    told: Json = json.loads(answer.read_text(encoding="utf-8"))
    return {**told, "metered": metered}


def _input_name(model: str) -> str:
    from seqto.model.files import load
    from seqto.model.prepare import input_specs

    specs = input_specs(load(model))
    if len(specs) != 1:
        sys.exit(f"{model} has {len(specs)} inputs; the peers are given one")
    return specs[0].name


def environment(peer: str) -> tuple[str | None, str]:
    """The peer's Python, made where it is missing; None and the reason where that fails."""
    folder = zoo.HERE / ".envs" / peer
    python = folder / "bin" / "python"
    probe = [str(python), "-c", f"import {MODULES[peer]}"]
    if python.is_file() and subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        return str(python), ""
    zoo.note(f"making the environment of {peer}: {' '.join(ENVIRONMENTS[peer])}")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    words = [str(python), "-m", "pip", "install", "--quiet", *ENVIRONMENTS[peer]]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [x for x in done.stderr.splitlines() if x.strip() and "WARNING" not in x]
        return None, f"cannot be installed: {lines[-1] if lines else 'no reason given'}"
    return str(python), ""


# ---------------------------------------------------------------------------------------- tables


def tables(rows: Mapping[str, Json]) -> str:
    lines: list[Sequence[Any]] = []
    verdicts: list[Sequence[Any]] = []
    ours_by = {(r["model"], r["seed"]): r for r in rows.values() if r["tool"] == OURS}
    for row in rows.values():
        if row["tool"] == OURS:
            continue
        lines.append(_peer_line(row))
        ours = ours_by.get((row["model"], row["seed"]))
        if ours is None or "loss" not in row:
            continue
        best = match(row, ours)
        if best is None:
            verdicts.append((row["model"], row["tool"], "no trial of ours loses as little", "", ""))
            continue
        lines.append(_our_line(row, ours, best))
        share = ours["seconds"] / row["seconds"]
        known = best["known_s"]
        known_share = "–" if known is None else f"{known / row['seconds']:.2f}"
        verdicts.append(
            (
                row["model"],
                row["tool"],
                f"{best['size_bytes'] / row['size_bytes']:.3f}",
                f"{best['latency']['ratio'] / row['latency']['ratio']:.2f}",
                f"{share:.2f} (known after {known_share})",
            )
        )
    for key, ours in ours_by.items():
        for trial in ours["trials"]:
            if trial["picks"]:
                lines.append(
                    _our_line({"model": key[0], "seed": key[1], "tool": None}, ours, trial)
                )
    head = (
        "model",
        "seed",
        "tool",
        "loss, report split",
        "evaluation",
        "MB",
        "latency",
        "seconds",
        "",
    )
    parts = [zoo.table(head, lines)]
    if verdicts:
        columns = ("model", "against", "our bytes (< 1)", "our latency (≤ 1)", "our time (≤ 0.2)")
        parts.append("At the peer's loss or less:\n")
        parts.append(zoo.table(columns, verdicts))
    return "\n".join(parts)


def match(peer: Json, ours: Json) -> Json | None:
    """Our trial that loses no more: fewest bytes among the no slower ones, else the fewest."""
    fair = [t for t in ours["trials"] if t["loss"]["value"] <= peer["loss"]["value"]]
    quick = [t for t in fair if t["latency"]["ratio"] <= peer["latency"]["ratio"]]
    return min(quick or fair, key=lambda t: t["size_bytes"], default=None)


def _peer_line(row: Json) -> tuple[Any, ...]:
    name = f"{row['tool']} {row.get('version', '')}".strip()
    if "loss" not in row:
        reason = row.get("error", "no model")
        return (row["model"], row["seed"], name, reason, "–", "–", "–", "–", "")
    return (
        row["model"],
        row["seed"],
        name,
        zoo.bounded(row["loss"]),
        zoo.percent(row["evaluation_loss"]["value"]),
        zoo.megabytes(row["size_bytes"]),
        f"×{row['latency']['ratio']:.2f}",
        f"{row['seconds']:.0f}",
        f"{row.get('note', '')}, {row.get('evaluations', '?')} evaluations",
    )


def _our_line(row: Json, ours: Json, trial: Json) -> tuple[Any, ...]:
    why = f"at {row['tool']}'s loss" if row["tool"] else "/".join(trial["picks"])
    known = "" if trial["known_s"] is None else f", known after {trial['known_s']:.0f} s"
    return (
        row["model"],
        row["seed"],
        f"**{OURS}** #{trial['number']}",
        zoo.bounded(trial["loss"]),
        zoo.percent(trial["evaluation_loss"]["value"]),
        zoo.megabytes(trial["size_bytes"]),
        f"×{trial['latency']['ratio']:.2f}",
        f"{ours['seconds']:.0f}",
        f"{why}{known}",
    )


if __name__ == "__main__":
    main()

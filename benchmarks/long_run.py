"""Resume of a day's run: 10,000 recorded trials of a net with 50 layers, made without running them.

    python benchmarks/long_run.py [--trials 10000] [--keep FOLDER]

A first call of `evolve` gets made-up figures for its trials and timings, which follow from each
plan alone, and is ended by its budget. Then the same command is started as a user would, once with
the same budget and once for one trial more: the journal is read, the strategy repeated, the report
written. Wanted: under 10 s to where the search was, and memory that does not grow beyond 1 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.cli.main import main as seqto
from seqto.execution.context import WorkerContext
from seqto.execution.executor import Signals
from seqto.execution.jobs import Evaluate, Evaluated, ModelMade, Timed, TimePlans
from seqto.records import Loss, Measurement
from seqto.testing.executors import InlineExecutor

LAYERS, CHANNELS, SIDE, CLASSES = 50, 4, 8, 10
POPULATION, GENERATIONS = 100, 200  # more trials than any budget here
BYTES = {"fp32": 576, "fp16": 288, "weight": 144, "dynamic": 150, "static": 160}
DAMAGE = {"fp32": 0.0, "fp16": 0.02, "weight": 0.3, "dynamic": 0.6, "static": 1.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, help="folder for the run, instead of a temporary one")
    parser.add_argument("--objectives", nargs="+", default=["loss", "size", "latency"])
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="seqto-long-run-"))
        )
        folder.mkdir(exist_ok=True)
        words = command(folder, options.objectives)
        if not (folder / "run" / "report.json").exists():
            record(words, options.trials)
        journal = folder / "run" / "journal.jsonl"
        lines = sum(line.startswith(b'{"event":"trial"') for line in journal.open("rb"))
        print(f"{lines} trials, journal of {journal.stat().st_size / 1e6:.0f} MB")
        for more in (0, 1):
            resume([*words, "--max-trials", str(options.trials + more)], more)
        page = (folder / "run" / "report.html").stat().st_size
        print(f"page {page / 1e6:.1f} MB")
    return 0


def command(folder: Path, objectives: list[str]) -> list[str]:
    """Write model, samples and config; return the words of the command."""
    onnx.save(chain(), folder / "chain.onnx")
    rows = np.random.default_rng(0).normal(size=(600, CHANNELS, SIDE, SIDE)).astype(np.float32)
    np.savez(folder / "rows.npz", x=rows)
    (folder / "long.toml").write_text(
        f"""\
[model]
path = "chain.onnx"
[data]
arrays = "rows.npz"
calibration = 16
evaluation = 256
report = 64
batch = 16
[search]
strategy = "evolve"
population = {POPULATION}
generations = {GENERATIONS}
racing = false
[device]
latency_s = 0.05
[analysis]
diagnose = false
"""
    )
    words = ["tune", "--config", str(folder / "long.toml"), "--out", str(folder / "run")]
    return [*words, "--quiet", "--jobs", "1", "--objectives", *objectives]


def chain() -> onnx.ModelProto:
    """Return x ─ 49 times Conv, Relu ─ GlobalAveragePool ─ Flatten ─ Gemm ─ y."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for i in range(LAYERS - 1):
        array = rng.normal(size=(CHANNELS, CHANNELS, 3, 3)).astype(np.float32) / 4
        weights.append(numpy_helper.from_array(array, f"w{i}"))
        pads: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], f"block{i}/conv", **pads))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"block{i}/relu"))
        last = f"r{i}"
    weights.append(numpy_helper.from_array(rng.normal(size=(CHANNELS, CLASSES)).astype("f"), "wf"))
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["p"], "pool"))
    nodes.append(helper.make_node("Flatten", ["p"], ["f"], "flat"))
    nodes.append(helper.make_node("Gemm", ["f", "wf"], ["y"], "head"))
    ends: list[tuple[str, list[str | int | None]]]
    ends = [("x", ["N", CHANNELS, SIDE, SIDE]), ("y", ["N", CLASSES])]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)] for name, shape in ends
    )
    graph = helper.make_graph(nodes, "chain", inputs, outputs, weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto


def evaluated(worker: WorkerContext, job: Evaluate, signals: Signals) -> Evaluated:
    """Return figures of a plan that is assembled and not run.

    Any plan may be recommended, and is then assembled again: its sha256 must be the real one.
    """
    signals.alive()
    plan = job.plan
    damage = sum(DAMAGE.get(s.kind, 0.5) * share(name) for name, s in plan.schemes) / LAYERS
    wrong = min(job.rows, round(damage * job.rows + 3 * share(plan.key)))
    same = np.ones(job.rows, dtype=bool)
    same[np.random.default_rng(digest(plan.key)).permutation(job.rows)[:wrong]] = False
    value = wrong / job.rows
    agreement = np.packbits(same).tobytes().hex()
    loss = Loss(value, max(0.0, value - 0.02), min(1.0, value + 0.02), job.rows, agreement)
    kept_float = LAYERS - len(plan.schemes)
    size = 9_000 + 576 * kept_float + sum(BYTES.get(s.kind, 80) for _, s in plan.schemes)
    made = worker.assemble(plan)
    model = ModelMade(size, made.sha256, made.content, graph=made.content if job.graph else "")
    return Evaluated(model, Measurement(job.split, "cpu", loss, damage=damage + 1e-6))


def timed(_worker: WorkerContext, job: TimePlans, signals: Signals) -> Timed:
    signals.alive()
    times = [1.0, *(speed(plan.key) for plan in job.plans)]
    rounds = np.random.default_rng(len(times)).uniform(0.99, 1.01, size=(len(times), 20))
    return Timed(tuple(tuple(map(float, t * r)) for t, r in zip(times, rounds, strict=True)))


def digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def share(name: str) -> float:
    """Return a number from 0 to 1 that follows from a name alone."""
    return digest(name) / 2**64


def speed(plan_key: str) -> float:
    """Return milliseconds; the float model takes one."""
    return 1.0 - 0.6 * share(f"{plan_key} speed")


def record(words: list[str], trials: int) -> None:
    began = time.monotonic()
    with (
        mock.patch("seqto.study.open_executor.LocalExecutor", InlineExecutor),
        mock.patch("seqto.execution.evaluate.evaluate", evaluated),
        mock.patch("seqto.execution.latency.time_plans", timed),
    ):
        code = seqto([*words, "--max-trials", str(trials)])
    if code:
        raise SystemExit(f"the first call ended with {code}")
    print(f"recorded in {time.monotonic() - began:.0f} s")


def resume(words: list[str], more: int) -> None:
    """Start the command as a user does, and say how long it took and its largest memory."""
    program = "import resource, sys, time; from seqto.cli.main import main; code = main(); "
    program += "used = resource.getrusage(resource.RUSAGE_SELF); "
    program += "print(code, used.ru_utime + used.ru_stime, used.ru_maxrss, file=sys.stderr)"
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    last: list[Any] = done.stderr.strip().splitlines()[-1].split()
    if done.returncode or last[0] != "0":
        raise SystemExit(f"the resumed call failed: {done.stderr}")
    folder = Path(words[words.index("--out") + 1])
    report = json.loads((folder / "report.json").read_text())
    trials = report["counts"]["trials"]
    print(
        f"{more} trials more: {seconds:.1f} s ({float(last[1]):.1f} s of CPU), "
        f"peak {int(last[2]) / 1024:.0f} MB, {trials} trials in the report"
    )


if __name__ == "__main__":
    raise SystemExit(main())

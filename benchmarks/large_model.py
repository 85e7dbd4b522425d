"""Memory of a run on a model of 1.2 GB with external data, made in code: 24 blocks, width 1024.

    python benchmarks/large_model.py                  # --blocks and --width for smaller ones

One worker, few samples, a short search. Every 0.1 s the anonymous memory (RssAnon: what was
allocated; pages of mapped files can be dropped) of each process of the tree is read. Wanted: at
most three times the float model for a worker, and one copy more for all together. The dry run's
own sentence about memory is noted beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import zoo
from picture_memory import _memory, _tree

Json = dict[str, Any]
WORDS, HEADS, CLASSES, LENGTH, SAMPLES = 2000, 16, 4, 12, 40
PER_WORKER, SHARED = 3.0, 1.0  # of the float model's bytes


def main() -> None:
    parser = zoo.parser("large_model", __doc__, models=(), seeds=None)
    parser.add_argument("--blocks", type=int, default=24)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--minutes", type=float, default=6.0, help="of the search")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    results = zoo.Results(options.out, name="large_model", options={"set": options.set})
    key = f"{options.blocks} x {options.width}, {options.jobs} workers, {options.minutes:g} min"
    if key not in results.rows:
        results.put(key, measured(options))
    row = results.rows[key]
    size = row["float_bytes"]
    worker, tree = row["worker_bytes"] / size, row["tree_bytes"] / size
    limit = PER_WORKER * options.jobs + SHARED
    verdict = "pass" if worker <= PER_WORKER and tree <= limit else "FAIL"
    print(
        f"{size / 1e9:.2f} GB: a worker {worker:.2f} x, all processes {tree:.2f} x of it (at most "
        f"{PER_WORKER:g} and {limit:g}), {row['trials']} trials, {row['seconds']:.0f} s: {verdict}"
    )


def measured(options: argparse.Namespace) -> Json:
    """Make the model and the samples, ask the dry run, watch the search."""
    with tempfile.TemporaryDirectory(prefix="large-model-") as name:
        folder = Path(name)
        size = save_model(folder / "large.onnx", blocks=options.blocks, width=options.width)
        rng = np.random.default_rng(0)
        np.savez(folder / "ids.npz", ids=rng.integers(0, WORDS, (SAMPLES, LENGTH)))
        words = [sys.executable, "-m", "seqto", "tune", str(folder / "large.onnx")]
        words += ["--data", str(folder / "ids.npz"), "--out", str(folder / "run")]
        words += ["--jobs", str(options.jobs), "--max-minutes", str(options.minutes)]
        for setting in ("data.calibration=8", "data.evaluation=16", "data.report=16", *options.set):
            words += ["--set", setting]
        dry = subprocess.run([*words, "--dry-run"], capture_output=True, text=True, check=True)
        said = [x.strip() for x in dry.stdout.splitlines() if re.search("memory|RAM", x)]
        found = watched(words)
        lines = (folder / "run/journal.jsonl").read_text().splitlines()
        trials = sum(json.loads(x).get("event") == "trial" for x in lines)
        return {"float_bytes": size, "dry_run": said, "trials": trials, **found}


def save_model(path: Path, *, blocks: int, width: int) -> int:
    """Write a sentence classifier with its weights beside it; return the bytes of both."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    nodes: list[Any] = []
    constants: list[Any] = []

    def constant(values: Any) -> str:
        constants.append(numpy_helper.from_array(values, f"w{len(constants)}"))
        return f"w{len(constants) - 1}"

    def weight(*shape: int) -> str:
        values = rng.standard_normal(shape, dtype=np.float32)
        return constant(values * np.float32(shape[0] ** -0.5))

    def add(op: str, *inputs: str, output: str = "", **more: Any) -> str:
        made = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [made], name=f"{op}_{len(nodes)}", **more))
        return made

    def heads(x: str, perm: list[int]) -> str:
        shape = constant(np.array([0, 0, HEADS, width // HEADS], np.int64))
        return add("Transpose", add("Reshape", x, shape), perm=perm)

    def norm(x: str) -> str:
        return add("LayerNormalization", x, constant(np.ones(width, np.float32)), axis=-1)

    x = add("Gather", weight(WORDS, width), "ids")
    for _ in range(blocks):
        y = norm(x)
        q, k, v = (add("MatMul", y, weight(width, width)) for _ in range(3))
        scale = constant(np.array((width / HEADS) ** -0.5, np.float32))
        scores = add("Mul", add("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1])), scale)
        mixed = add("MatMul", add("Softmax", scores), heads(v, [0, 2, 1, 3]))
        flat = constant(np.array([0, 0, width], np.int64))
        y = add("Reshape", add("Transpose", mixed, perm=[0, 2, 1, 3]), flat)
        x = add("Add", x, add("MatMul", y, weight(width, width)))
        y = add("Relu", add("MatMul", norm(x), weight(width, 4 * width)))
        x = add("Add", x, add("MatMul", y, weight(4 * width, width)))
    axis = constant(np.array([1], np.int64))
    mean = add("ReduceMean", norm(x), axis, keepdims=0)
    add("MatMul", mean, weight(width, CLASSES), output="logits")
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "length"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        constants,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    proto.ir_version = 9
    onnx.save(proto, path, save_as_external_data=True, location=path.name + ".data")
    return path.stat().st_size + path.with_name(path.name + ".data").stat().st_size


def watched(command: list[str]) -> Json:
    """Return peak anonymous bytes of the main process, of a worker and of all together."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peaks = {"main_bytes": 0, "worker_bytes": 0, "tree_bytes": 0}
    while process.poll() is None:
        rows = {pid: _memory(pid)[0] for pid in _tree(process.pid)}
        main_bytes = rows.pop(process.pid, 0)
        now = (main_bytes, max(rows.values(), default=0), main_bytes + sum(rows.values()))
        for name, value in zip(peaks, now, strict=True):
            peaks[name] = max(peaks[name], value)
        time.sleep(0.1)
    if process.returncode:
        sys.exit(f"the run failed with {process.returncode}: {' '.join(command)}")
    return {**peaks, "seconds": round(time.monotonic() - began, 1)}


if __name__ == "__main__":
    main()

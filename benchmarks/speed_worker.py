"""Memory of a worker beside a float session, and the time that a command takes to start."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import private_bytes, samples_of

if TYPE_CHECKING:
    import argparse

    import zoo

Json = dict[str, Any]
STARTS = 7


def worker_memory(
    case: zoo.Case, seed: int, options: argparse.Namespace, *, listing: Sequence[Json]
) -> Json:
    """Return private bytes of one worker: idle, with the float model, and with candidates."""
    from seqto.assembly.plan import Plan
    from seqto.execution.files import LocalFiles
    from seqto.execution.jobs import TryPlan, WorkerSetup
    from seqto.execution.local.executor import LocalExecutor
    from seqto.model import outputs
    from seqto.model.prepare import open_prepared

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
    """Return largest private memory while a worker evaluates plans, looked at again and again."""
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
    """Return what importing libraries costs a process that has numpy: the same for all models."""
    code = (
        "import numpy, psutil; p = psutil.Process(); a = p.memory_full_info().uss\n"
        f"import {modules}; print(p.memory_full_info().uss - a)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


def start_times() -> Json:
    """Return seconds of `import seqto` beyond an empty Python and of `seqto --help`, the best."""
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

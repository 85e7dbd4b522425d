"""How many workers one driver of a Ray cluster can feed: jobs that sleep, on 1 to 64 actors.

    python benchmarks/cluster_scale.py --actors 1 4 16 64 --out benchmarks/results/cluster.json

Each job sleeps for the seconds that a candidate took in a recorded run (--journal), scaled to a
mean; it goes the whole way: main process, broker, actor, worker process, and back to a journal
with fsync. Only the computing is left out, so that 64 actors fit on a small machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from seqto.assembly.plan import Plan
from seqto.devices.environment import environment
from seqto.execution.executor import run_all
from seqto.execution.files import FileRef, LocalFiles
from seqto.execution.jobs import TryPlan, WorkerSetup
from seqto.execution.ray.executor import ClusterSettings, RayCluster
from seqto.execution.ray.worker import RemoteWorker
from seqto.model.outputs import Judged
from seqto.record.events import TrialFinished
from seqto.record.journal import Journal
from seqto.record.trial import Trial


class SleepingWorker(RemoteWorker):
    target = "cluster_scale:serve"


def serve(_setup: Any) -> Any:
    def handle(job: Any, channel: Any) -> Any:
        time.sleep(job["batch"] / 1000)
        return {"kind": "PlanRan"}

    return handle


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--actors", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--mean-s", type=float, default=1.0)
    parser.add_argument("--journal", type=Path, help="of a run whose trials' seconds are replayed")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    sleeps = durations(options.journal, options.jobs, options.mean_s)
    rows = []
    for actors in options.actors:
        few = sleeps[: min(len(sleeps), 60 * actors)]  # one actor needs no ten minutes
        rows.append(measure(actors, few))
        print(json.dumps(rows[-1]), flush=True)
        found = {"environment": environment(), "mean_s": options.mean_s, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def durations(journal: Path | None, count: int, mean_s: float) -> list[float]:
    """Return seconds of recorded candidates, repeated in a seeded order and scaled to a mean."""
    generator = random.Random(0)
    recorded = [generator.lognormvariate(0, 0.4) for _ in range(count)]
    if journal is not None:
        events = [json.loads(line) for line in journal.read_text().splitlines()]
        recorded = [e["trial"]["seconds"] for e in events if e["event"] == "trial"]
    chosen = [generator.choice(recorded) for _ in range(count)]
    scale = mean_s * count / sum(chosen)
    return [scale * seconds for seconds in chosen]


def measure(actors: int, sleeps: list[float]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        files = LocalFiles(Path(folder))
        (Path(folder) / "original").write_bytes(b"model")
        ref: FileRef = files.put(Path(folder) / "original")
        setup = WorkerSetup(ref, (), "samples", {"kind": "ort"}, Judged("y", 0, 1, (0,)), (0,))
        began = time.perf_counter()
        settings = ClusterSettings(jobs=actors)
        cluster = stack.enter_context(RayCluster(settings, worker="cluster_scale:SleepingWorker"))
        executor = stack.enter_context(contextlib.closing(cluster.executor(setup, files)))
        cluster.wait_for_workers(actors, timeout_s=600)
        run_all(executor, [TryPlan(Plan(), 500)] * actors)  # the worker processes start
        started_s = time.perf_counter() - began
        journal = stack.enter_context(Journal.open(Path(folder) / "journal.jsonl"))
        processes = [psutil.Process(), psutil.Process(cluster._process.pid)]
        cpu, journal_s = [_cpu(p) for p in processes], 0.0
        began = time.perf_counter()
        for seconds in sleeps:
            executor.submit(TryPlan(Plan(), max(1, round(1000 * seconds))))
        done = 0
        while done < len(sleeps):
            for _ in executor.wait():
                noted = time.perf_counter()
                journal.append(TrialFinished(Trial(done, Plan(), sha256="0" * 64)))
                journal_s += time.perf_counter() - noted
                done += 1
        wall_s = time.perf_counter() - began
        used = [_cpu(p) - before for p, before in zip(processes, cpu, strict=True)]
    speedup = sum(sleeps) / wall_s
    return {
        "actors": actors,
        "jobs": len(sleeps),
        "start_s": round(started_s, 1),
        "wall_s": round(wall_s, 2),
        "speedup": round(speedup, 2),
        "share_of_ideal": round(speedup / actors, 3),
        "jobs_a_second": round(len(sleeps) / wall_s, 1),
        "main_cpu_ms_a_job": round(1e3 * used[0] / len(sleeps), 2),
        "broker_cpu_ms_a_job": round(1e3 * used[1] / len(sleeps), 2),
        "journal_ms_a_job": round(1e3 * journal_s / len(sleeps), 2),
        "load": [round(x, 1) for x in psutil.getloadavg()],
    }


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    sys.modules.setdefault("cluster_scale", sys.modules["__main__"])
    main()

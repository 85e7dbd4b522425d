"""Measure models that are bytes: loss on a split, latency side by side, memory of a process tree.

Run folders lose their samples when a run ends; the same settings give the same samples again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqto.data.store import SampleStore
    from seqto.record.trial import Trial
    from seqto.records import Latency, Measurement
    from seqto.study.setup import RunSetup

Json = dict[str, Any]
BATCH = 8
PREPARED = Path("variants") / "base" / "model.onnx"


@contextlib.contextmanager
def samples_of(job: RunSetup) -> Iterator[SampleStore]:
    """Yield the very samples of a run, in a folder that goes afterwards; the run must exist."""
    from seqto.model import prepare as model_prepare
    from seqto.study import workspace

    with tempfile.TemporaryDirectory(prefix="samples-", dir=job.out) as folder:
        prepared = model_prepare.open_prepared(job.out / PREPARED)
        yield workspace.build_store(job, prepared, Path(folder))


class Referee:
    """The float model's answers on one split; judges other models against them."""

    def __init__(self, job: RunSetup, store: SampleStore, split: str) -> None:
        from seqto.tasks import scoring

        self.job, self.store, self.split = job, store, split
        outputs = self.run(Path(job.fetched.path))
        self.reference = scoring.reference_from(
            job.task,
            split,
            [scoring.decode(job.task, outputs)],
            labels=store.labels(split),
            about={"output": {}, "caution": None},
        )

    def measure(self, model: bytes) -> Measurement:
        return self.judge(self.run(model))

    def judge(self, outputs: list[Any]) -> Measurement:
        """Compare what `run` has returned with the float model's answers."""
        from seqto.tasks.scoring import Scorer, decode

        scorer = Scorer(
            self.job.task,
            self.reference,
            device=self.job.device.name,
            rows=self.reference.rows,
            labels=self.store.labels(self.split),
        )
        scorer.add(decode(self.job.task, outputs))
        return scorer.measurement()

    def run(self, model: bytes | Path) -> list[Any]:
        """Return the outputs of a model on all samples of the split."""
        import numpy as np

        session = self.job.device.open(model)
        step = (self.store.inputs[0].shape[:1] or (1,))[0] or BATCH
        rows = self.store.rows(self.split)
        parts = []
        for first in range(0, rows, step):
            feeds = self.store.batch(self.split, first, min(first + step, rows))
            parts.append([output[: feeds.rows] for output in session.run(feeds)])
        session.close()
        return [np.concatenate(p) for p in zip(*parts, strict=True)]


def interleaved(
    job: RunSetup, store: SampleStore, models: Mapping[str, bytes], *, seconds: float = 1.5
) -> dict[str, Latency]:
    """Time one sample through float and all models in turn, `seconds` for each of them."""
    from seqto.execution.latency import in_turn
    from seqto.records import CALIBRATION
    from seqto.study.timing import latency_from

    feeds = store.batch(CALIBRATION, 0, 1)
    raw: list[bytes | Path] = [Path(job.fetched.path), *models.values()]
    sessions = [job.device.open(m, threads=job.settings.device.threads) for m in raw]
    for session in sessions:
        for _ in range(3):
            session.time_ms(feeds)
    times = in_turn(sessions, feeds, seconds=seconds * len(sessions), rounds=(20, 600))
    for session in sessions:
        session.close()
    return {name: latency_from(times[0], times[i]) for i, name in enumerate(models, start=1)}


def float_bytes(job: RunSetup) -> int:
    from seqto.model.files import size_of

    return size_of(job.fetched.path)


def rebuilt(folder: Path, trial: Trial) -> bytes:
    from seqto.assembly.rebuild import rebuild

    return rebuild(folder, trial.to_json())


def loss_json(found: Measurement) -> Json:
    """Return what a table needs of a measurement."""
    return {
        "value": found.loss.value,
        "low": found.loss.low,
        "high": found.loss.high,
        "samples": found.loss.samples,
        "accuracy": found.scores.get("accuracy"),
        "float_accuracy": found.baseline_scores.get("accuracy"),
        "damage": found.damage,
    }


# ----------------------------------------------------------------------------------- hypervolume


MOST_LOSS = 0.20  # beyond this nobody uses a model: the reference is never farther out


@dataclass(frozen=True, slots=True)
class Box:
    """The reference of a hypervolume over (loss, size): min(FQ's loss, 20 %), float's size."""

    loss: float
    size_bytes: int

    @classmethod
    def of(cls, fq_loss: float, float_size: int) -> Box:
        return cls(min(fq_loss, MOST_LOSS), float_size)

    def share(self, points: Sequence[tuple[float, float]]) -> float | None:
        """Return dominated share of the box from (0, 0) to the reference; None for an empty box."""
        from seqto.selection.pareto import hypervolume

        if self.loss <= 0:
            return None
        scaled = [(loss / self.loss, size / self.size_bytes) for loss, size in points]
        return hypervolume(scaled, reference=(1.0, 1.0))


# --------------------------------------------------------------------------------- process trees


def run_metered(
    command: Sequence[str],
    *,
    limit_s: float | None = None,
    limit_cpu_s: float | None = None,
    log: Path | None = None,
) -> Json:
    """Run a command: wall and CPU seconds with all its children, peak of the tree's memory."""
    began = time.monotonic()
    with contextlib.ExitStack() as open_files:
        stream = open_files.enter_context(log.open("wb")) if log else None
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    peak = _Peak(process.pid)
    walls, cpus = limit_s or float("inf"), limit_cpu_s or float("inf")
    timed_out = False
    try:
        # wait4 instead of Popen.wait: only this call's children are to be counted
        while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
            over = time.monotonic() - began > walls or peak.cpu_s > cpus
            if over and not timed_out:
                timed_out = True
                _end_group(process.pid)
            time.sleep(0.05)
    except BaseException:  # Ctrl-C: what was started goes, too
        _end_group(process.pid)
        process.wait()
        raise
    finally:
        peak.close()
    _, status, usage = ended
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "wall_s": round(time.monotonic() - began, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_rss_bytes": peak.rss_bytes,
        "returncode": process.returncode,
        "timed_out": timed_out,
    }


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Peak:
    """Samples resident bytes and CPU of a process and its descendants, ten times a second."""

    def __init__(self, pid: int) -> None:
        self.rss_bytes, self.cpu_s = 0, 0.0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        import psutil

        while not self._over.wait(0.1):
            with contextlib.suppress(psutil.Error):
                root = psutil.Process(self._pid)
                total, cpu_s = 0, 0.0
                for process in [root, *root.children(recursive=True)]:
                    with contextlib.suppress(psutil.Error):
                        total += process.memory_info().rss
                        cpu_s += sum(process.cpu_times()[:4])
                self.rss_bytes = max(self.rss_bytes, total)
                self.cpu_s = max(self.cpu_s, cpu_s)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def cpu_seconds_now() -> float:
    """Return CPU seconds of this process and its children, those that still run included."""
    import psutil

    own = psutil.Process()
    total = sum(own.cpu_times()[:4])  # user, system, and those of children that have ended
    for child in own.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            total += times.user + times.system
    return float(total)


class CpuSeries:
    """Notes the CPU seconds of this process and its children against wall seconds, once a second.

    CPU seconds can be compared on a machine that others use, wall seconds cannot.
    """

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []
        self._began, self._cpu = time.monotonic(), cpu_seconds_now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            self._note()

    def _note(self) -> None:
        wall, cpu = time.monotonic() - self._began, cpu_seconds_now() - self._cpu
        self.points.append((round(wall, 2), round(cpu, 2)))

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._note()


@contextlib.contextmanager
def cpu_kept(path: Path) -> Iterator[None]:
    """Write the CPU seconds of what is done meanwhile into a file, with load before and after."""
    before = os.getloadavg()[0]
    series = CpuSeries()
    try:
        yield
    finally:
        series.close()
    load = [round(before, 1), round(os.getloadavg()[0], 1)]
    text = json.dumps({"load": load, "wall_and_cpu_s": series.points})
    path.write_text(text + "\n", encoding="utf-8")


def private_bytes(pid: int) -> int:
    """Return memory that only this process has."""
    import psutil

    return int(psutil.Process(pid).memory_full_info().uss)

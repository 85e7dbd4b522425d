"""Jobs that measure a model alone: latency beside the float model, memory, time to load."""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqto.devices.bundle import FOLLOWED, GenerationSession
from seqto.devices.device import MeasuringSession, Session
from seqto.execution.context import WorkerContext
from seqto.execution.executor import Signals
from seqto.execution.jobs import (
    MeasureMemory,
    MemoryMeasured,
    ModelSaved,
    SaveModel,
    Timed,
    TimePlans,
)
from seqto.files import write_file
from seqto.model.batch import Batch
from seqto.model.bundle import split_bytes

SIGN_OF_LIFE_S = 1.0  # between two of a latency job
LONG_SHARE = 0.4  # of the time of a latency job: for long sequences
CHECK_ROUNDS = 5  # rounds after each of which a latency job looks whether it may end
# of a ratio: the width of its interval at which it ends. Two sessions of one model differ by 2 %
# (selection/speed.py), so that more rounds would not tell more
PRECISE = 0.02
# runs of a turn that are not timed and that are, by the float model's milliseconds: the longer a
# run, the smaller the share of it that fills the caches
TURNS = ((10.0, 3, 3), (100.0, 1, 1), (np.inf, 0, 1))


def time_plans(worker: WorkerContext, job: TimePlans, signals: Signals) -> Timed:
    """Time models by turns, which makes ratios hold on busy machines."""
    usual, long = worker.store.usual_and_long(job.split)
    feeds: Batch = worker.store.pick(job.split, [usual])
    alive = _sometimes(signals.alive)
    with contextlib.ExitStack() as stack:
        sessions: list[Session] = []
        # all are assembled before the first is opened: of a large model both take much memory
        models = [worker.model_of(plan) for plan in (job.float_plan, *job.plans)]
        for model in models:
            stack.callback(worker.discard, model)
        for model in models:
            opened = worker.device.open(model, threads=job.threads)
            sessions.append(stack.enter_context(opened))
            signals.alive()
        feeds = along_float(sessions[0], feeds)
        for session in sessions:
            for _ in range(3):
                session.time_ms(feeds)
                alive()
        times = in_turn(
            sessions,
            feeds,
            seconds=job.seconds * (1 if long is None else 1 - LONG_SHARE),
            rounds=(job.min_rounds, job.max_rounds),
            alive=alive,
        )
        figures = tuple(_figures(session) for session in sessions)
        lengths: tuple[int, ...] | None = None
        long_ms: tuple[tuple[float, ...], ...] | None = None
        if long is not None and feeds.lengths is not None:
            longer = along_float(sessions[0], worker.store.pick(job.split, [long]))
            assert longer.lengths is not None
            lengths = (int(feeds.lengths[0]), int(longer.lengths[0]))
            rounds = (max(1, job.min_rounds // 2), job.max_rounds)
            seconds = job.seconds * LONG_SHARE
            long_times = in_turn(sessions, longer, seconds=seconds, rounds=rounds, alive=alive)
            long_ms = tuple(tuple(t) for t in long_times)
        throughput = None
        if job.batch:
            picked = np.arange(job.batch) % worker.store.rows(job.split)
            many = worker.store.pick(job.split, picked.tolist())
            throughput = tuple(_throughput(s, many, job.batch, alive) for s in sessions)
    whole = tuple(tuple(t) for t in times)
    return Timed(whole, throughput, lengths, long_ms, figures if any(figures) else ())


def along_float(session: Session, feeds: Batch) -> Batch:
    """Return feeds with which all models of a bundle take as many steps as the float model does.

    A model that ends its sequences early is no faster for that.
    """
    if not isinstance(session, GenerationSession):
        return feeds
    return feeds.with_feeds({FOLLOWED: session.run(feeds)[0]})


def _figures(session: Session) -> dict[str, float]:
    return dict(session.figures()) if isinstance(session, MeasuringSession) else {}


def in_turn(
    sessions: Sequence[Session],
    feeds: Batch,
    *,
    seconds: float,
    rounds: tuple[int, int],
    alive: Callable[[], None] = lambda: None,
) -> list[list[float]]:
    """Return the milliseconds of each session, one figure a round.

    A turn begins with runs that are not timed: after another model's run the caches hold that
    model's weights, while a program that runs one model finds its own. A sentence encoder in int8
    (23 MB, 1 ms) takes 0.50 of float's time in the first run of a turn, 0.34 from the fourth on.
    """
    times: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + seconds
    least, most = rounds
    for done, order in enumerate(round_orders(len(sessions))):
        if done >= least and (time.perf_counter() >= end or done >= most):
            break
        if done >= least and done % CHECK_ROUNDS == 0 and _is_precise(times):
            break
        float_ms = times[0][-1] if done else sessions[0].time_ms(feeds)
        untimed, timed = next((u, t) for limit, u, t in TURNS if float_ms < limit)
        for i in order:
            turn = []
            for _ in range(untimed + timed):
                turn.append(sessions[i].time_ms(feeds))
                alive()
            times[i].append(float(np.median(turn[untimed:])))
    return times


def round_orders(count: int) -> Iterator[list[int]]:
    """Yield the order of each round: at random, so that none follows itself.

    The second of two turns in a row finds its weights in the caches. Forwards and backwards,
    float, the first session, had that in every other round: of 16 copies of a net of 1 MB it looked
    4 to 12 % faster than most of the others.
    """
    rng = np.random.default_rng(0)
    last = -1
    while True:
        order = rng.permutation(count).tolist()
        if order[0] == last:
            order.append(order.pop(0))
        last = order[-1]
        yield order


def _is_precise(times: Sequence[Sequence[float]]) -> bool:
    """Return whether every candidate's ratio to float is known as well as two sessions agree."""
    base = np.asarray(times[0])
    for own in times[1:]:
        low, middle, high = median_interval(np.asarray(own) / base)
        if high - low > PRECISE * middle:
            return False
    return len(times) > 1


def median_interval(values: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return low end, median and high end: binomial bounds, ranks n/2 ± 1.96·√n/2."""
    ordered = np.sort(values)
    n = len(ordered)
    half = 1.96 * np.sqrt(n) / 2
    low, high = int(max(0, np.floor(n / 2 - half))), int(min(n - 1, np.ceil(n / 2 + half)))
    return float(ordered[low]), float(np.median(ordered)), float(ordered[high])


def _throughput(session: Session, feeds: Batch, batch: int, alive: Callable[[], None]) -> float:
    best = np.inf
    for _ in range(4):  # the first is slower, and so never the best
        best = min(best, session.time_ms(feeds))
        alive()
    return 1e3 * float(batch) / best


def _sometimes(alive: Callable[[], None]) -> Callable[[], None]:
    """Return a function that gives a sign of life, if the last one is some time ago."""
    last = time.perf_counter()

    def say() -> None:
        nonlocal last
        if time.perf_counter() - last >= SIGN_OF_LIFE_S:
            last = time.perf_counter()
            alive()

    return say


def save_model(worker: WorkerContext, job: SaveModel) -> ModelSaved:
    """Write a model, so that the process that measures its memory has not assembled it."""
    data = worker.assemble(job.plan).data
    saved = {}
    for name, content in (split_bytes(data) or {"": data}).items():
        path = worker.files.work_file(f"model-{job.plan.key}{name and '-'}{name}")
        write_file(path, content)
        saved[name] = worker.files.put(path)
    return ModelSaved(saved)


def measure_memory(worker: WorkerContext, job: MeasureMemory) -> MemoryMeasured:
    """Measure peak resident bytes of a model beyond the idle process, and the time to reload it.

    The first load also loads the device's libraries, so that the second one is timed.
    """
    paths = {name: worker.files.path(file) for name, file in job.files.items()}
    model = paths.get("", paths) or worker.original
    usual, long = worker.store.usual_and_long(job.split)
    feeds = worker.store.pick(job.split, [usual if long is None else long])
    idle = _reset_peak()
    with worker.device.open(model, threads=job.threads) as session:
        session.run(feeds)
    peak = _peak_bytes()
    began = time.perf_counter()
    with worker.device.open(model, threads=job.threads):
        load_ms = 1e3 * (time.perf_counter() - began)
    return MemoryMeasured(max(0, peak - idle), round(load_ms, 3))


def _reset_peak() -> int:
    """Let the kernel forget the process's peak so far; return the resident bytes of now."""
    with contextlib.suppress(OSError):  # systems without it keep the peak of the set-up
        Path("/proc/self/clear_refs").write_text("5")
    return _peak_bytes()


def _peak_bytes() -> int:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

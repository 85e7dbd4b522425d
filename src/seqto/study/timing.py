"""Latency of plans: measured alone on the device, interleaved with the float model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqto.assembly.plan import Plan
from seqto.execution.executor import Done, Executor, expect, run_all
from seqto.execution.jobs import (
    MeasureMemory,
    MemoryMeasured,
    ModelSaved,
    SaveModel,
    Timed,
    TimePlans,
)
from seqto.execution.latency import median_interval
from seqto.records import Failure, Latency

# of sequences, in a latency's `extra`: tokens of the timed sample (the data's median), and tokens,
# milliseconds and ratio to float of a long one (95 % of the data are shorter)
TOKENS, LONG_TOKENS, LONG_MS, LONG_RATIO = "tokens", "long_tokens", "long_ms", "long_ratio"


MOST_TIMED = 16
TIMED_BYTES = 2e9  # of the candidates that are loaded at a time, which may all be float inside


def timed_together(model_bytes: int) -> int:
    """Return how many candidates are timed by turns, each of which may take the model's bytes."""
    return int(max(1, min(MOST_TIMED, TIMED_BYTES // max(1, model_bytes))))


@dataclass(frozen=True, slots=True)
class Timing:
    """Settings by which latency is measured."""

    threads: int = 0
    seconds: float = 1.0
    batch: int | None = None
    group: int = MOST_TIMED  # candidates that are interleaved with one float model


class Clock:
    """Asks one worker at a time; nothing else runs meanwhile."""

    def __init__(
        self,
        executor: Executor,
        timing: Timing,
        *,
        on_timed: Callable[[Done], None] = lambda _done: None,
    ) -> None:
        """`on_timed` is told of every timing, as it came from the executor."""
        self._executor, self.timing, self._on_timed = executor, timing, on_timed
        self._node = ""  # that has run the last timing

    def measure(self, plans: Sequence[Plan], *, float_plan: Plan | None) -> list[Latency | Failure]:
        """Return one latency a plan, beside one float session, or why it cannot be timed."""
        result = self._interleaved(plans, float_plan)
        if isinstance(result, Failure) and len(plans) > 1:  # one of them spoils it for the rest
            return [self.measure([p], float_plan=float_plan)[0] for p in plans]
        if isinstance(result, Failure):
            return [result]
        return [self._latency(result, i) for i in range(1, len(plans) + 1)]

    def footprints(self, plans: Sequence[Plan | None]) -> list[MemoryMeasured | Failure]:
        """Measure memory and load time of models, each in a process of its own.

        None: the file as it was given.
        """
        # assembled elsewhere, so that the memory of that is not counted
        assembled = [plan for plan in plans if plan is not None]
        saved = [
            expect(done, ModelSaved)
            for done in run_all(self._executor, [SaveModel(plan) for plan in assembled])
        ]
        by_key = {plan.key: one for plan, one in zip(assembled, saved, strict=True)}
        models = [ModelSaved({}) if plan is None else by_key[plan.key] for plan in plans]
        jobs = [
            MeasureMemory(model.files, threads=self.timing.threads)
            for model in models
            if isinstance(model, ModelSaved)
        ]
        measured = iter(run_all(self._executor, jobs, alone=True))
        outcomes = [
            model if isinstance(model, Failure) else expect(next(measured), MemoryMeasured)
            for model in models
        ]
        for one in by_key.values():
            for file in one.files.values() if isinstance(one, ModelSaved) else ():
                self._executor.files.discard(file)
        return outcomes

    def baseline(self, float_plan: Plan | None) -> Latency | Failure:
        result = self._interleaved([], float_plan)
        return result if isinstance(result, Failure) else self._latency(result, 0)

    def _latency(self, result: Timed, index: int) -> Latency:
        times, throughput = result.times_ms, result.throughput
        latency = latency_from(
            times[0],
            times[index],
            throughput=throughput[index] if throughput else None,
            batch=self.timing.batch,
            node=self._node,
            extra=result.figures[index] if result.figures else {},
        )
        if result.lengths is None or result.long_ms is None:
            return latency
        long = latency_from(result.long_ms[0], result.long_ms[index])
        usual_tokens, long_tokens = result.lengths
        extra = {
            TOKENS: usual_tokens,
            LONG_TOKENS: long_tokens,
            LONG_MS: long.median,
            LONG_RATIO: long.ratio,
        }
        return dataclasses.replace(latency, extra={**latency.extra, **extra})

    def _interleaved(self, plans: Sequence[Plan], float_plan: Plan | None) -> Timed | Failure:
        job = TimePlans(
            tuple(plans),
            float_plan,
            seconds=self.timing.seconds * (len(plans) + 1),
            threads=self.timing.threads,
            batch=self.timing.batch,
        )
        (done,) = run_all(self._executor, [job], alone=True)
        self._on_timed(done)
        self._node = str(done.node.get("name", ""))
        return expect(done, Timed)


def with_footprint(latency: Latency, measured: MemoryMeasured) -> Latency:
    return dataclasses.replace(
        latency, peak_memory_bytes=measured.peak_memory_bytes, load_ms=measured.load_ms
    )


def latency_from(
    float_ms: Sequence[float],
    candidate_ms: Sequence[float],
    *,
    throughput: float | None = None,
    batch: int | None = None,
    node: str = "",
    extra: Mapping[str, float] | None = None,
) -> Latency:
    """Return medians, and the ratio round by round: a busy second slows both of its runs."""
    ours = np.asarray(candidate_ms)
    low, middle, high = median_interval(ours / np.asarray(float_ms))
    return Latency(
        median=round(float(np.median(ours)), 4),
        p90=round(float(np.percentile(ours, 90)), 4),
        ratio=round(middle, 4),
        ratio_low=round(low, 4),
        ratio_high=round(high, 4),
        runs=len(ours),
        float_median=round(float(np.median(np.asarray(float_ms))), 4),
        throughput=None if throughput is None else round(throughput, 2),
        batch=batch,
        node=node,
        extra={name: round(value, 4) for name, value in (extra or {}).items()},
    )

"""Latency of plans: measured alone on the device, interleaved with the float model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqto.assembly.plan import Plan
from seqto.execution.local.pool import Pool
from seqto.records import CALIBRATION, Failure, Json, Latency


@dataclass(frozen=True, slots=True)
class Timing:
    """How latency is measured."""

    threads: int = 0
    seconds: float = 1.0
    batch: int | None = None
    group: int = 5  # candidates that are interleaved with one float model


class Clock:
    """Asks one worker at a time; nothing else runs meanwhile."""

    def __init__(self, pool: Pool, timing: Timing) -> None:
        self._pool, self.timing = pool, timing

    def measure(self, plans: Sequence[Plan], *, float_plan: Json | None) -> list[Latency | Failure]:
        """One latency a plan, beside one float session, or why it cannot be timed."""
        result = self._interleaved(plans, float_plan)
        if isinstance(result, Failure) and len(plans) > 1:  # one of them spoils it for the rest
            return [self.measure([p], float_plan=float_plan)[0] for p in plans]
        if isinstance(result, Failure):
            return [result]
        return [self._latency(result, i) for i in range(1, len(plans) + 1)]

    def baseline(self, float_plan: Json | None) -> Latency | Failure:
        result = self._interleaved([], float_plan)
        return result if isinstance(result, Failure) else self._latency(result, 0)

    def _latency(self, result: Json, place: int) -> Latency:
        times, throughput = result["times_ms"], result["throughput"]
        return latency_from(
            times[0],
            times[place],
            throughput=throughput[place] if throughput else None,
            batch=self.timing.batch,
        )

    def _interleaved(self, plans: Sequence[Plan], float_plan: Json | None) -> Json | Failure:
        job = {
            "kind": "latency",
            "float": float_plan,
            "plans": [p.to_json() for p in plans],
            "split": CALIBRATION,
            "threads": self.timing.threads,
            "seconds": self.timing.seconds * (len(plans) + 1),
            "min_rounds": 10,
            "max_rounds": 400,
            "batch": self.timing.batch,
        }
        (ticket,) = self._pool.map([job])
        return ticket.result or ticket.failure or Failure("time", "the device gave no times")


def latency_from(
    float_ms: Sequence[float],
    candidate_ms: Sequence[float],
    *,
    throughput: float | None = None,
    batch: int | None = None,
    peak_memory_bytes: int | None = None,
) -> Latency:
    """Medians, and the ratio round by round: a busy second slows both of its runs."""
    ours = np.asarray(candidate_ms)
    ratios = np.sort(ours / np.asarray(float_ms))
    n = len(ratios)
    # binomial bounds of the median: ranks n/2 ± 1.96·√n/2
    half = 1.96 * np.sqrt(n) / 2
    low, high = int(max(0, np.floor(n / 2 - half))), int(min(n - 1, np.ceil(n / 2 + half)))
    return Latency(
        median=round(float(np.median(ours)), 4),
        p90=round(float(np.percentile(ours, 90)), 4),
        ratio=round(float(np.median(ratios)), 4),
        ratio_low=round(float(ratios[low]), 4),
        ratio_high=round(float(ratios[high]), 4),
        runs=n,
        throughput=None if throughput is None else round(throughput, 2),
        batch=batch,
        peak_memory_bytes=peak_memory_bytes,
    )

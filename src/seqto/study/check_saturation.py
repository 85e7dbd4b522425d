"""Ask a worker whether the device adds int8 products exactly."""

from __future__ import annotations

from collections.abc import Mapping

from seqto.devices.saturation import EXACT, SATURATES, UNKNOWN, unknown
from seqto.execution.executor import Executor, expect, run_all
from seqto.execution.jobs import CheckSaturation, Figures
from seqto.records import Failure, Json


def ask(executor: Executor) -> Json:
    """Run `saturation.probe` in a worker: what ends the worker does not end the run."""
    (done,) = run_all(executor, [CheckSaturation()])
    outcome = expect(done, Figures)
    return unknown(outcome.message) if isinstance(outcome, Failure) else outcome.values


def ask_all(executors: Mapping[str, Executor]) -> Json:
    """Ask a worker of each device; of several, the worst result, and operators by device."""
    by_device = {name: ask(executor) for name, executor in executors.items()}
    if len(by_device) == 1:
        return next(iter(by_device.values()))
    results = [one["result"] for one in by_device.values()]
    reasons = [f"on {name}: {one['reason']}" for name, one in by_device.items() if one["reason"]]
    return {
        "result": next(r for r in (SATURATES, UNKNOWN, EXACT) if r in results),
        "operators": {
            f"{op} on {name}": what
            for name, one in by_device.items()
            for op, what in one["operators"].items()
        },
        "reason": "; ".join(reasons) or None,
    }

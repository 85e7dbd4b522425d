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
    found = expect(done, Figures)
    return unknown(found.message) if isinstance(found, Failure) else found.values


def ask_all(executors: Mapping[str, Executor]) -> Json:
    """Ask a worker of each device; of several, the worst result, and operators by device."""
    found = {name: ask(executor) for name, executor in executors.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    results = [one["result"] for one in found.values()]
    reasons = [f"on {name}: {one['reason']}" for name, one in found.items() if one["reason"]]
    return {
        "result": next(r for r in (SATURATES, UNKNOWN, EXACT) if r in results),
        "operators": {
            f"{op} on {name}": what
            for name, one in found.items()
            for op, what in one["operators"].items()
        },
        "reason": "; ".join(reasons) or None,
    }

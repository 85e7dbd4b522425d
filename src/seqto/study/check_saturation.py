"""Ask a worker whether the device adds int8 products exactly."""

from __future__ import annotations

from seqto.devices.saturation import unknown
from seqto.execution.executor import Executor, expect, run_all
from seqto.execution.jobs import CheckSaturation, Figures
from seqto.records import Failure, Json


def ask(executor: Executor) -> Json:
    """Run `saturation.probe` in a worker: what ends the worker does not end the run."""
    (done,) = run_all(executor, [CheckSaturation()])
    found = expect(done, Figures)
    return unknown(found.message) if isinstance(found, Failure) else found.values

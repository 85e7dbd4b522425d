"""Ask a worker whether the device adds int8 products exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqto.devices.saturation import unknown
from seqto.records import Json

if TYPE_CHECKING:
    from seqto.execution.local.pool import Pool


def ask(pool: Pool) -> Json:
    """`probe` in a worker: what ends the worker does not end the run."""
    (ticket,) = pool.map([{"kind": "saturation"}])
    if ticket.result is not None:
        return ticket.result
    return unknown(ticket.failure.message if ticket.failure else "no result")

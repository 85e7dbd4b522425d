"""The first run of a model that nobody has tried yet: in a process of its own, under a limit.

A model may hold a loop that never ends, or ask for more memory than there is. In the main process
neither a time limit nor Ctrl-C would end it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqto.data.store import SampleStore
from seqto.errors import ModelError
from seqto.execution.local.pool import Pool
from seqto.execution.local.worker_process import Channel
from seqto.model.compare import same_answers
from seqto.records import CALIBRATION, Json

ROWS = 4  # samples that both models are run on


def moved_answers(
    original: Path,
    prepared: Path,
    samples: Path,
    *,
    timeout_s: float,
    memory_bytes: int | None = None,
) -> float:
    """Return how far a prepared model's answers are from the original's, by the outputs' spread."""
    job = {"original": str(original), "prepared": str(prepared), "samples": str(samples)}
    target = f"{__name__}:serve"
    with Pool(target, {}, timeout_s=timeout_s, memory_bytes=memory_bytes) as pool:
        (ticket,) = pool.map([job])
    if ticket.failure is None and ticket.result is not None:
        return float(ticket.result["moved"])
    message = ticket.failure.message if ticket.failure else "no result"
    if ticket.failure and ticket.failure.stage == "timeout":
        message = (
            f"the float model does not answer within {timeout_s:g} s on {ROWS} samples: does it "
            "hold an endless loop? Raise device.timeout_s if it needs longer"
        )
    raise ModelError(message)


def compare_here(original: Path, prepared: Path, samples: Path) -> float:
    store = SampleStore.open(samples)
    feeds = store.batch(CALIBRATION, 0, store.feed_rows(ROWS))
    return same_answers(str(original), prepared.read_bytes(), feeds)


def serve(_setup: Json) -> Callable[[Json, Channel], Json]:
    """Return the handler of the worker's jobs."""

    def handle(job: Json, _channel: Channel) -> Json:
        moved = compare_here(Path(job["original"]), Path(job["prepared"]), Path(job["samples"]))
        return {"moved": moved}

    return handle

"""Constants of a model that nobody has tried yet are computed in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqto.execution.local.pool import Pool
from seqto.execution.local.worker_process import Channel
from seqto.model.fold import Optimize, optimize_here
from seqto.records import Json


def optimize_in_worker(timeout_s: float, memory_mb: int | None = None) -> Optimize:
    """Return an optimizer of model files that runs in a worker, under the limits."""
    memory_bytes = None if memory_mb is None else memory_mb * 1_000_000

    def optimize(source: Path, target: Path, *, large: bool) -> None:
        job: Json = {"source": str(source), "target": str(target), "large": large}
        name = f"{__name__}:serve"
        with Pool(name, {}, timeout_s=timeout_s, memory_bytes=memory_bytes) as pool:
            (ticket,) = pool.map([job])
        if ticket.failure is not None and ticket.failure.stage == "timeout":
            raise RuntimeError(
                f"what follows from its constants alone is not computed within {timeout_s:g} s; "
                "raise device.timeout_s if it needs longer"
            )
        failed = ticket.failure.message if ticket.failure else (ticket.result or {}).get("failed")
        if failed is not None:
            raise RuntimeError(failed)

    return optimize


def serve(_setup: Json) -> Callable[[Json, Channel], Json]:
    """Return the handler of the worker's jobs."""

    def handle(job: Json, _channel: Channel) -> Json:
        try:
            optimize_here(Path(job["source"]), Path(job["target"]), large=job["large"])
        except Exception as error:  # ORT raises many types without a root
            return {"failed": str(error)}
        return {"failed": None}

    return handle

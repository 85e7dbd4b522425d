"""Start the workers of a run."""

from __future__ import annotations

import os

from seqto.execution.local.pool import Pool
from seqto.study import workspace
from seqto.study.setup import Job


def open_pool(job: Job, place: workspace.Workplace) -> Pool:
    device = job.settings.device
    exclusive = getattr(job.device, "exclusive", False)  # one caller at a time
    return Pool(
        "seqto.execution.worker:serve",
        place.setup_json(job.device_json, max_opset=job.settings.constraints.max_opset),
        size=1 if exclusive else job.settings.search.jobs or os.cpu_count() or 1,
        timeout_s=device.timeout_s,
        memory_bytes=None if device.memory_mb is None else device.memory_mb * 1_000_000,
    )

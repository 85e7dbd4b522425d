"""A handler of jobs that sleeps: TryPlan(plan, batch) takes `batch` milliseconds.

A batch of CRASH ends the process as a segmentation fault would; one of HANG never ends.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

CRASH, HANG, HUGE = 1_000_001, 1_000_002, 1_000_003


def serve(_setup: Any) -> Any:
    def handle(job: Any, channel: Any) -> Any:
        batch = job["batch"]
        if batch == CRASH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if batch == HUGE:
            held = bytearray(400_000_000)
            time.sleep(60)
            del held
        time.sleep(3600 if batch == HANG else batch / 1000)
        return {"kind": "PlanRan"}

    return handle

"""Versions, CPU and operating system that a run's figures depend on."""

from __future__ import annotations

import contextlib
import os
import platform
from pathlib import Path

from seqto.model.float_session import runtime_version
from seqto.records import Json


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    try:
        return of("seqto")
    except PackageNotFoundError:
        return "0+source"


def environment() -> Json:
    """Return versions and the CPU: what a figure depends on beside the model."""
    import numpy
    import onnx

    flags: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith(("flags", "Features")):
                flags = line.split(":", 1)[1].split()
                break
    families = ("sse4", "avx", "vnni", "amx", "neon", "asimd", "sve", "fma", "f16c", "i8mm")
    return {
        "seqto": version(),
        "python": platform.python_version(),
        "onnx": onnx.__version__,
        "onnxruntime": runtime_version(),
        "numpy": numpy.__version__,
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "cpu_flags": sorted(f for f in flags if any(w in f for w in families)),
        "cores": os.cpu_count(),
        "threads": os.cpu_count(),
    }

"""seqto: selective post-training quantization of ONNX models, measured on your device."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# onnxruntime reads this when it is loaded. Without it, 1.31 writes an id and a database into the
# user's cache folder and looks up its maker's servers; `disable_telemetry_events()` comes too late.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from seqto.api import Result, tune
    from seqto.assembly.plan import Plan
    from seqto.data.data import Data
    from seqto.devices.device import Device, Session
    from seqto.errors import (
        ConfigError,
        DataError,
        DeviceError,
        JournalError,
        ModelError,
        PlanError,
        SeqtoError,
    )
    from seqto.record.trial import Trial
    from seqto.records import Layer, Measurement
    from seqto.schemes.scheme import Scheme
    from seqto.search.strategy import Need, Strategy
    from seqto.tasks.task import Task

_ERRORS = (
    "ConfigError",
    "DataError",
    "DeviceError",
    "JournalError",
    "ModelError",
    "PlanError",
    "SeqtoError",
)
_HOMES = {
    "tune": "seqto.api",
    "Result": "seqto.api",
    "Data": "seqto.data.data",
    "Device": "seqto.devices.device",
    "Session": "seqto.devices.device",
    "Layer": "seqto.records",
    "Measurement": "seqto.records",
    "Need": "seqto.search.strategy",
    "Plan": "seqto.assembly.plan",
    "Scheme": "seqto.schemes.scheme",
    "Strategy": "seqto.search.strategy",
    "Task": "seqto.tasks.task",
    "Trial": "seqto.record.trial",
    **dict.fromkeys(_ERRORS, "seqto.errors"),
}

__all__ = [
    "ConfigError",
    "Data",
    "DataError",
    "Device",
    "DeviceError",
    "JournalError",
    "Layer",
    "Measurement",
    "ModelError",
    "Need",
    "Plan",
    "PlanError",
    "Result",
    "Scheme",
    "SeqtoError",
    "Session",
    "Strategy",
    "Task",
    "Trial",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Loaded on first use: `import seqto` loads neither numpy nor onnx nor onnxruntime."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seqto' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

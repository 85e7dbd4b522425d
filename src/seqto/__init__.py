"""seqto: selective post-training quantization of ONNX models, measured on your device."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# onnxruntime reads this when it is loaded. Without it, 1.31 writes an id and a database into the
# user's cache folder and looks up its maker's servers; `disable_telemetry_events()` comes too late.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from seqto.contracts import (
        Data,
        Device,
        Layer,
        Measurement,
        Plan,
        Result,
        Scheme,
        Session,
        Strategy,
        Task,
        Trial,
    )
    from seqto.errors import (
        ConfigError,
        DataError,
        DeviceError,
        JournalError,
        ModelError,
        PlanError,
        SeqtoError,
    )
    from seqto.tune import tune

_CONTRACTS = (
    "Data",
    "Device",
    "Layer",
    "Measurement",
    "Plan",
    "Result",
    "Scheme",
    "Session",
    "Strategy",
    "Task",
    "Trial",
)
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
    "tune": "seqto.tune",
    **dict.fromkeys(_CONTRACTS, "seqto.contracts"),
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

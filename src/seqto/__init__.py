"""seqto: selective post-training quantization of ONNX models, measured on your device.

The public names: one function per command, the error tree, and what plug-in authors need.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# onnxruntime reads this when it is loaded. Without it, 1.31 writes an id and a database into the
# user's cache folder and looks up its maker's servers; `disable_telemetry_events()` comes too late.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from seqto.api import (
        Applied,
        Pushed,
        Result,
        Results,
        SavedModel,
        analyze,
        analyze_models,
        apply,
        check,
        compare,
        diagnose,
        diagnose_models,
        dry_run,
        export,
        export_with_card,
        init,
        inspect,
        list_devices,
        picks,
        push,
        quantize,
        read_report,
        read_sensitivities,
        run_demo,
        serve,
        status,
        tune,
        tune_models,
        write_report,
    )
    from seqto.assembly.plan import Plan
    from seqto.data.data import Data
    from seqto.devices.device import Device, MeasuringSession, Session
    from seqto.errors import (
        ConfigError,
        DataError,
        DeviceError,
        JournalError,
        ModelError,
        PlanError,
        SeqtoError,
    )
    from seqto.model.sources.source import Fetched, Source
    from seqto.record.trial import Trial
    from seqto.records import InputSpec, Layer, Measurement, Sample, ScoreKind
    from seqto.report.notebook import NotebookProgress
    from seqto.schemes.scheme import Scheme
    from seqto.search.space import Space
    from seqto.search.strategy import Ask, Need, Strategy
    from seqto.study.check import Checked
    from seqto.tasks.task import Task

_MODULES = {
    "seqto.api": (
        *("Result", "SavedModel", "tune", "analyze", "diagnose", "quantize", "export", "compare"),
        *("Applied", "Results", "apply", "check", "dry_run", "init", "list_devices", "run_demo"),
        *("analyze_models", "diagnose_models", "tune_models"),
        *("read_report", "read_sensitivities", "serve", "write_report"),
        *("Pushed", "export_with_card", "push", "inspect", "picks", "status"),
    ),
    "seqto.assembly.plan": ("Plan",),
    "seqto.data.data": ("Data",),
    "seqto.devices.device": ("Device", "MeasuringSession", "Session"),
    "seqto.errors": (
        *("ConfigError", "DataError", "DeviceError", "JournalError"),
        *("ModelError", "PlanError", "SeqtoError"),
    ),
    "seqto.model.sources.source": ("Fetched", "Source"),
    "seqto.record.trial": ("Trial",),
    "seqto.records": ("InputSpec", "Layer", "Measurement", "Sample", "ScoreKind"),
    "seqto.report.notebook": ("NotebookProgress",),
    "seqto.schemes.scheme": ("Scheme",),
    "seqto.search.space": ("Space",),
    "seqto.search.strategy": ("Ask", "Need", "Strategy"),
    "seqto.study.check": ("Checked",),
    "seqto.tasks.task": ("Task",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Applied",
    "Ask",
    "Checked",
    "ConfigError",
    "Data",
    "DataError",
    "Device",
    "DeviceError",
    "Fetched",
    "InputSpec",
    "JournalError",
    "Layer",
    "Measurement",
    "MeasuringSession",
    "ModelError",
    "Need",
    "NotebookProgress",
    "Plan",
    "PlanError",
    "Pushed",
    "Result",
    "Results",
    "Sample",
    "SavedModel",
    "Scheme",
    "ScoreKind",
    "SeqtoError",
    "Session",
    "Source",
    "Space",
    "Strategy",
    "Task",
    "Trial",
    "analyze",
    "analyze_models",
    "apply",
    "check",
    "compare",
    "diagnose",
    "diagnose_models",
    "dry_run",
    "export",
    "export_with_card",
    "init",
    "inspect",
    "list_devices",
    "picks",
    "push",
    "quantize",
    "read_report",
    "read_sensitivities",
    "run_demo",
    "serve",
    "status",
    "tune",
    "tune_models",
    "write_report",
]


def __getattr__(name: str) -> Any:
    """Load a name on first use: `import seqto` loads neither numpy nor onnx nor onnxruntime."""
    if name not in _HOMES:
        raise AttributeError(f"module 'seqto' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

"""Objectives: how each is read from a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from seqto.records import Json

OBJECTIVES = ("loss", "size", "latency", "accuracy_drop")


def figure_of(trial: Mapping[str, Any], objective: str, baseline: Json | None) -> float | None:
    """A trial's figure for one objective, lower is better; None when it was not measured."""
    if trial["error"] is not None or trial["stopped_early"] or trial["loss"] is None:
        return None
    value: float | None = None
    if objective == "loss":
        value = trial["loss"]["value"]
    elif objective == "size":
        value = trial["size_bytes"] or None
    elif objective == "latency" and trial["latency_ms"]:
        # the ratio is measured against float in the same rounds, so drift of the machine's
        # speed between trials cancels out; the median would carry it
        value = trial["latency_ms"]["ratio"]
    elif objective == "accuracy_drop" and trial["accuracy"] is not None:
        before = trial["baseline_accuracy"]
        if before is None and baseline is not None:
            before = baseline["accuracy"]
        value = before - trial["accuracy"] if before is not None else None
    return value if value is not None and math.isfinite(value) else None

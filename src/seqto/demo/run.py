"""The embedded example: a MobileNetV2-style net on Fashion-MNIST (demo/CARD.md)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from seqto import config
from seqto.model.sources.source import Fetched
from seqto.study.setup import RunSetup, make_setup

SETTINGS: dict[str, Any] = {
    "data": {
        "calibration": 200,
        "evaluation": 1000,
        "report": 1000,
        "preprocess": {"preset": "fashion-mnist"},
    },
    "search": {"strategy": "frontier", "max_minutes": 1.5},
    "device": {"latency_s": 0.3},
}


def demo_setup(out: Path, overrides: Mapping[str, Any]) -> RunSetup:
    """Set up the demo with the settings that the user changes."""
    files = resources.files("seqto.demo")
    model = Path(str(files / "fashion_mobilenet.onnx"))
    arrays = Path(str(files / "fashion_mnist.npz"))
    tables = {**SETTINGS, "model": {"path": str(model)}}
    tables["data"] = {**SETTINGS["data"], "arrays": str(arrays)}
    settings = config.make(tables, overrides)
    fetched = Fetched("fashion-mobilenet", str(model), {"kind": "demo"})
    return make_setup(fetched, out, settings)

"""Settings of onnxruntime.quantization that peers.py tries; read by its environment and ours."""

from __future__ import annotations

from typing import Any

STOCK_MODES: dict[str, dict[str, Any]] = {
    "tensor s8/s8": {"activation": "QInt8"},
    "tensor u8/s8": {},
    "channel s8/s8": {"activation": "QInt8", "per_channel": True},
    "channel u8/s8": {"per_channel": True},
    "channel u8/s8, 7 bits": {"per_channel": True, "reduce_range": True},
    "channel u8/u8": {"per_channel": True, "weight": "QUInt8"},
    "channel u8/s8, entropy": {"per_channel": True, "calibrate": "Entropy"},
    "channel u8/s8, percentile": {"per_channel": True, "calibrate": "Percentile"},
    "dynamic u8": {},
}

"""A Concat of boxes and scores is named, with its ranges and what keeping it float gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nets
from net_builder import Net
from seqto import diagnose

pytestmark = pytest.mark.usefixtures("inline")


def joined_net(scale: float) -> Any:
    """Return scores of 0 to 1 and boxes of 0 to `scale` in one tensor."""
    net = Net(seed=4)
    x = net.add("Relu", [net.conv("x", (3, 8))])
    scores = net.add("Sigmoid", [net.conv(x, (8, 4))])
    boxes = net.add("Sigmoid", [net.conv(x, (8, 4))])
    factor = net.constant(np.array(scale, np.float32))
    net.add("Concat", [net.add("Mul", [boxes, factor]), scores], axis=1, output="y")
    return net.model({"x": ["N", 3, nets.SIDE, nets.SIDE]}, {"y": ["N", 8, nets.SIDE, nets.SIDE]})


def findings(folder: Path, scale: float) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = diagnose(
        nets.save(joined_net(scale), folder / "net.onnx"),
        out=folder / "run",
        data=[*nets.pictures(24)],
        data__calibration=8,
        data__evaluation=8,
        task__kind="dense",
    )
    return [f for f in found if f["figures"].get("cause") == "joins"]


def test_a_join_of_unlike_ranges_is_named_with_its_cure(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, 640.0)
    assert "Concat" in found["layers"][0]
    assert "less than one of its 256 steps is left for the narrowest" in found["message"]
    assert "kept float" in found["message"]
    (row,) = found["figures"]["joins"]
    widths = sorted(high - low for low, high in row["ranges"])
    assert widths[0] <= 1.0
    assert widths[1] > 100
    assert row["step"] == pytest.approx(max(h for _, h in row["ranges"]) / 255, rel=0.02)


def test_a_join_of_like_ranges_is_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, 1.0) == []

"""Layers inside the branches of control flow run as they are, and the run says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import nets
from seqto import tune
from seqto.model.layers import branch_nodes


def test_layers_inside_branches_are_found() -> None:
    assert len(branch_nodes(nets.conditional())) == 2
    assert branch_nodes(nets.residual()) == []


@pytest.mark.usefixtures("inline")
def test_a_run_says_that_layers_in_branches_stay_float(tmp_path: Path) -> None:
    report = tune(
        nets.save(nets.conditional(), tmp_path / "net.onnx"),
        out=tmp_path / "run",
        data=[*nets.pictures(24)],
        data__calibration=6,
        data__evaluation=12,
        search__max_trials=1,
        search__strategy="stepwise",
        analysis__diagnose=False,
        device__latency_s=0.01,
    ).report
    said = [f for f in report["findings"] if "branches of If" in f["message"]]
    assert len(said) == 1
    assert len(said[0]["layers"]) == 2

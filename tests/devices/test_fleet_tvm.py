"""One search on two devices of different kinds: ONNX Runtime beside TVM over RPC."""

from __future__ import annotations

from pathlib import Path

import pytest
from tvm_rooms import tvm_test

import runs
from seqto import api
from seqto.records import EVALUATION

pytestmark = pytest.mark.usefixtures("no_server_outlives_the_tests")


@tvm_test
def test_a_search_on_ort_and_tvm_has_the_figures_of_both(tmp_path: Path) -> None:
    config = runs.write_config(tmp_path, batch=1)
    devices = [
        {"name": "here", "latency_s": 0.02},
        {"kind": "tvm", "name": "board", "latency_s": 0.02},
    ]
    result = api.tune(
        config=config,
        out=tmp_path / "run",
        device=devices,
        search__jobs=1,
        search__max_trials=3,
        search__objectives=["loss", "size", "latency"],
    )
    assert len(result.trials) == 3
    for trial in result.trials:
        assert trial.error is None
        assert set(trial.measurements[EVALUATION].devices) == {"here", "board"}
    picked = result.trials[result.recommended["balanced"]]
    assert picked.latency is not None
    assert set(picked.latency.devices) == {"here", "board"}
    names = [one["name"] for one in result.report["device"]["devices"]]
    assert names == ["here", "board"]

"""A device that is a resource of some nodes: its jobs run there, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import runs
from conftest import Nodes
from seqto import tune
from seqto.errors import SeqtoError

pytestmark = pytest.mark.ray

TIMED = runs.CONFIG.replace('"size"]', '"size", "latency"]')


def on(nodes: Nodes, **more: Any) -> dict[str, Any]:
    given = {"executor__kind": "ray", "executor__address": nodes.address, "search__jobs": 0}
    return {**given, "search__max_trials": 3, **more}


def node_names(result: Any) -> tuple[set[str], set[str]]:
    """Return the nodes that judged and those that timed."""
    trials = result.report["trials"]
    timed = {t["latency_ms"]["node"] for t in trials if t["latency_ms"]}
    return {t["node"] for t in trials}, timed


def test_device_jobs_run_on_the_node_that_has_the_device(own_nodes: Nodes, tmp_path: Path) -> None:
    own_nodes.add()
    own_nodes.add(seqto_device_pixel=1)
    config = runs.write_config(tmp_path, text=TIMED)
    result = tune(config=config, out=tmp_path / "ray", **on(own_nodes, executor__resource="pixel"))
    judged, timed = node_names(result)
    assert len(judged) == 1, "one node has the device"
    assert timed == judged


def test_two_equal_devices_share_the_work(own_nodes: Nodes, tmp_path: Path) -> None:
    own_nodes.add()
    for _ in range(2):
        own_nodes.add(seqto_device_pixel=1)
    config = runs.write_config(tmp_path, text=runs.CONFIG)
    given = on(own_nodes, executor__resource="pixel", search__max_trials=8)
    result = tune(config=config, out=tmp_path / "ray", **given)
    judged, _ = node_names(result)
    assert len(judged) == 2


def test_a_resource_that_no_node_has_is_named(own_nodes: Nodes, tmp_path: Path) -> None:
    own_nodes.add()
    config = runs.write_config(tmp_path)
    with pytest.raises(SeqtoError, match="no node has the resource 'seqto_device_pixel'"):
        tune(config=config, out=tmp_path / "ray", **on(own_nodes, executor__resource="pixel"))

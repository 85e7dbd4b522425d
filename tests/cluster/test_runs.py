"""Whole runs on a cluster of three nodes give what one machine gives."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from replaying import Clocked

import nets
import runs
from conftest import Nodes, wait_until
from ready import ready
from seqto import tune
from seqto.errors import DeviceError
from seqto.execution import jobs
from seqto.execution.executor import run_all
from seqto.execution.local.executor import LocalExecutor
from seqto.execution.ray.executor import ClusterSettings, RayCluster
from seqto.record.own_files import JOURNAL
from seqto.study import open_executor

pytestmark = pytest.mark.ray

FRONTIER = runs.CONFIG.replace('strategy = "stepwise"', 'strategy = "frontier"')
SLOW = runs.CONFIG.replace("evaluation = 60", "evaluation = 400").replace("jobs = 2", "jobs = 0")


def slow_config(folder: Path, **more: Any) -> Path:
    """Return a run that takes long enough to be interrupted."""
    config = runs.write_config(folder, text=SLOW, **more)
    nets.save_samples(folder / "samples.npz", 450, model=nets.residual(uneven=True))
    return config


def essence(folder: Path) -> Any:
    return runs.essence(json.loads((folder / "report.json").read_text()))


def command(config: Path, out: Path, *words: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "seqto",
        "tune",
        "--config",
        str(config),
        "--out",
        str(out),
        *words,
    ]


def on_ray(nodes: Nodes) -> list[str]:
    return ["--executor", "ray", "--set", f"executor.address={nodes.address}", "--jobs", "0"]


def given(nodes: Nodes) -> dict[str, Any]:
    return {"executor__kind": "ray", "executor__address": nodes.address, "search__jobs": 0}


def left_behind() -> list[str]:
    folders = Path(tempfile.gettempdir()).glob("seqto-*")
    return [p.name for p in folders if p.name.startswith(("seqto-ray-", "seqto-head-"))]


def test_a_run_gives_the_same_trials_losses_and_files(nodes: Nodes, tmp_path: Path) -> None:
    # a fixed batch: a clock would choose one
    config = runs.write_config(tmp_path, text=FRONTIER, batch=4)
    tune(config=config, out=tmp_path / "local")
    result = tune(config=config, out=tmp_path / "ray", **given(nodes))
    assert essence(tmp_path / "ray") == essence(tmp_path / "local")
    report = result.report
    # it ends early: the smallest plan of the first round loses nothing, so nothing is left to gain
    assert any(t["note"].startswith("round ") for t in report["trials"])
    assert min(report["trials"], key=lambda t: t["size_bytes"])["loss"]["value"] == 0
    assert {t["node"] for t in report["trials"]} <= set(report["nodes"])
    assert len(report["nodes"]) == 3, "all nodes have worked"
    for about in report["nodes"].values():
        assert about["onnxruntime"] == report["environment"]["onnxruntime"]
        assert about["cpu_flags"] == report["environment"]["cpu_flags"]
    wait_until(lambda: not left_behind(), seconds=20)


def test_with_the_timings_of_the_first_run_a_timed_run_is_the_same(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = runs.write_config(tmp_path, text=FRONTIER.replace('"size"]', '"size", "latency"]'))
    record: dict[str, list[Any]] = {}
    monkeypatch.setattr(
        open_executor,
        "LocalExecutor",
        lambda *a, **k: Clocked(LocalExecutor(*a, **k), record, replay=False),
    )
    tune(config=config, out=tmp_path / "local")
    assert {json.loads(key)["kind"] for key in record} >= {"TimePlans", "ProfilePlan"}
    opened = RayCluster.executor
    monkeypatch.setattr(
        RayCluster, "executor", lambda *a, **k: Clocked(opened(*a, **k), record, replay=True)
    )
    tune(config=config, out=tmp_path / "ray", **given(nodes))
    assert essence(tmp_path / "ray") == essence(tmp_path / "local")


def test_latency_names_the_node_that_timed_it(nodes: Nodes, tmp_path: Path) -> None:
    text = runs.CONFIG.replace('"size"]', '"size", "latency"]')
    config = runs.write_config(tmp_path, text=text)
    result = tune(config=config, out=tmp_path / "ray", **given(nodes), search__max_trials=2)
    timed = [t["latency_ms"]["node"] for t in result.report["trials"] if t["latency_ms"]]
    assert timed
    assert set(timed) <= set(result.report["nodes"])


def test_a_killed_driver_leaves_nothing_and_the_run_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    """Killed twice with -9: resumed on the cluster, then on this machine."""
    config = slow_config(tmp_path, batch=4)
    tune(config=config, out=tmp_path / "local")
    out = tmp_path / "ray"
    for trials in (1, 3):
        process = subprocess.Popen(
            command(config, out, *on_ray(nodes), "-q"), env=runs.environment(), text=True
        )
        wait_until(lambda n=trials, p=process: _trials(out) >= n or p.poll() is not None)
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        wait_until(lambda: not [a for n in range(3) for a in nodes.actors(n)])
        wait_until(lambda: not left_behind(), seconds=20)
    tune(config=config, out=out)
    assert essence(out) == essence(tmp_path / "local")


def _trials(out: Path) -> int:
    with contextlib.suppress(OSError):
        return (out / JOURNAL).read_text().count('"event":"trial"')
    return 0


def test_a_shared_folder_carries_the_files(nodes: Nodes, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    settings = ClusterSettings(nodes.address, folder=str(shared))
    with ready(tmp_path) as (setup, files, plan):
        with (
            RayCluster(settings) as cluster,
            contextlib.closing(cluster.executor(setup, files)) as ray,
        ):
            (saved,) = run_all(ray, [jobs.SaveModel(plan)])
            assert list(shared.glob("seqto-ray-*/*")), "files went through the folder"
            (memory,) = run_all(ray, [jobs.MeasureMemory(saved.outcome.files)], alone=True)
        assert memory.outcome.peak_memory_bytes > 0
        with contextlib.closing(LocalExecutor(setup, files)) as local:
            (here,) = run_all(local, [jobs.SaveModel(plan)])
        assert _hashes(here) == _hashes(saved)
    assert not list(shared.iterdir())


def _hashes(done: Any) -> list[str]:
    return [ref.sha256 for ref in done.outcome.files.values()]


def test_workers_with_other_versions_or_cpus_are_refused(nodes: Nodes, tmp_path: Path) -> None:
    settings = ClusterSettings(nodes.address)
    with ready(tmp_path) as (setup, files, plan):
        for worker, reason in (
            ("actors:OtherVersionWorker", r"it has onnxruntime 1\.2\.3, here is"),
            ("actors:OtherCpuWorker", r"its CPU is another.*executor\.other_cpus"),
        ):
            with (
                RayCluster(settings, worker=worker) as cluster,
                pytest.raises(DeviceError, match=reason),
            ):
                cluster.executor(setup, files)
        allowed = ClusterSettings(nodes.address, other_cpus="loss")
        with (
            RayCluster(allowed, worker="actors:OtherCpuWorker", interval_s=0.5) as cluster,
            contextlib.closing(cluster.executor(setup, files)) as ray,
        ):
            (done,) = run_all(ray, [jobs.TryPlan(plan, 1)])
            assert done.outcome == jobs.PlanRan()
            (timed,) = run_all(ray, [jobs.TimePlans((plan,), None, 0.01)], alone=True)
            assert timed.outcome.stage == "time"
            assert "no worker has this machine's type of CPU" in timed.outcome.message


def test_a_cluster_of_this_machine_listens_on_loopback_only_and_says_nothing(
    tmp_path: Path,
) -> None:
    config = slow_config(tmp_path)
    process = subprocess.Popen(
        command(config, tmp_path / "out", "--executor", "ray", "--json", "--jobs", "2"),
        env={**runs.environment(), "HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    (tmp_path / "home").mkdir()
    wait_until(lambda: _trials(tmp_path / "out") or process.poll() is not None)
    listening = [
        connection.laddr.ip
        for child in psutil.Process(process.pid).children(recursive=True)
        for connection in _connections(child)
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening
    assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}
    names = [p.name() for p in psutil.Process(process.pid).children(recursive=True)]
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert [json.loads(line) for line in out.splitlines()]
    assert err == ""
    # plots keep their fonts there; Ray would keep its logs and its configuration
    assert not [p for p in (tmp_path / "home").rglob("*") if "ray" in p.name.lower()]
    assert not [n for n in names if n == "ray::DashboardHead"]
    wait_until(lambda: not left_behind(), seconds=20)


def _connections(process: psutil.Process) -> list[Any]:
    with contextlib.suppress(psutil.Error):
        return list(process.net_connections("inet"))
    return []


def test_ctrl_c_ends_the_run_and_the_cluster(nodes: Nodes, tmp_path: Path) -> None:
    config = slow_config(tmp_path)
    process = subprocess.Popen(
        command(config, tmp_path / "out", *on_ray(nodes), "-q"),
        env=runs.environment(),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=runs.hears_ctrl_c,  # noqa: PLW1509
    )
    wait_until(lambda: _trials(tmp_path / "out") or process.poll() is not None)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1:]) == (
        130,
        ["seqto: interrupted; the same command continues the run"],
    )
    assert time.monotonic() - began < 30
    wait_until(lambda: not left_behind(), seconds=20)
    assert os.path.isfile(tmp_path / "out" / "report.json")


def test_several_models_run_side_by_side(nodes: Nodes, tmp_path: Path) -> None:
    config = runs.write_config(tmp_path, batch=4)
    tune(config=config, out=tmp_path / "local")
    models = tmp_path / "models"
    models.mkdir()
    good = (tmp_path / "net.onnx").read_bytes()
    for name, content in (("a", good), ("b", good), ("broken", b"no model")):
        (models / f"{name}.onnx").write_bytes(content)
    paths = [str(p) for p in sorted(models.iterdir())]
    done = runs.command(
        *("tune", *paths, "--config", config, "--out", tmp_path / "out", *on_ray(nodes))
    )
    assert done.returncode == 4, done.stderr
    for name in "ab":
        assert essence(tmp_path / "out" / name) == essence(tmp_path / "local")
    assert [x for x in done.stderr.splitlines() if "broken" in x]
    assert "b/report.html" in (tmp_path / "out" / "index.html").read_text()

"""Runs that are recorded in MLflow: a file store on this disk, read back by MLflow's client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import runs
import seqto
from finished_run import seqto as command
from hub_server import serve_hub
from seqto.errors import ConfigError
from seqto.publish.mlflow import check_tracker, metric_name

pytest.importorskip("mlflow")
SHORT = ("--max-trials", "3", "--jobs", "1", "-q")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MLFLOW_"):
            monkeypatch.delenv(name)
    # what the code sets is taken back after the test
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_ALLOW_FILE_STORE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")


def tune(folder: Path, *words: str | Path) -> tuple[int, str, str]:
    config = folder / "in" / "tune.toml"
    if not config.exists():
        runs.write_config(folder / "in", batch=1)
    return command("tune", "--config", config, "--out", folder / "run", *SHORT, *words)


def client_of(store: Path) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(store.absolute().as_uri())


def recorded(store: Path) -> tuple[Any, list[Any], list[Any]]:
    """Return MLflow's client, the runs of studies, and their children."""
    client = client_of(store)
    experiment = client.get_experiment_by_name("seqto")
    found = client.search_runs([experiment.experiment_id])
    studies = [r for r in found if "mlflow.parentRunId" not in r.data.tags]
    return client, studies, [r for r in found if r not in studies]


@pytest.mark.usefixtures("inline")
def test_a_study_is_one_run_with_a_child_for_each_recommended_trial(tmp_path: Path) -> None:
    store = tmp_path / "store"
    code, _, err = tune(tmp_path, "--mlflow", store)
    assert (code, err) == (0, "")
    report = seqto.read_report(tmp_path / "run")
    client, (study,), children = recorded(store)
    assert study.info.status == "FINISHED"
    assert study.data.params["strategy"] == "stepwise"
    history = client.get_metric_history(study.info.run_id, "loss")
    losses = {t["number"]: t["loss"]["value"] for t in report["trials"] if t["loss"]}
    assert {m.step: m.value for m in history} == losses
    names = {a.path for a in client.list_artifacts(study.info.run_id)}
    assert {"report.html", "report.json", "front.csv"} <= names
    assert {int(c.data.params["trial"]) for c in children} == set(report["recommended"].values())
    for child in children:
        trial = report["trials"][int(child.data.params["trial"])]
        assert child.data.tags["mlflow.parentRunId"] == study.info.run_id
        assert child.data.metrics["loss"] == trial["report_split"]["loss"]["value"]
        assert child.data.metrics["size_bytes"] == trial["size_bytes"]
        (model,) = client.list_artifacts(child.info.run_id, "model")
        loaded = client.download_artifacts(child.info.run_id, model.path, str(tmp_path))
        assert Path(loaded).stat().st_size == trial["size_bytes"]


@pytest.mark.usefixtures("inline")
def test_a_resumed_study_goes_on_in_its_run(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert tune(tmp_path, "--mlflow", store)[0] == 0
    assert tune(tmp_path, "--mlflow", store, "--max-trials", "5")[0] == 0
    client, (study,), children = recorded(store)
    steps = {m.step for m in client.get_metric_history(study.info.run_id, "loss")}
    assert steps == {0, 1, 2, 3, 4}
    report = seqto.read_report(tmp_path / "run")
    current = [c for c in children if c.data.tags["seqto.recommended"] == "yes"]
    numbers = [int(c.data.params["trial"]) for c in current]
    assert sorted(numbers) == sorted(set(report["recommended"].values()))


@pytest.mark.usefixtures("inline")
def test_a_tracker_that_is_down_does_not_end_a_study(tmp_path: Path) -> None:
    address = "http://me:secret@127.0.0.1:9"  # port 9: nobody listens
    code, _, err = tune(tmp_path, "--mlflow", address)
    assert code == 0
    assert err.count("\n") == 1
    assert "MLflow failed" in err
    assert "secret" not in err
    assert (tmp_path / "run" / "report.html").is_file()
    for file in (tmp_path / "run").rglob("*"):
        assert not file.is_file() or b"secret" not in file.read_bytes()


@pytest.mark.usefixtures("inline")
def test_a_server_that_answers_nonsense_does_not_end_a_study(tmp_path: Path) -> None:
    with serve_hub() as server:
        server.body = b"<html>not MLflow</html>"
        code, _, err = tune(tmp_path, "--mlflow", server.endpoint)
    assert code == 0
    assert err.count("\n") == 1
    assert "MLflow failed" in err


@pytest.mark.usefixtures("inline")
def test_the_address_may_come_from_its_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "store").as_uri())
    config = runs.write_config(tmp_path / "in", batch=1)
    seqto.tune(config=config, out=tmp_path / "run", mlflow="", search__max_trials=2)
    _, studies, _ = recorded(tmp_path / "store")
    assert len(studies) == 1


def test_without_an_address_one_line_says_so(tmp_path: Path) -> None:
    code, _, err = tune(tmp_path, "--mlflow")
    assert code == 2
    assert "MLFLOW_TRACKING_URI" in err
    assert not (tmp_path / "run").exists()


def test_without_mlflow_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    code, _, err = tune(tmp_path, "--mlflow", str(tmp_path / "store"))
    assert code == 2
    assert "seqto[mlflow]" in err
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("inline")
def test_a_study_that_is_refused_is_not_recorded(tmp_path: Path) -> None:
    code, _, _ = tune(
        tmp_path, "--mlflow", str(tmp_path / "store"), "--set", "data.evaluation=9999"
    )
    assert code == 2
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("address", "part"), [("net.onnx", "is a file"), ("nonsense://x", "no address that MLflow")]
)
def test_an_address_that_is_none_is_refused_before_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").write_bytes(b"a file")
    with pytest.raises(ConfigError, match=part):
        check_tracker(address)
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("name", ["mAP@0.5", "score_Größe", "a/../b", "x" * 400, "F1 (macro)"])
def test_names_of_scores_are_names_that_mlflow_takes(tmp_path: Path, name: str) -> None:
    client = client_of(tmp_path / "store")
    run = client.create_run(client.create_experiment("x"))
    client.log_metric(run.info.run_id, metric_name(name), 1.0)
    assert client.get_run(run.info.run_id).data.metrics == {metric_name(name): 1.0}


def test_mlflow_is_not_imported_where_it_is_not_asked_for() -> None:
    code = "import sys, seqto.api, seqto.cli.main; assert 'mlflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=runs.environment(), check=True)


TELEMETRY = """
from seqto.publish.mlflow import check_tracker
check_tracker("somewhere")
from mlflow.telemetry.client import get_telemetry_client
assert get_telemetry_client() is None
"""


@pytest.mark.slow  # imports the whole of MLflow in a process of its own
def test_its_telemetry_is_off() -> None:
    """Without our setting MLflow 3.17 makes a client here, which sends from a thread."""
    kept = ("PATH", "PYTHONPATH", "HOME")  # it is off by itself where CI or a test is seen
    environment = {k: v for k, v in runs.environment().items() if k in kept}
    subprocess.run([sys.executable, "-c", TELEMETRY], env=environment, check=True)

"""The examples do what their first line says; the own device as an installed plug-in."""

from __future__ import annotations

import functools
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

import nets
import runs
from seqto.testing.suites import check_device

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LARGEST_DEVICE = 45  # lines that say something


def example(name: str, folder: Path, *, argv: Any, capsys: Any) -> str:
    """Run it in this process, in which every warning is an error."""
    path = str(EXAMPLES / f"{name}.py")
    argv.setattr(sys, "argv", [path, str(folder)])
    runpy.run_path(path, run_name="__main__")
    printed = capsys.readouterr()
    assert printed.err == ""
    return str(printed.out)


@pytest.fixture
def run(inline: None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    return functools.partial(example, argv=monkeypatch, capsys=capsys)


def report_of(folder: Path) -> Any:
    return json.loads((folder / "run" / "report.json").read_text())


def test_own_task(run: Any, tmp_path: Path) -> None:
    assert "of readings change" in run("own_task", tmp_path)
    assert report_of(tmp_path)["recommended"]["balanced"] is not None


def test_an_own_task_takes_a_dozen_lines() -> None:
    text = (EXAMPLES / "own_task.py").read_text()
    body = text.split("class PeakReading:\n")[1].split("\n\n\n")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 12


def test_iterable_data(run: Any, tmp_path: Path) -> None:
    assert "item-7" in run("iterable_data", tmp_path)
    data = report_of(tmp_path)["data"]
    assert data["kind"] == "iterable"
    assert data["splits"] == {"calibration": 20, "evaluation": 60, "report": 69}


def test_own_strategy(run: Any, tmp_path: Path) -> None:
    lines = run("own_strategy", tmp_path).splitlines()
    assert [line.split(":")[0] for line in lines] == ["with conv", "with gemm"]
    plans = [trial["plan"] for trial in report_of(tmp_path)["trials"]]
    assert plans[0] == {"conv": "weight-s8-channel-round-output"}


@pytest.fixture
def own_device(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import own_device as found

    yield found
    sys.modules.pop("own_device", None)


def test_own_device_keeps_the_contract(own_device: Any) -> None:
    check_device(own_device.Reference())


def test_an_own_device_takes_few_lines() -> None:
    lines = (EXAMPLES / "own_device.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= LARGEST_DEVICE


def test_own_device_runs_as_an_installed_plug_in(tmp_path: Path) -> None:
    """What pip leaves of a package: its module and, beside it, the entry points it declares."""
    site, about = tmp_path / "site", tmp_path / "site" / "board-0.1.dist-info"
    about.mkdir(parents=True)
    (site / "own_device.py").write_text((EXAMPLES / "own_device.py").read_text())
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: board\nVersion: 0.1\n")
    (about / "entry_points.txt").write_text("[seqto.devices]\nreference = own_device:Reference\n")
    path = runs.write_config(tmp_path / "in")
    nets.save(nets.residual(), path.parent / "net.onnx")
    words = ["tune", "--config", path, "--out", tmp_path / "out", "-q", "--max-trials", "2"]
    done = runs.command(*words, "--device", "reference", "--set", "device.verbose=0", extra=[site])
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["device"]["name"] == "onnx-reference"
    assert [t["error"] for t in report["trials"]] == [None, None]
    assert all(t["latency_ms"] for t in report["trials"] if t["number"] in report["front"])
    wrong = [*words[:-3], "--device", "reference", "--set", "device.verbos=0"]
    refused = runs.command(*wrong, "-q", extra=[site])
    assert refused.returncode == 2
    assert "'verbose'" in refused.stderr

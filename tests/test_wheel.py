"""The wheel holds all that the demo needs and runs it from outside of the repository."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def run(*words: str | Path, cwd: Path, **more: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    finished = subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        env={**environment, **more},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = importlib.metadata.version("setuptools")
    if int(found.split(".")[0]) < 77:
        pytest.skip(f"setuptools 77 or newer builds the wheel, here is {found}")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # from a copy: building in place would leave build/ behind
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "-w", folder, source, cwd=folder)
    return next(folder.glob("seqto-*.whl"))


def test_the_wheel_holds_pages_and_demo_but_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = [
        "seqto/py.typed",
        "seqto/demo/fashion_mobilenet.onnx",
        "seqto/demo/fashion_mnist.npz",
        "seqto/report/assets/page.html",
        "seqto/report/assets/report.schema.json",
    ]
    assert not [n for n in needed if n not in names]
    assert any(n.endswith("licenses/LICENSE") for n in names)
    assert not [n for n in names if "test" in n and not n.startswith("seqto/testing/")]


def test_the_demo_runs_from_the_wheel_outside_of_the_repository(
    wheel: Path, tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    site = Path(
        run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=tmp_path).strip()
    )
    # the libraries of this environment, our package from the wheel alone
    unpacked = tmp_path / "unpacked"
    zipfile.ZipFile(wheel).extractall(unpacked)
    installed = importlib.metadata.distribution("numpy").locate_file("")
    (site / "all.pth").write_text(f"{unpacked}\n{installed}\n")
    place = run(python, "-c", "import seqto; print(seqto.__file__)", cwd=tmp_path).strip()
    assert place.startswith(str(unpacked))
    words = ["-m", "seqto", "demo", "--out", "demo", "--max-trials", "3"]
    printed = run(python, *words, cwd=tmp_path)
    report = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert report["counts"]["trials"] == 3
    assert report["baseline"]["accuracy"]
    assert "demo" in printed
    assert (tmp_path / "demo" / "plots" / "front.png").is_file()

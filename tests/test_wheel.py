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
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a package is built from, alone in a folder."""
    found = importlib.metadata.version("setuptools")
    if int(found.split(".")[0]) < 77:
        pytest.skip(f"setuptools 77 or newer builds the wheel, here is {found}")
    source = tmp_path_factory.mktemp("package") / "source"
    # from a copy: building in place would leave build/ behind
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    folder = source.parent
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "-w", folder, source, cwd=folder)
    return next(folder.glob("seqto-*.whl"))


@pytest.fixture(scope="module")
def sdist(source: Path, wheel: Path) -> Path:
    build = "import sys, setuptools.build_meta as b; b.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", build, source.parent, cwd=source)
    return next(source.parent.glob("seqto-*.tar.gz"))


def test_wheel_and_sdist_install_in_a_fresh_environment(
    wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    """With the locked packages, and nothing of this environment."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    asked = [str(w) for w in (*pip, "-c", ROOT / "requirements.lock", wheel)]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found = subprocess.run(asked, check=False, capture_output=True, text=True, env=clean)
    if "Could not find a version" in found.stderr:
        pytest.skip(f"no package index: {found.stderr.strip().splitlines()[-1]}")
    assert found.returncode == 0, found.stderr
    program = tmp_path / "venv" / "bin" / "seqto"
    model = ROOT / "src" / "seqto" / "demo" / "fashion_mobilenet.onnx"
    words = ["export", model, "--mode", "weight", "--json", "-o"]
    first = json.loads(run(program, *words, tmp_path / "a.onnx", cwd=tmp_path))
    run(python, "-m", "pip", "uninstall", "-q", "-y", "seqto", cwd=tmp_path)
    run(*pip, "--no-deps", sdist, cwd=tmp_path)
    second = json.loads(run(program, *words, tmp_path / "b.onnx", cwd=tmp_path))
    assert first["sha256"] == second["sha256"]
    heavy = {"mlflow", "mcp", "pydantic", "huggingface_hub", "ray", "pytest"}
    listed = run(python, "-m", "pip", "list", "--format", "freeze", cwd=tmp_path)
    assert not heavy & {line.split("==")[0] for line in listed.splitlines()}


def test_the_wheel_holds_pages_and_demo_but_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = [
        "seqto/py.typed",
        "seqto/demo/fashion_mobilenet.onnx",
        "seqto/demo/fashion_mnist.npz",
        "seqto/report/assets/page.html",
        "seqto/report/assets/report.schema.json",
        "seqto/report/assets/output.schema.json",
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

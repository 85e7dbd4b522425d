"""The Containerfile: linted, its steps run in a clean environment, built where a builder is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1].strip()) for line in lines]


def of(word: str) -> list[str]:
    return [rest for found, rest in instructions() if found == word]


def test_it_has_known_instructions_in_a_sound_order() -> None:
    words = [word for word, _ in instructions()]
    assert set(words) <= KNOWN
    assert words[0] == "FROM"
    assert words.index("USER") > max(i for i, w in enumerate(words) if w == "RUN")
    assert words[-2:] == ["ENTRYPOINT", "CMD"]


def test_the_image_is_of_a_fixed_version_and_a_python_that_is_supported() -> None:
    (image,) = of("FROM")
    assert re.fullmatch(r"docker\.io/library/python:3\.1[1-9]-slim", image)


def test_it_runs_as_a_user_without_rights() -> None:
    (user,) = of("USER")
    assert user not in ("root", "0")
    assert any(f"useradd --create-home --uid 1000 {user}" in run for run in of("RUN"))


def test_what_it_copies_is_there() -> None:
    for words in of("COPY"):
        for name in words.split()[:-1]:
            assert (ROOT / name).exists(), name


def test_it_runs_the_demo() -> None:
    (entry,), (command,) = of("ENTRYPOINT"), of("CMD")
    assert json.loads(entry) == ["seqto"]
    assert json.loads(command)[0] == "demo"


def copied(folder: Path) -> Path:
    """Return the files that the image has, alone in a folder."""
    source = folder / "source"
    source.mkdir(parents=True)
    for words in of("COPY"):
        *names, _ = words.split()
        for name in names:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
                shutil.copytree(ROOT / name, source / name, ignore=ignored)
            else:
                shutil.copy(ROOT / name, source)
    return source


@pytest.mark.slow
def test_its_steps_work_in_a_clean_environment(tmp_path: Path) -> None:
    source = copied(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    program = tmp_path / "venv" / "bin"
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    clean |= {"PATH": f"{program}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
    (install,) = [run for run in of("RUN") if "pip install" in run]
    done = subprocess.run(
        ["bash", "-c", install], cwd=source, env=clean, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    work = tmp_path / "work"
    work.mkdir()
    words = [*json.loads(of("ENTRYPOINT")[0]), *json.loads(of("CMD")[0]), "--max-trials", "3"]
    as_user = {}
    python = Path(sys.executable).resolve()
    reachable = all(folder.stat().st_mode & 0o001 for folder in python.parents)
    if os.geteuid() == 0 and reachable:  # as the image does: who owns the working folder alone
        for folder in [*tmp_path.parents, tmp_path]:
            if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
                folder.chmod(folder.stat().st_mode | 0o011)
        os.chown(work, 65534, 65534)
        as_user = {"user": 65534, "group": 65534, "extra_groups": []}
    demo = subprocess.run(
        [str(program / words[0]), *words[1:]],
        cwd=work,
        env={**clean, "HOME": str(work)},
        check=False,
        capture_output=True,
        text=True,
        **as_user,  # type: ignore[call-overload]
    )
    assert demo.returncode == 0, demo.stderr[-2000:]
    assert (work / "demo" / "report.html").is_file()


@pytest.mark.slow
def test_it_builds_where_a_builder_is(tmp_path: Path) -> None:
    builder = next((b for b in ("podman", "docker", "buildah") if shutil.which(b)), None)
    if builder is None:
        pytest.skip("neither podman nor docker nor buildah is installed")
    tag = "seqto-test"
    words = [builder, "build", "-t", tag, "-f", str(ROOT / "Containerfile"), str(ROOT)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{builder} cannot build here: {done.stderr.strip().splitlines()[-1:]}")
    found = subprocess.run(
        [builder, "run", "--rm", tag, "demo", "--out", "demo", "--max-trials", "3"], check=False
    )
    assert found.returncode == 0

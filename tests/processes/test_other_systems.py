"""A run where the facilities that only Linux has are missing: no /proc, no prctl, no waitid."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import runs
from seqto.record.replay import read_state

# in main and in every worker; what macOS lacks, and nothing that it has
BLOCK = """
import builtins, ctypes, io, os, pathlib

if hasattr(os, "waitid"):
    del os.waitid

def blocked(name):
    return isinstance(name, (str, os.PathLike)) and os.fspath(name).startswith("/proc")

def without(function):
    def call(name, *rest, **more):
        if blocked(name):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(name))
        return function(name, *rest, **more)
    return call

builtins.open = without(builtins.open)
io.open = without(io.open)
os.listdir = without(os.listdir)
exists = os.path.exists
os.path.exists = lambda name: not blocked(name) and exists(name)

class NoLibrary(ctypes.CDLL):
    def __getattr__(self, name):
        if name == "prctl":
            raise AttributeError(name)
        return super().__getattr__(name)

ctypes.CDLL = NoLibrary
"""


@pytest.mark.slow
def test_a_run_completes_without_what_only_linux_has(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCK)
    config = runs.write_config(tmp_path)
    out = tmp_path / "run"
    words = ["tune", "--config", str(config), "--out", str(out), "--quiet", "--max-trials", "3"]
    words += ["--set", "device.memory_mb=4000", "--objectives", "loss", "size", "latency"]
    environment = runs.environment()
    environment["PYTHONPATH"] = f"{tmp_path / 'site'}:{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "seqto", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    state = read_state(out / "journal.jsonl")
    assert len(state.trials) == 3
    assert all(t.error is None for t in state.trials.values())

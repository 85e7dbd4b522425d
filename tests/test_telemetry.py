"""onnxruntime's telemetry stays off: no file outside of what was asked for, no look-up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nets
import runs

PROGRAM = """
import sys, time
from pathlib import Path
import numpy as np
import seqto
if sys.argv[2] == "no":
    import os
    del os.environ["ORT_DISABLE_TELEMETRY"]
from seqto.devices.ort import Ort
session = Ort().open(Path(sys.argv[1]))
session.run({"x": np.zeros((1, 3, 10, 10), np.float32)})
time.sleep(0.5)
"""


def used_by_a_session(folder: Path, *, off: str, trace: bool = False) -> tuple[list[str], str]:
    """Files that a session leaves in fresh user folders, and the addresses it connects to."""
    model = nets.save(nets.residual(), folder / "net.onnx")
    home = folder / f"home-{off}"
    (home / "tmp").mkdir(parents=True)
    environment = {k: v for k, v in runs.environment().items() if not k.startswith("ORT_")}
    environment |= dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"), str(home))
    environment["TMPDIR"] = str(home / "tmp")
    log = folder / "calls.txt"
    watch = ["strace", "-f", "-e", "trace=connect,sendto", "-o", str(log)] if trace else []
    command = [*watch, sys.executable, "-c", PROGRAM, str(model), off]
    subprocess.run(command, env=environment, check=True, timeout=120)
    files = [str(p.relative_to(home)) for p in home.rglob("*") if p.is_file()]
    return files, log.read_text() if trace else ""


def test_a_session_leaves_nothing_in_the_users_folders(tmp_path: Path) -> None:
    left, _ = used_by_a_session(tmp_path, off="yes")
    assert left == []


def test_without_the_setting_this_onnxruntime_leaves_files(tmp_path: Path) -> None:
    """The test above can fail; when this one does, onnxruntime has changed."""
    import onnxruntime

    left, _ = used_by_a_session(tmp_path, off="no")
    if not left:
        pytest.skip(f"onnxruntime {onnxruntime.__version__} has no telemetry here")
    assert any("onnxruntime" in name or name.endswith(".ses") for name in left)


def test_a_session_connects_to_nothing(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    can = subprocess.run(["strace", "-o", os.devnull, "true"], check=False, capture_output=True)
    if can.returncode:
        pytest.skip("strace may not trace here")
    _, calls = used_by_a_session(tmp_path, off="yes", trace=True)
    assert "AF_INET" not in calls
    assert "nscd" not in calls


def test_workers_inherit_the_setting() -> None:
    import seqto  # noqa: F401

    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"

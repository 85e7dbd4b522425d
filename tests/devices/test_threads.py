"""Threads beyond what the system starts are one message; ORT alone would wait without an end."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import nets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits of a Linux process")

OPENS = """
import sys
from pathlib import Path
from seqto.devices.ort import Ort
from seqto.errors import DeviceError
try:
    with Ort().open(Path(sys.argv[1]), threads=int(sys.argv[2])):
        print("opened")
except DeviceError as error:
    print(error)
"""
LIMIT = 4 << 30  # bytes of address space: room for some hundreds of stacks


def opened(folder: Path, threads: int) -> str:
    """Return what a process with little address space says of a session with so many threads."""
    model = nets.save(nets.dense(), folder / "net.onnx")
    done = subprocess.run(
        [sys.executable, "-c", OPENS, str(model), str(threads)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.stdout + done.stderr


def test_more_threads_than_can_be_started_are_one_message(tmp_path: Path) -> None:
    said = opened(tmp_path, 4000)
    assert "4000 threads cannot be started here, only" in said
    assert "device.threads" in said
    assert said.count("\n") == 1


def test_some_more_threads_than_processors_are_started(tmp_path: Path) -> None:
    assert opened(tmp_path, (os.cpu_count() or 1) + 2) == "opened\n"

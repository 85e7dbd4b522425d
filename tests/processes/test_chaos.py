"""A small count of scripts/chaos: kills, crashes and full disks lose nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import runs

CHAOS = Path(__file__).resolve().parents[2] / "scripts" / "chaos"


@pytest.mark.slow
def test_kills_crashes_and_full_disks_lose_nothing() -> None:
    counts = ["--kills", "6", "--crashes", "2", "--full-disks", "2"]
    done = subprocess.run(
        [sys.executable, str(CHAOS), *counts],
        env=runs.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in ("kills 6", "crashes 2", "full disks 2", "trials lost 0", "results differing 0"):
        assert words in done.stdout

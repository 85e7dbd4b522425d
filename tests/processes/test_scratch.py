"""Temporary files of workers: gone with the pool, and swept when main was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import runs
from seqto.errors import JournalError
from seqto.execution.local.pool import Pool
from seqto.execution.local.scratch import PREFIX, Scratch
from seqto.files import temporary_folder

LEAVES_ONE = """\
import os, signal
from seqto.execution.local.scratch import Scratch
print(Scratch.make().folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_what_a_killed_worker_leaves_goes_with_the_pool(temporary: Path) -> None:
    with Pool("worker_targets:litter", {}) as pool:
        killed, alive = pool.map([{"killed": True}, {"killed": False}])
        assert killed.failure is not None
        assert alive.result is not None
        folder = Path(alive.result["folder"])
        assert folder.parent == temporary
        assert [p.name for p in folder.rglob("*.json")] == ["events.json"]  # it did leave some
    assert os.listdir(temporary) == []


def test_what_a_killed_main_leaves_is_removed_by_the_next(temporary: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", LEAVES_ONE],
        env={**runs.environment(), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    made = Scratch.make()
    assert os.listdir(temporary) == [made.folder.name]
    made.remove()
    assert os.listdir(temporary) == []


def test_folders_in_use_and_links_are_left_alone(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (temporary / f"{PREFIX}link").symlink_to(tmp_path / "mine")
    (temporary / f"{PREFIX}file").write_text("mine")
    (temporary / f"{PREFIX}folder").mkdir()  # of the user's: it has no mark
    first = Scratch.make()
    second = Scratch.make()
    assert first.folder.is_dir()
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
    assert (temporary / f"{PREFIX}file").read_text() == "mine"
    first.remove()
    second.remove()
    assert sorted(os.listdir(temporary)) == [f"{PREFIX}{n}" for n in ("file", "folder", "link")]


def test_without_a_place_for_temporary_files_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_place() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", no_place)
    with (
        pytest.raises(JournalError, match=r"cannot make a temporary folder: .*TMPDIR"),
        temporary_folder("seqto-fold-"),
    ):
        raise AssertionError("not reached")
    with pytest.raises(JournalError, match="cannot make a temporary folder"):
        Scratch.make()

"""Temporary folders: gone with their pool or block, and swept when their process was killed."""

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
from seqto.files import TemporaryFolder, temporary_folder

PREFIX = "seqto-workers-"
LEAVES_ONE = """\
import os, signal
from seqto.files import TemporaryFolder
print(TemporaryFolder.make("seqto-fold-").folder, flush=True)
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
    made = TemporaryFolder.make(PREFIX)
    assert os.listdir(temporary) == [made.folder.name]
    made.remove()
    assert os.listdir(temporary) == []


def test_folders_in_use_and_links_are_left_alone(temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (temporary / f"{PREFIX}link").symlink_to(tmp_path / "mine")
    (temporary / f"{PREFIX}file").write_text("mine")
    (temporary / f"{PREFIX}folder").mkdir()  # of the user's: it has no mark
    first = TemporaryFolder.make(PREFIX)
    second = TemporaryFolder.make(PREFIX)
    assert first.folder.is_dir()
    assert (tmp_path / "mine" / "notes.txt").read_text() == "mine"
    assert (temporary / f"{PREFIX}file").read_text() == "mine"
    first.remove()
    second.remove()
    assert sorted(os.listdir(temporary)) == [f"{PREFIX}{n}" for n in ("file", "folder", "link")]


def test_a_folder_that_cannot_be_used_is_one_line_and_is_not_left(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_handles(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "open", no_handles)
    with pytest.raises(JournalError, match=r"cannot use the temporary .*Too many open files"):
        TemporaryFolder.make(PREFIX)
    assert os.listdir(temporary) == []


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
        TemporaryFolder.make(PREFIX)

"""The one writer: whole or not at all, one line when it cannot, nothing left beside it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import runs
from seqto.errors import JournalError, ModelError, SeqtoError
from seqto.files import inside, replacing, sweep, write_file


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.bin"
    write_file(path, b"first")
    write_file(path, b"second")
    assert path.read_bytes() == b"second"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == ["file.bin"]


@pytest.mark.parametrize("broken", ["fsync", "replace", "chmod"])
def test_a_failure_at_any_step_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "file.bin"
    write_file(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises(JournalError, match=r"cannot write .*file\.bin.*No space left") as found:
            write_file(path, b"new")
    assert "\n" not in str(found.value)
    assert "free some space" in str(found.value)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file.bin"]


def test_an_interrupted_writer_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with replacing(tmp_path / "file.bin") as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


HALF_WRITTEN = """\
import os, signal, sys
from seqto.files import replacing
with replacing(sys.argv[1]) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def grow_old(path: Path) -> None:
    hours_ago = path.stat().st_mtime - 7200
    os.utime(path, (hours_ago, hours_ago))


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HALF_WRITTEN, str(tmp_path / "file.bin")],
        env=runs.environment(),
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    sweep(tmp_path)
    assert left.exists()  # new: a writer that has not locked it yet looks the same
    grow_old(left)
    sweep(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_being_written_is_not_swept(tmp_path: Path) -> None:
    with replacing(tmp_path / "file.bin") as stream:
        stream.write(b"whole")
        (unfinished,) = tmp_path.iterdir()
        grow_old(unfinished)
        sweep(tmp_path)
        assert unfinished.exists()
    assert (tmp_path / "file.bin").read_bytes() == b"whole"


def test_links_folders_and_other_names_are_not_swept(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".seqto-link").symlink_to(tmp_path / "mine")
    (tmp_path / ".seqto-folder").mkdir()
    (tmp_path / ".seqto-notes.txt").write_text("mine")
    (tmp_path / "a.seqto-abc").write_text("mine")
    before = sorted(os.listdir(tmp_path))
    for name in ("mine", ".seqto-notes.txt", "a.seqto-abc"):
        grow_old(tmp_path / name)
    sweep(tmp_path)
    sweep(tmp_path / "not there")
    assert sorted(os.listdir(tmp_path)) == before


def test_places_that_cannot_be_written_are_one_line_of_the_wanted_kind(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    places = ["folder", "file/x.onnx", "n" * 300, "a\0b"]
    for place in places:
        with pytest.raises(ModelError, match="cannot write") as found:
            write_file(tmp_path / place, b"data", error=ModelError)
        assert "\n" not in str(found.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "text"


def test_a_name_of_the_longest_length_can_be_written(tmp_path: Path) -> None:
    write_file(tmp_path / ("n" * 255), b"data")
    assert os.listdir(tmp_path) == ["n" * 255]


@pytest.mark.parametrize(
    "name", ["../x", "models/../../x", "/etc/x", "models/..", "..", "", "link/x", "models/link/x"]
)
def test_names_and_links_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    (run / "models").mkdir(parents=True)
    (run / "link").symlink_to(tmp_path)
    (run / "models" / "link").symlink_to("../../elsewhere")
    with pytest.raises(SeqtoError, match="outside"):
        inside(run, name)


def test_a_folder_that_is_reached_by_a_link_is_still_one_folder(tmp_path: Path) -> None:
    (tmp_path / "real" / "models").mkdir(parents=True)
    (tmp_path / "run").symlink_to("real")
    (tmp_path / "real" / "other").symlink_to("models")
    assert inside(tmp_path / "run", "models/a.onnx") == tmp_path / "run" / "models" / "a.onnx"
    inside(tmp_path / "run", "new/folder/a.onnx")
    inside(tmp_path / "run", "other/a.onnx")

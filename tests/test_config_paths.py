"""Relative paths in a config file begin in the folder of the path that was typed."""

from __future__ import annotations

from pathlib import Path

import pytest

import runs
from seqto.cli.main import main
from seqto.config import read_toml

TEXT = """
[model]
path = "net.onnx"

[data]
images = "../pictures"
labels = ["labels.csv"]
"""


def test_a_linked_config_reads_the_files_beside_the_link(tmp_path: Path) -> None:
    for name in ("shared", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared" / "tune.toml").write_text(TEXT)
    link = tmp_path / "project" / "tune.toml"
    link.symlink_to("../shared/tune.toml")
    tables = read_toml(link)
    assert tables["model"]["path"] == str(tmp_path / "project" / "net.onnx")
    assert tables["data"]["images"] == str(tmp_path / "pictures")


def test_a_config_in_a_linked_folder_reads_the_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk" / "project").mkdir(parents=True)
    (tmp_path / "disk" / "project" / "tune.toml").write_text(TEXT)
    (tmp_path / "project").symlink_to("disk/project")
    monkeypatch.chdir(tmp_path)
    tables = read_toml("project/tune.toml")
    assert tables["model"]["path"] == str(tmp_path / "disk" / "project" / "net.onnx")
    # as `cat project/../pictures` does
    assert tables["data"]["images"] == str(tmp_path / "disk" / "pictures")


def test_a_linked_model_keeps_the_name_that_the_config_gives_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cache of downloads keeps the content in files that are called by their hashes."""
    config = runs.write_config(tmp_path)
    (tmp_path / "net.onnx").rename(tmp_path / "9f2b")
    (tmp_path / "net.onnx").symlink_to("9f2b")
    words = ["tune", "--config", str(config), "--out", str(tmp_path / "run"), "--dry-run"]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("net: ")

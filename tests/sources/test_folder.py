from __future__ import annotations

from pathlib import Path

import pytest

from seqto.errors import ModelError
from seqto.model.sources.folder import Folder
from seqto.model.sources.source import Source


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def test_models_come_in_the_order_of_their_names_without_sub_folders(tmp_path: Path) -> None:
    put(tmp_path, "b.onnx", "a.onnx", "c.txt", ".hidden.onnx", "sub/d.onnx")
    (tmp_path / "folder.onnx").mkdir()
    found = list(Folder(str(tmp_path)).fetch())
    assert [f.name for f in found] == ["a", "b"]
    assert [f.path for f in found] == [str(tmp_path / n) for n in ("a.onnx", "b.onnx")]
    assert found[0].origin["kind"] == "folder"


def test_a_pattern_narrows_the_choice(tmp_path: Path) -> None:
    put(tmp_path, "mobilenet1.onnx", "mobilenet2.onnx", "resnet.onnx")
    found = Folder(str(tmp_path), "mobile*.onnx").fetch()
    assert [f.name for f in found] == ["mobilenet1", "mobilenet2"]


def test_a_pattern_cannot_leave_the_folder(tmp_path: Path) -> None:
    put(tmp_path, "a.onnx", "sub/b.onnx")
    with pytest.raises(ModelError, match="holds no file"):
        list(Folder(str(tmp_path / "sub"), "../*.onnx").fetch())


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no file that matches '\*\.onnx'"):
        list(Folder(str(tmp_path)).fetch())


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        list(Folder(str(tmp_path / "nowhere")).fetch())


def test_a_folder_is_a_source() -> None:
    assert isinstance(Folder("."), Source)

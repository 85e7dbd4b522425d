from __future__ import annotations

from pathlib import Path

import pytest

from seqto.errors import ModelError
from seqto.model.sources.file import File
from seqto.model.sources.source import Source


def test_a_file_is_fetched_as_it_lies(tmp_path: Path) -> None:
    path = tmp_path / "net-1.0.onnx"
    path.write_bytes(b"x")
    (found,) = File(str(path)).fetch()
    assert (found.name, found.path, found.preprocess) == ("net-1.0", str(path), None)
    assert found.origin == {"kind": "file", "path": str(path)}


def test_a_file_is_a_source() -> None:
    assert isinstance(File("x.onnx"), Source)


def test_a_missing_file_shows_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "mobilenet.onnx").write_bytes(b"x")
    with pytest.raises(ModelError, match=r"does not exist; did you mean 'mobilenet.onnx'\?"):
        list(File(str(tmp_path / "mobilnet.onnx")).fetch())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"there is no folder '.*nowhere'"):
        list(File(str(tmp_path / "nowhere" / "a.onnx")).fetch())


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        list(File(str(tmp_path)).fetch())

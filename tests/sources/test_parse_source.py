from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from seqto.errors import ModelError
from seqto.model.sources import parse_source
from seqto.model.sources.file import File
from seqto.model.sources.folder import Folder


def test_a_path_is_a_file_even_when_it_does_not_exist() -> None:
    assert parse_source("nowhere/a.onnx") == File("nowhere/a.onnx")


def test_a_folder_and_a_pattern_are_folders(tmp_path: Path) -> None:
    assert parse_source(str(tmp_path)) == Folder(str(tmp_path))
    assert parse_source(f"{tmp_path}/m*.onnx") == Folder(str(tmp_path), "m*.onnx")


def test_an_existing_file_wins_over_its_reading_as_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "a[1].onnx"
    path.write_bytes(b"x")
    assert parse_source(str(path)) == File(str(path))


def test_the_hub_prefix_makes_a_hub_source() -> None:
    from seqto.model.sources.hub import Hub

    found = parse_source("hub:squeezenet", cache_dir="c", endpoint="http://h", offline=True)
    assert found == Hub("hub:squeezenet", cache_dir="c", endpoint="http://h", offline=True)


def test_an_address_is_refused_with_the_way_to_go() -> None:
    with pytest.raises(ModelError, match="hub:OWNER/NAME"):
        parse_source("https://example.org/a.onnx")


def test_a_local_file_needs_no_hub_library() -> None:
    code = (
        "import sys; from seqto.model.sources import parse_source; parse_source('a.onnx');"
        "heavy = ('huggingface_hub', 'onnx', 'seqto.model.sources.hub');"
        "sys.exit(any(m in sys.modules for m in heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_source_of_another_package_is_named_before_a_colon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "shelf-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[seqto.sources]\nshelf = shelf_source:Shelf\n")
    (tmp_path / "shelf_source.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\nclass Shelf:\n    spec: str\n    offline: bool = False\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    source = parse_source("shelf:a/b", cache_dir="c", endpoint=None, offline=True)
    assert (type(source).__name__, source.spec, source.offline) == ("Shelf", "shelf:a/b", True)  # type: ignore[attr-defined]

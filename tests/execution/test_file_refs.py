"""Files are named by content and by a path inside of the run folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seqto.errors import JournalError
from seqto.execution.files import FileRef, LocalFiles
from seqto.tasks.array_file import read_arrays, write_arrays


def test_a_name_is_resolved_against_each_sides_own_root(tmp_path: Path) -> None:
    here, there = LocalFiles(tmp_path / "here"), LocalFiles(tmp_path / "there")
    place = here.root / "variants" / "base" / "model.onnx"
    place.parent.mkdir(parents=True)
    place.write_bytes(b"model")
    ref = here.put(place)
    assert (ref.name, ref.size_bytes) == ("variants/base/model.onnx", 5)
    assert there.path(ref) == there.root / "variants" / "base" / "model.onnx"
    arrived = tmp_path / "arrived"
    arrived.write_bytes(b"model")
    assert there.receive(ref, arrived).read_bytes() == b"model"


def test_a_file_that_arrives_changed_is_refused(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    arrived = tmp_path / "arrived"
    arrived.write_bytes(b"other")
    with pytest.raises(JournalError, match=r"'x' arrived with sha256 .*send it again"):
        files.receive(FileRef("ab" * 32, 5, "x"), arrived)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("name", ["/etc/passwd", "../outside", "a/../../outside", ""])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(JournalError):
        LocalFiles(tmp_path).path(FileRef("", 0, name))


def test_a_file_of_the_users_stays_where_it_is(tmp_path: Path) -> None:
    own = tmp_path / "elsewhere" / "net.onnx"
    own.parent.mkdir()
    own.write_bytes(b"net")
    files = LocalFiles(tmp_path / "run", {"original/net.onnx": own})
    ref = files.put(own)
    assert ref.name == "original/net.onnx"
    assert files.path(ref) == own


def test_only_files_of_workers_are_discarded(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    made = files.work_file("outputs")
    made.write_bytes(b"1")
    kept = tmp_path / "kept"
    kept.write_bytes(b"2")
    ref = files.put(made)
    files.discard(files.put(kept))
    files.discard(ref)
    assert kept.exists()
    assert not made.exists()
    made.write_bytes(b"1")
    assert files.adopt(ref, "variants/base/rounded-0.npy").name == "variants/base/rounded-0.npy"
    assert (tmp_path / "variants" / "base" / "rounded-0.npy").read_bytes() == b"1"


def test_arrays_keep_bytes_type_and_shape(tmp_path: Path) -> None:
    kinds = ["<f4", ">f8", "|u1", "<i8", "|b1", "<f2", "<c8"]
    wanted = {
        f"{kind}{shape}": np.arange(int(np.prod(shape))).astype(kind).reshape(shape)
        for kind in kinds
        for shape in ((2, 3, 4), (), (0, 5), (7,))
    }
    write_arrays(tmp_path / "a", wanted, {"größe": [1, None]})
    found, record = read_arrays(tmp_path / "a")
    assert record == {"größe": [1, None]}
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
        assert not found[name].flags.writeable


def test_objects_are_never_written_or_read(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="numbers only"):
        write_arrays(tmp_path / "a", {"x": np.array([object()])}, {})
    write_arrays(tmp_path / "a", {"x": np.zeros(2, "<i8")}, {})
    (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes().replace(b'"<i8"', b'"|O8"'))
    with pytest.raises(JournalError, match="cannot read a"):
        read_arrays(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"short")
    with pytest.raises(JournalError, match="cannot read a"):
        read_arrays(tmp_path / "a")

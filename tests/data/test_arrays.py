"""Arrays from files and from memory."""

from __future__ import annotations

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqto.data.arrays import Arrays
from seqto.data.preprocess import Preprocess, normalise
from seqto.data.splits import split_rows
from seqto.data.store import SampleStore
from seqto.errors import DataError
from seqto.records import InputSpec

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(12)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_images_and_labels_come_from_an_npz_file(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", images=IMAGES, labels=LABELS, calibration_rows=np.int64(3))
    data = Arrays(tmp_path / "a.npz")
    assert len(data) == 12
    sample = data.read(7)
    np.testing.assert_array_equal(sample.inputs[""], IMAGES[7])
    assert (sample.label, sample.name) == (7, "row-7")
    assert data.calibration_rows == (0, 1, 2)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_npy_file_is_one_input(tmp_path: Path, order: Any) -> None:
    np.save(tmp_path / "a.npy", np.asarray(IMAGES, order=order))
    data = Arrays(tmp_path / "a.npy")
    np.testing.assert_array_equal(data.read(11).inputs[""], IMAGES[11])
    assert data.read(0).label is None


def test_arrays_in_memory_and_in_a_file_have_the_same_digest(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"x": IMAGES, "y": LABELS}
    np.savez_compressed(tmp_path / "a.npz", **parts)
    file, memory = Arrays(tmp_path / "a.npz"), Arrays(parts)
    assert file.identity()["digest"] == memory.identity()["digest"]
    other = Arrays({"x": IMAGES, "y": LABELS + 1})
    assert other.identity()["digest"] != memory.identity()["digest"]


def test_several_arrays_are_inputs_by_name(tmp_path: Path) -> None:
    ids, mask = np.arange(8).reshape(4, 2), np.ones((4, 2), np.float32)
    np.savez(tmp_path / "a.npz", ids=ids, mask=mask, labels=np.zeros(4, np.int32))
    store = SampleStore.build(
        Arrays(tmp_path / "a.npz"),
        tmp_path / "store",
        splits=split_rows(4, calibration=1, evaluation=3, report=None, seed=0),
        inputs=[InputSpec("mask", (None, 2)), InputSpec("ids", (None, 2), "int64")],
    )
    batch = store.batch("evaluation", 0, 3)
    rows = [int(name.split("-")[1]) for name in store.names("evaluation")]
    np.testing.assert_array_equal(batch["ids"], ids[rows])
    np.testing.assert_array_equal(batch["mask"], mask[rows])
    assert list(batch) == ["mask", "ids"]


def test_inputs_called_x_and_y_are_not_taken_for_labels() -> None:
    data = Arrays({"x": np.zeros((3, 2)), "y": np.zeros((3, 2))})
    assert set(data.inputs) == {"x", "y"}


def test_grey_pictures_need_no_channel_axis(tmp_path: Path) -> None:
    how = Preprocess(channels="GRAY", mean=(127.5,), std=(127.5,))
    grey = IMAGES[..., 0]
    store = SampleStore.build(
        Arrays({"images": grey}),
        tmp_path,
        splits={"evaluation": [0, 1]},
        inputs=[InputSpec("x", (None, 1, 6, 5))],
        preprocess=how,
    )
    np.testing.assert_array_equal(
        store.batch("evaluation", 0, 2)["x"], normalise(grey[:2, :, :, None], how)
    )


def test_float_arrays_pass_preprocessing_as_they_are(tmp_path: Path) -> None:
    made = np.random.default_rng(1).standard_normal((2, 3, 4, 4)).astype(np.float32)
    store = SampleStore.build(
        Arrays({"x": made}),
        tmp_path,
        splits={"evaluation": [0, 1]},
        inputs=[InputSpec("x", (None, 3, 4, 4))],
        preprocess=Preprocess(mean=(1.0,), std=(9.0,)),
    )
    np.testing.assert_array_equal(store.batch("evaluation", 0, 2)["x"], made)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_python_objects_are_never_loaded(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "a.npz", images=np.array([{"a": 1}, None], dtype=object))
    with pytest.raises(DataError, match="Python objects"):
        Arrays(tmp_path / "a.npz")
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        Arrays(tmp_path / "a.npy")
    with pytest.raises(DataError, match="Python objects"):
        Arrays({"x": np.array([{}], dtype=object)})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2)), "labels": np.zeros(4, int)}, "'array' 3, 'labels' 4"),
        ({"x": np.zeros((0, 2))}, "no rows"),
        ({"x": np.float32(1)}, "single number"),
        ({}, "no input"),
        ({"x": np.zeros((3, 2)), "calibration_rows": np.array([5])}, "beyond its 3 rows"),
        ({"x": np.zeros((3, 2)), "calibration_rows": np.array([0.5])}, "list of rows"),
    ],
)
def test_arrays_that_make_no_samples_are_refused(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Arrays(arrays)


def test_broken_files_are_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with pytest.raises(DataError, match="does not exist"):
        Arrays(path)
    with pytest.raises(DataError, match="is a folder"):
        Arrays(tmp_path)
    path.write_bytes(b"something else")
    with pytest.raises(DataError, match=r"neither a \.npz nor a \.npy"):
        Arrays(path)
    np.savez_compressed(path, images=IMAGES)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="cannot read arrays"):
        Arrays(path)
    path.write_bytes(whole[:100] + b"\0" * 200 + whole[300:])
    with pytest.raises(DataError, match="cannot read arrays"):
        Arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", b"\x93NUMPY\x01\x00 nonsense")
    with pytest.raises(DataError, match="cannot read arrays"):
        Arrays(path)


def test_a_header_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGES)
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-100])
    with pytest.raises(DataError, match="cannot read arrays"):
        Arrays(tmp_path / "a.npy")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_files_are_mapped_not_loaded(tmp_path: Path, save: Any) -> None:
    rows = np.zeros((400, 64, 64, 3), np.uint8)
    save(tmp_path / "a.npz", images=rows)
    tracemalloc.start()
    data = Arrays(tmp_path / "a.npz")
    data.read(399)
    data.identity()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < rows.nbytes  # 4.9 MB; chunks of 1 MB are copied


def test_labels_may_be_arrays_of_any_shape() -> None:
    boxes = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    label = Arrays({"x": np.zeros((3, 2)), "labels": boxes}).read(1).label
    np.testing.assert_array_equal(np.asarray(label), boxes[1])


def test_a_column_of_class_numbers_is_a_list_of_them() -> None:
    data = Arrays({"x": np.zeros((3, 2)), "labels": np.array([[4], [5], [6]])})
    assert [data.read(i).label for i in range(3)] == [4, 5, 6]

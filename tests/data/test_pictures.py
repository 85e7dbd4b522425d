"""Folders of small pictures, good and bad."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from seqto.data.pictures import Pictures
from seqto.data.preprocess import Preprocess, fit_picture, normalise
from seqto.data.store import SampleStore
from seqto.errors import DataError
from seqto.records import InputSpec


def picture(path: Path, *, seed: int = 0, size: tuple[int, int] = (20, 30)) -> NDArray[np.uint8]:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def test_pictures_are_sorted_and_other_files_skipped(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "c/d.bmp", ".hidden.png", ".git/e.png"):
        picture(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,label\n")
    assert Pictures(tmp_path).files == ("a.jpg", "b.PNG", "c/d.bmp")


def test_reading_gives_the_pixels_in_rgb(tmp_path: Path) -> None:
    pixels = picture(tmp_path / "a.png")
    sample = Pictures(tmp_path).read(0)
    np.testing.assert_array_equal(sample.inputs[""], pixels)
    assert (sample.name, sample.label) == ("a.png", None)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "I;16"])
def test_every_mode_becomes_three_channels_of_uint8(tmp_path: Path, mode: str) -> None:
    if mode == "I;16":
        Image.fromarray(np.full((4, 6), 0x8000, np.uint16)).save(tmp_path / "a.png")
    else:
        path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
        Image.new("RGB", (6, 4), (255, 255, 255)).convert(mode).save(path)
    pixels = Pictures(tmp_path).read(0).inputs[""]
    assert (pixels.shape, pixels.dtype) == ((4, 6, 3), np.uint8)
    assert set(np.unique(pixels)) == ({128} if mode == "I;16" else {255})


def test_the_rotation_in_exif_is_ignored(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (30, 20)).save(tmp_path / "a.jpg", exif=exif)
    assert Pictures(tmp_path).read(0).inputs[""].shape == (20, 30, 3)


def test_a_store_of_pictures_equals_direct_preprocessing(tmp_path: Path) -> None:
    for i, suffix in enumerate((".jpg", ".png", ".bmp", ".webp")):
        picture(tmp_path / "in" / f"{i}{suffix}", seed=i, size=(20 + i, 30 - 2 * i))
    how = Preprocess(18, 16, channels="BGR", mean=(104.0, 117.0, 123.0), std=(1.0,))
    data = Pictures(tmp_path / "in")
    store = SampleStore.build(
        data,
        tmp_path / "store",
        splits={"calibration": [1], "evaluation": [3, 0, 2]},
        inputs=[InputSpec("x", (None, 3, 16, 16))],
        preprocess=how,
    )
    rows = [np.asarray(Image.open(tmp_path / "in" / data.files[i])) for i in (3, 0, 2)]
    direct = normalise(np.stack([fit_picture(row, how) for row in rows]), how)
    np.testing.assert_array_equal(store.batch("evaluation", 0, 3)["x"], direct)
    assert store.names("evaluation") == ["3.webp", "0.jpg", "2.bmp"]
    assert np.load(tmp_path / "store" / "input-0.npy", allow_pickle=False).dtype == np.uint8


def test_broken_pictures_are_named_and_counted(tmp_path: Path) -> None:
    for i in range(40):
        picture(tmp_path / "in" / f"{i:02}.jpg", seed=i)
    cut = tmp_path / "in" / "07.jpg"
    os.truncate(cut, cut.stat().st_size // 2)
    (tmp_path / "in" / "30.jpg").write_bytes(b"not a picture")
    store = SampleStore.build(
        Pictures(tmp_path / "in"),
        tmp_path / "store",
        splits={"evaluation": list(range(40))},
        inputs=[InputSpec("x", (None, 3, 20, 30))],
        preprocess=Preprocess(),
    )
    assert store.unreadable == ("07.jpg", "30.jpg")
    assert store.rows("evaluation") == 38


@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"GIF89a"])
def test_what_is_no_picture_is_a_data_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(DataError, match=r"'a\.png': not a readable picture"):
        Pictures(tmp_path).read(0)


@pytest.mark.parametrize("pixels", [100_000_000, 400_000_000])
def test_a_decompression_bomb_is_a_data_error(tmp_path: Path, pixels: int) -> None:
    Image.new("1", (10_000, 8_000)).save(tmp_path / "a.png")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS * 80_000_000 // pixels)
        with pytest.raises(DataError, match="may be an attack"):
            Pictures(tmp_path).read(0)


def test_a_picture_that_vanished_is_a_data_error(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    data = Pictures(tmp_path)
    (tmp_path / "a.png").unlink()
    data.identity()
    with pytest.raises(DataError, match="gone"):
        data.read(0)


@pytest.mark.parametrize("what", ["empty", "missing", "file"])
def test_a_folder_without_pictures_is_an_error(tmp_path: Path, what: str) -> None:
    folder = tmp_path if what == "empty" else tmp_path / "there"
    if what == "file":
        folder.write_text("")
    message = {"empty": "no pictures", "missing": "does not exist", "file": "not a folder"}[what]
    with pytest.raises(DataError, match=message):
        Pictures(folder)


# --------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "text",
    [
        "file,label\nb.png,7\na.png,3\n",
        "a.png,3\nb.png,7\n",
        "label;note;Filename\n3;x;./a.png\n7;y;b.png\n",
        "\ufeffimage\tclass\na.png\t3\n\nb.png\t7",
        "name,target\r\na.png,3\r\nb.png,7\r\nelsewhere.png,1\r\n",
    ],
)
def test_labels_come_from_a_csv_file(tmp_path: Path, text: str) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "sub" / "b.png")
    labels = tmp_path / "labels.csv"
    labels.write_text(text, encoding="utf-8", newline="")
    data = Pictures(tmp_path, labels=labels)
    assert [data.read(i).label for i in range(2)] == [3, 7]
    assert data.identity()["labels_without_picture"] == text.count("elsewhere")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,label\na.png,1\n", r"1 of 2 pictures have no label .*'b\.png'"),
        ("a.png,1\nb.png,cat\n", r"row 2 .*class number"),
        ("a.png\nb.png\n", r"row 1 .*class number"),
        ("a.png,1\na.png,2\nb.png,1\n", r"row 2 .*contradicts its earlier label 1"),
        ("a.png,1\nb.png,-2\n", r"row 2 .*negative"),
        ("", r"2 of 2 pictures have no label"),
        ("a.png,1\nb.png,99999999999999999999\n", r"row 2 .*99999 for 'b\.png' is too large"),
        (f"a.png,{'9' * 5000}\nb.png,1\n", r"row 1 .*'9{28}…9+'\]: a file name and a class"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(tmp_path: Path, text: str, message: str) -> None:
    picture(tmp_path / "a.png")
    picture(tmp_path / "b.png")
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        Pictures(tmp_path, labels=tmp_path / "labels.csv")


def test_a_missing_label_file_is_an_error(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    with pytest.raises(DataError, match="cannot read the labels"):
        Pictures(tmp_path, labels=tmp_path / "no.csv")


def test_sub_folders_are_classes_and_empty_ones_count(tmp_path: Path) -> None:
    for name in ("cat/1.png", "zebra/deep/2.png", "cat/3.png"):
        picture(tmp_path / name)
    (tmp_path / "dog").mkdir()
    for labels in (None, "folders"):
        assert Pictures(tmp_path, labels=labels).classes == (0, 0, 2)
    assert Pictures(tmp_path, labels="none").classes is None


def test_loose_pictures_mean_no_labels_unless_folders_are_asked_for(tmp_path: Path) -> None:
    for name in ("cat/1.png", "dog/2.png", "loose.png"):
        picture(tmp_path / name)
    assert Pictures(tmp_path).classes is None
    with pytest.raises(DataError, match=r"1 pictures lie outside of any, such as 'loose\.png'"):
        Pictures(tmp_path, labels="folders")


def test_identity_changes_with_content_names_and_labels(tmp_path: Path) -> None:
    picture(tmp_path / "x" / "a.bmp")
    picture(tmp_path / "y" / "b.bmp")
    seen = [Pictures(tmp_path, labels="none").identity(), Pictures(tmp_path).identity()]
    assert seen[0] == Pictures(tmp_path, labels="none").identity()
    picture(tmp_path / "x" / "a.bmp", seed=1)  # the same number of bytes
    seen.append(Pictures(tmp_path).identity())
    (tmp_path / "x" / "a.bmp").rename(tmp_path / "x" / "c.bmp")
    seen.append(Pictures(tmp_path).identity())
    assert len({(one["digest"], one["labels"]) for one in seen}) == 4

"""Folders of pictures and masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seqto.data.masks import Masks
from seqto.errors import DataError

VALUES = np.array([[0, 1, 2], [2, 127, 255]], np.uint8)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for name in ("images", "masks"):
        (tmp_path / name / "train").mkdir(parents=True)
    for name in ("a", "b"):
        Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(tmp_path / f"images/train/{name}.jpg")
        Image.fromarray(VALUES).save(tmp_path / f"masks/train/{name}.png")
    return tmp_path


def masks(folder: Path, **settings: bool) -> Masks:
    return Masks(folder / "images", folder / "masks", **settings)


def test_a_mask_has_its_pictures_name_and_its_values_are_classes(folders: Path) -> None:
    found = masks(folders)
    assert len(found) == 2
    assert found.read(1).name == "train/b.jpg"
    assert found.files == ("train/a.png", "train/b.png")
    assert np.array_equal(found.mask(0), VALUES)


def test_a_binary_mask_is_0_and_1(folders: Path) -> None:
    assert masks(folders, binary=True).mask(0).tolist() == [[0, 0, 0], [0, 0, 1]]


def test_a_palettes_numbers_are_the_classes(folders: Path) -> None:
    image = Image.fromarray(VALUES, mode=None).convert("L")
    palette = Image.new("P", image.size)
    palette.putpalette([255 - k for k in range(256) for _ in range(3)])
    palette.putdata(VALUES.ravel().tolist())
    palette.save(folders / "masks/train/a.png")
    assert np.array_equal(masks(folders).mask(0), VALUES)


def test_a_grey_mask_in_colours_is_read_and_a_coloured_one_refused(folders: Path) -> None:
    grey = np.repeat(VALUES[:, :, None], 3, axis=2)
    Image.fromarray(grey).save(folders / "masks/train/a.png")
    assert np.array_equal(masks(folders).mask(0), VALUES)
    grey[0, 0, 0] = 9
    Image.fromarray(grey).save(folders / "masks/train/a.png")
    with pytest.raises(DataError, match=r"'train/a\.png': a mask of mode 'RGB'"):
        masks(folders).mask(0)


def test_a_broken_mask_is_named(folders: Path) -> None:
    (folders / "masks/train/a.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"'train/a\.png': not a readable mask"):
        masks(folders).mask(0)


def test_a_picture_without_a_mask_is_an_error(folders: Path) -> None:
    (folders / "masks/train/b.png").unlink()
    with pytest.raises(DataError, match=r"1 of 2 pictures have no mask .* 'train/b\.jpg'"):
        masks(folders)


def test_two_masks_for_one_picture_are_an_error(folders: Path) -> None:
    Image.fromarray(VALUES).save(folders / "masks/train/a.bmp")
    with pytest.raises(DataError, match="are for one"):
        masks(folders)


def test_identity_changes_with_a_mask(folders: Path) -> None:
    before = masks(folders).identity()
    assert masks(folders).identity() == before
    Image.fromarray(VALUES + 1).save(folders / "masks/train/a.png")
    assert masks(folders).identity()["labels"] != before["labels"]

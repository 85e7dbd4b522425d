"""COCO's JSON: pictures, boxes, masks; several folders and files; what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from seqto.data.coco import Coco
from seqto.data.geometry import stretch_fit
from seqto.errors import ConfigError, DataError

CATEGORIES = [{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person"}]
SQUARE = [10, 5, 20, 5, 20, 15, 10, 15]


def note(image: int, box: list[float], *, category: int = 1, **more: object) -> dict:
    return {"image_id": image, "bbox": box, "category_id": category, "iscrowd": 0, **more}


def write(
    folder: Path, name: str, images: dict[int, str], notes: list[dict], more: dict | None = None
) -> Path:
    """Return pictures of 40 × 30 pixels in `folder/name`, annotations in `folder/name.json`."""
    (folder / name).mkdir(exist_ok=True)
    entries = []
    for key, file in images.items():
        Image.fromarray(np.full((30, 40, 3), key, np.uint8)).save(folder / name / file)
        entries.append({"id": key, "file_name": file, "height": 30, "width": 40})
    path = folder / f"{name}.json"
    table = {"images": entries, "annotations": notes, "categories": CATEGORIES, **(more or {})}
    path.write_text(json.dumps(table))
    return path


@pytest.fixture
def two(tmp_path: Path) -> Coco:
    """Two folders with pictures of one name and one id, which are not the same picture."""
    first = write(tmp_path, "a", {7: "x.png", 8: "y.png"}, [note(7, [1, 2, 10, 20])])
    second = write(
        tmp_path,
        "b",
        {7: "x.png"},
        [note(7, [3, 4, 5, 6], category=90), note(7, [0, 0, 9, 9], iscrowd=1)],
    )
    return Coco([tmp_path / "a", tmp_path / "b"], [first, second])


def test_boxes_are_corners_and_classes_are_places_among_the_categories(two: Coco) -> None:
    assert len(two) == 3
    assert two.categories == ((1, "person"), (90, "toothbrush"))
    first, empty, last = (two.objects(i) for i in range(3))
    assert first.boxes.tolist() == [[1, 2, 11, 22]]
    assert first.classes.tolist() == [0]
    assert empty.boxes.shape == (0, 4)
    assert last.classes.tolist() == [1, 0]
    assert last.crowd.tolist() == [False, True]


def test_a_label_has_its_boxes_in_input_pixels(two: Coco) -> None:
    fit = stretch_fit(30, 40, sides=(60, 20))
    assert two.objects(0).table(fit).tolist() == [[0.5, 4, 5.5, 44, 0, 0]]
    assert two.objects(1).table(fit).shape == (0, 6)
    assert two.objects(2).table(fit)[:, 4:].tolist() == [[1, 0], [0, 1]]


def test_each_file_has_its_folder(two: Coco) -> None:
    assert [two.read(i).name for i in range(3)] == ["x.png", "y.png", "x.png"]
    assert [int(two.read(i).inputs[""][0, 0, 0]) for i in range(3)] == [7, 8, 7]


def test_pictures_that_are_not_there_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, "a", {1: "x.png", 2: "y.png"}, [note(2, [0, 0, 1, 1])])
    (tmp_path / "a" / "y.png").unlink()
    found = Coco(str(tmp_path / "a"), str(path))
    assert len(found) == 1
    assert found.identity()["pictures_missing"] == 1
    (tmp_path / "a" / "x.png").rename(tmp_path / "a" / "z.png")
    with pytest.raises(DataError, match="none of the 2 pictures"):
        Coco(tmp_path / "a", path)


def test_identity_changes_with_labels_and_pictures(tmp_path: Path) -> None:
    path = write(tmp_path, "a", {1: "x.png"}, [note(1, [0, 0, 1, 1])])
    before = Coco(tmp_path / "a", path).identity()
    assert before == Coco(tmp_path / "a", path).identity()
    write(tmp_path, "a", {1: "x.png"}, [note(1, [0, 0, 1, 2])])
    assert Coco(tmp_path / "a", path).identity()["labels"] != before["labels"]


def test_masks_are_drawn_from_polygons_and_rle(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    rle = {"size": [30, 40], "counts": [0, 30, 1170]}  # the first column, by columns
    notes = [
        note(1, [10, 5, 10, 10], segmentation=[SQUARE], area=100),
        note(1, [0, 0, 1, 30], segmentation=rle, area=30, category=90),
        note(1, [0, 0, 40, 30], area=9),
    ]
    data = Coco(tmp_path / "a", write(tmp_path, "a", {1: "x.png"}, notes))
    found = data.mask(0)
    assert found.shape == (30, 40)
    assert (found[5:15, 10:20] == 1).all()
    assert (found[:, 0] == 1).all()
    assert int(found.sum()) == 130
    classes = data.mask(0, kind="classes")
    assert (classes[:, 0] == 2).all()
    assert (classes[5:15, 10:20] == 1).all()
    with pytest.raises(ConfigError, match="none of union, classes"):
        data.mask(0, kind="all")


def test_a_smaller_object_lies_on_top_of_a_larger(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    whole = [0, 0, 40, 0, 40, 30, 0, 30]
    notes = [
        note(1, [10, 5, 10, 10], segmentation=[SQUARE], area=100, category=90),
        note(1, [0, 0, 40, 30], segmentation=[whole], area=1200),
    ]
    data = Coco(tmp_path / "a", write(tmp_path, "a", {1: "x.png"}, notes))
    assert np.bincount(data.mask(0, kind="classes").ravel()).tolist() == [0, 1100, 100]


def test_a_mask_that_cannot_be_drawn_names_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("pycocotools")
    far = [[0, 0, 1e30, 0, 1e30, 1e30]]  # drawing it would take memory for the way
    numbers = [[0, 0, float("nan"), 0, 5, 5]]
    other_size = {"size": [9, 9], "counts": [81]}
    for shape in ({"size": [30, 40]}, other_size, [["a"]], "text", far, numbers):
        notes = [note(1, [0, 0, 1, 1], segmentation=shape, area=1)]
        data = Coco(tmp_path / "a", write(tmp_path, "a", {1: "x.png"}, notes))
        with pytest.raises(DataError, match=r"'x\.png': a mask cannot be drawn"):
            data.mask(0)


def test_a_picture_of_another_size_than_annotated_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a", {1: "x.png"}, [])
    Image.fromarray(np.zeros((40, 30, 3), np.uint8)).save(tmp_path / "a" / "x.png")
    with pytest.raises(DataError, match="30×40 pixels, its annotation says 40×30"):
        Coco(tmp_path / "a", path).read(0)


@pytest.mark.parametrize(
    ("notes", "more", "words"),
    [
        ([{"image_id": 1}], {}, "has no image_id, category_id or bbox"),
        ([note(1, [0, 0, 1])], {}, "is not x, y, width, height"),
        ([note(1, [0, 0, -1, 1])], {}, "is not x, y, width, height"),
        ([note(1, [0, 0, float("nan"), 1])], {}, "is not x, y, width, height"),
        ([note(1, [0, 0, 1, 1], area="x")], {}, "an area that is no number"),
        ([note(1, [0, 0, 1, 1], area=float("inf"))], {}, "is not finite"),
        ([note(1, [0, 0, 1, 1], category="1")], {}, "category 1 of picture 1 is not in the list"),
        ([note(1, [0, 0, 1, 1], category=2)], {}, "category 2 of picture 1 is not in the list"),
        ([], {"categories": None}, "no list 'categories'"),
        ([], {"categories": ["person"]}, "has no number as id"),
        ([], {"categories": [{"id": float("inf"), "name": "x"}]}, "has no number as id"),
        ([{"image_id": float("inf")}], {}, "has no image_id, category_id or bbox"),
        ([], {"images": [{"id": 1}]}, "no id, file_name, height or width"),
    ],
)
def test_wrong_annotations_are_refused(tmp_path: Path, notes: list, more: dict, words: str) -> None:
    path = write(tmp_path, "a", {1: "x.png"}, notes, more)
    with pytest.raises(DataError, match=words):
        Coco(tmp_path / "a", path)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "a", {1: "x.png"}, [])
    path.write_text("{")
    with pytest.raises(DataError, match="cannot read the annotations"):
        Coco(tmp_path / "a", path)
    with pytest.raises(DataError, match="cannot read the annotations"):
        Coco(tmp_path / "a", tmp_path / "absent.json")


def test_files_that_name_a_category_differently_are_refused(tmp_path: Path) -> None:
    first = write(tmp_path, "a", {1: "x.png"}, [])
    second = write(tmp_path, "b", {1: "x.png"}, [], {"categories": [{"id": 1, "name": "dog"}]})
    with pytest.raises(DataError, match="category 1 is 'dog', before it was 'person'"):
        Coco([tmp_path / "a", tmp_path / "b"], [first, second])

"""Pictures with boxes and masks in COCO's JSON, from one or several folders and files."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.data.geometry import Fit
from seqto.data.pictures import NO_LABELS, Pictures
from seqto.data.preprocess import UnreadableError
from seqto.errors import ConfigError, DataError
from seqto.files import open_regular
from seqto.records import Json, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

Paths = str | Path | Sequence[str | Path]
UNION, CLASSES = "union", "classes"
FARTHEST = 10  # times a picture's longer side: how far from it a corner of a polygon may lie


@dataclass(frozen=True, slots=True)
class Objects:
    """The labelled objects of one picture, boxes x1, y1, x2, y2 in picture pixels."""

    boxes: NDArray[np.float64]  # (k, 4)
    classes: NDArray[np.int64]  # (k,): place of the category among all, sorted by id
    crowd: NDArray[np.bool_]  # (k,): a group that is not told apart; found or not, it is no error

    def table(self, fit: Fit) -> NDArray[np.float64]:
        """Return rows x1, y1, x2, y2 in input pixels, class, crowd: the label of a picture."""
        return np.column_stack([fit.to_input(self.boxes), self.classes, self.crowd])


@dataclass(frozen=True, slots=True)
class _Picture:
    name: str
    folder: int  # of `images`
    row: int  # in that folder's pictures
    height: int
    width: int
    notes: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Coco:
    """The pictures that the annotation files name and that the folders hold.

    With as many folders as files, the pictures of a file are looked for in its folder; else in
    all folders. Pictures that no folder holds are counted in `identity`.
    """

    images: Paths
    annotations: Paths
    categories: tuple[tuple[int, str], ...] = field(init=False, repr=False, compare=False)
    pictures_missing: int = field(init=False, repr=False, compare=False)
    _pictures: tuple[_Picture, ...] = field(init=False, repr=False, compare=False)
    _folders: tuple[Pictures, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        files = [Path(path) for path in _listed(self.annotations)]
        folders = tuple(Pictures(path, NO_LABELS) for path in _listed(self.images))
        if not files or not folders:
            raise ConfigError("images and annotations of COCO data must name at least one each")
        tables = [_read(path) for path in files]
        categories = _categories(tables, files)
        pictures, missing = _present_pictures(tables, files, folders)
        if not pictures:
            raise DataError(
                f"none of the {missing} pictures of {files[0].name} is in {folders[0].folder}: "
                "check images and annotations"
            )
        object.__setattr__(self, "categories", tuple(sorted(categories.items())))
        object.__setattr__(self, "pictures_missing", missing)
        object.__setattr__(self, "_pictures", tuple(pictures))
        object.__setattr__(self, "_folders", folders)

    def __len__(self) -> int:
        return len(self._pictures)

    def read(self, index: int) -> Sample:
        """Return the picture; its labels come from `objects` and `mask`."""
        picture = self._pictures[index]
        sample = self._folders[picture.folder].read(picture.row)
        (pixels,) = sample.inputs.values()
        if pixels.shape[:2] != (picture.height, picture.width):
            raise UnreadableError(
                picture.name,
                f"the file has {pixels.shape[1]}×{pixels.shape[0]} pixels, its annotation says "
                f"{picture.width}×{picture.height}: boxes would lie elsewhere",
            )
        return sample

    def objects(self, index: int) -> Objects:
        """Return the objects of a picture."""
        class_of = {key: k for k, (key, _) in enumerate(self.categories)}
        notes = self._pictures[index].notes
        boxes = np.array([note["bbox"] for note in notes], dtype=np.float64).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        return Objects(
            boxes,
            np.array([class_of[note["category_id"]] for note in notes], dtype=np.int64),
            np.array([bool(note.get("iscrowd", 0)) for note in notes], dtype=bool),
        )

    def mask(self, index: int, *, kind: str = UNION) -> NDArray[np.uint8]:
        """Return a mask of the picture's size: 1 where any object is, or class number + 1.

        Where objects of several classes lie over each other, the smallest is on top.
        """
        if kind not in (UNION, CLASSES):
            raise ConfigError(f"mask kind {kind!r} is none of {UNION}, {CLASSES}")
        picture = self._pictures[index]
        pixels = np.zeros((picture.height, picture.width), dtype=np.uint8)
        class_of = {key: k for k, (key, _) in enumerate(self.categories)}
        notes = [note for note in picture.notes if note.get("segmentation")]
        if kind == CLASSES and len(class_of) > 254:
            raise DataError(f"{len(class_of)} categories do not fit into a mask of 8 bits")
        for note in sorted(notes, key=lambda note: -float(note.get("area", 0))):
            value = class_of[note["category_id"]] + 1 if kind == CLASSES else 1
            pixels[_mask_of(note, picture)] = value
        return pixels

    def identity(self) -> Json:
        notes = [(p.name, p.height, p.width, p.notes) for p in self._pictures]
        text = json.dumps([self.categories, notes], sort_keys=True)
        return {
            "kind": "coco",
            "count": len(self._pictures),
            "labels": hashlib.sha256(text.encode()).hexdigest(),
            "pictures_missing": self.pictures_missing,
            "folders": [folder.identity() for folder in self._folders],
        }


def _listed(paths: Paths) -> list[str | Path]:
    return [paths] if isinstance(paths, str | Path) else list(paths)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        with open_regular(path) as stream:
            table: Any = json.loads(stream.read())
    except OSError as error:
        raise DataError(f"cannot read the annotations {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"cannot read the annotations {path}: {error}") from error
    for key in ("images", "annotations", "categories"):
        if not isinstance(table, dict) or not isinstance(table.get(key), list):
            raise DataError(f"the annotations {path} have no list {key!r}: COCO's JSON is needed")
    return dict(table)


def _categories(tables: Sequence[Mapping[str, Any]], files: Sequence[Path]) -> dict[int, str]:
    name_of: dict[int, str] = {}
    for table, path in zip(tables, files, strict=True):
        for entry in table["categories"]:
            try:
                key, name = int(entry["id"]), str(entry.get("name", entry["id"]))
            except (TypeError, KeyError, ValueError, OverflowError, AttributeError) as error:
                raise DataError(f"{path}: the category {entry!r} has no number as id") from error
            if name_of.setdefault(key, name) != name:
                raise DataError(
                    f"{path}: category {key} is {name!r}, before it was {name_of[key]!r}"
                )
    return name_of


def _present_pictures(
    tables: Sequence[Mapping[str, Any]], files: Sequence[Path], folders: Sequence[Pictures]
) -> tuple[list[_Picture], int]:
    """Return the annotated pictures that are there, and how many are not."""
    rows = [{name: row for row, name in enumerate(folder.files)} for folder in folders]
    pictures: list[_Picture] = []
    taken: set[tuple[int, int]] = set()
    missing = 0
    for number, (table, path) in enumerate(zip(tables, files, strict=True)):
        known = {int(entry["id"]) for entry in table["categories"]}
        notes = _notes(table, path, known)
        candidates = [number] if len(files) == len(folders) else list(range(len(folders)))
        for entry in table["images"]:
            try:
                key, name = int(entry["id"]), str(entry["file_name"])
                height, width = int(entry["height"]), int(entry["width"])
            except (TypeError, KeyError, ValueError, OverflowError) as error:
                raise DataError(
                    f"{path}: the picture {str(entry)[:80]} has no id, file_name, height or width"
                ) from error
            folder = next((k for k in candidates if name in rows[k]), None)
            if folder is None:
                missing += 1
            elif (folder, rows[folder][name]) in taken:
                raise DataError(f"{path}: the picture {name!r} is listed twice")
            else:
                taken.add((folder, rows[folder][name]))
                inner = tuple(notes.get(key, ()))
                pictures.append(_Picture(name, folder, rows[folder][name], height, width, inner))
    return pictures, missing


def _notes(table: Mapping[str, Any], path: Path, known: set[int]) -> dict[int, list[Json]]:
    """Return annotations by picture, checked."""
    by_picture: dict[int, list[Json]] = {}
    for note in table["annotations"]:
        try:
            key, category = int(note["image_id"]), int(note["category_id"])
            box, area = [float(side) for side in note["bbox"]], float(note.get("area", 0))
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise DataError(
                f"{path}: the annotation {str(note)[:80]} has no image_id, category_id or bbox, or "
                "an area that is no number"
            ) from error
        if len(box) != 4 or not all(map(math.isfinite, box)) or min(box[2:]) < 0:
            raise DataError(f"{path}: bbox {box} of picture {key} is not x, y, width, height")
        if not math.isfinite(area):
            raise DataError(f"{path}: the area {area} of picture {key} is not finite")
        if category not in known or note["category_id"] not in known:  # not as a text
            raise DataError(f"{path}: category {category} of picture {key} is not in the list")
        by_picture.setdefault(key, []).append(note)
    return by_picture


def _check_polygons(polygons: list[Any], *, most: float) -> None:
    """Refuse corners far outside of the picture: drawing takes memory for the way to them."""
    for polygon in polygons:
        corners = np.asarray(polygon, dtype=np.float64)
        if corners.ndim != 1 or not (np.abs(corners) <= most).all():
            raise ValueError("a polygon is no list of numbers near the picture")


def _mask_of(note: Json, picture: _Picture) -> NDArray[np.bool_]:
    try:
        from pycocotools import mask as rle
    except ImportError as error:
        raise ConfigError(
            "masks of COCO data need pycocotools: pip install 'seqto[detection]'"
        ) from error
    shape, size = note["segmentation"], [picture.height, picture.width]
    try:
        if isinstance(shape, dict) and list(shape["size"]) != size:
            raise ValueError(f"its size is {shape['size']}, the picture's {size}")
        with warnings.catch_warnings():
            # pycocotools 2.0.11 has an array class of numpy 1's interface
            warnings.simplefilter("ignore", DeprecationWarning)
            if isinstance(shape, list):
                _check_polygons(shape, most=FARTHEST * max(size))
                packed = rle.merge(rle.frPyObjects(shape, *size))
            else:
                plain = isinstance(shape["counts"], list)
                packed = rle.frPyObjects(shape, *size) if plain else shape
            mask: NDArray[np.bool_] = np.asarray(rle.decode(packed), dtype=bool)
    except Exception as error:  # compiled code that raises nearly anything on wrong lists
        raise UnreadableError(picture.name, f"a mask cannot be drawn ({error!r})") from error
    return mask

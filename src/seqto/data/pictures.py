"""A folder of pictures, with labels from a CSV file, from its sub-folders, or without."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from seqto.data.labels import is_class_number
from seqto.data.preprocess import UnreadableError
from seqto.errors import DataError
from seqto.files import open_regular
from seqto.records import Json, Sample
from seqto.text import shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# Pillow hands some other formats to outside programs (EPS to Ghostscript): not with foreign files
FORMATS = ("JPEG", "PNG", "BMP", "WEBP", "GIF", "TIFF", "PPM")
FILE_HEADS = ("file", "filename", "file_name", "name", "image", "path")
LABEL_HEADS = ("label", "class", "class_id", "class_index", "target")
SUB_FOLDERS = "folders"
NO_LABELS = "none"
DIGEST_BYTES = 16 * 1024  # of both ends of each picture


@dataclass(frozen=True, slots=True)
class Pictures:
    """All pictures below a folder, sorted by name; decoded to RGB, not yet resized.

    labels   a CSV file (a column with the file, a column with the class number), "folders"
             (class = position of the sub-folder in sorted order), "none", or None: "folders" when
             every picture lies in one of several sub-folders, else "none"

    Rows of the CSV whose picture is not here are counted in `identity`; a picture that the CSV
    does not name is an error.
    """

    folder: Path | str
    labels: Path | str | None = None
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)
    classes: tuple[int, ...] | None = field(init=False, repr=False, compare=False)
    labels_without_picture: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        folder = Path(self.folder)
        files = _pictures_in(folder)
        spare, classes = 0, None
        if self.labels in (None, SUB_FOLDERS):
            classes = _classes_by_folder(folder, files, must=self.labels is not None)
        elif self.labels != NO_LABELS:
            classes, spare = _classes_by_csv(Path(str(self.labels)), files)
        object.__setattr__(self, "files", files)
        object.__setattr__(self, "classes", classes)
        object.__setattr__(self, "labels_without_picture", spare)

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> Sample:
        name = self.files[index]
        label = None if self.classes is None else self.classes[index]
        return Sample({"": _decoded(Path(self.folder) / name, name)}, label, name)

    def identity(self) -> Json:
        """Return a digest over names, sizes and both ends of each file: cheap for large folders."""
        digest = hashlib.sha256()
        for name in self.files:
            digest.update(os.fsencode(name) + b"\0" + _ends(Path(self.folder) / name))
        labels = hashlib.sha256(repr(self.classes).encode()).hexdigest() if self.classes else None
        return {
            "kind": "pictures",
            "folder": Path(self.folder).name,
            "count": len(self.files),
            "digest": digest.hexdigest(),
            "labels": labels,
            "labels_without_picture": self.labels_without_picture,
        }


def _pictures_in(folder: Path) -> tuple[str, ...]:
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DataError(f"the picture folder {folder} {what}")
    names: list[str] = []
    try:
        for parent, folders, files in os.walk(folder, onerror=_raise):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inner = Path(parent).relative_to(folder)
            names += [
                (inner / name).as_posix()
                for name in files
                if name.lower().endswith(SUFFIXES) and not name.startswith(".")
            ]
    except OSError as error:
        raise DataError(f"cannot list the picture folder {folder}: {error}") from error
    if not names:
        raise DataError(
            f"no pictures in {folder}: looked for files that end in {', '.join(SUFFIXES)}"
        )
    return tuple(sorted(names))


def _raise(error: OSError) -> None:
    raise error


def _classes_by_folder(folder: Path, files: Sequence[str], *, must: bool) -> tuple[int, ...] | None:
    loose = [name for name in files if "/" not in name]
    # empty ones count too: a class without pictures still has its number
    numbers = {
        name: number
        for number, name in enumerate(
            sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        )
    }
    if loose and must:
        raise DataError(
            f"labels come from sub-folders, but {len(loose)} pictures lie outside of any, such as "
            f"{loose[0]!r}: move them or give a CSV file with labels"
        )
    if loose or (len(numbers) < 2 and not must):
        return None
    return tuple(numbers[name.split("/", 1)[0]] for name in files)


def _classes_by_csv(path: Path, files: Sequence[str]) -> tuple[tuple[int, ...], int]:
    """Return the class of each file, and the number of rows whose picture is not here."""
    table = _read_table(path)
    short = Counter(name.rsplit("/", 1)[-1] for name in files)
    classes: list[int] = []
    missing: list[str] = []
    used: set[str] = set()
    for name in files:
        last = name.rsplit("/", 1)[-1]
        key = name if name in table or short[last] > 1 else last
        if key in table:
            classes.append(table[key])
            used.add(key)
        else:
            missing.append(name)
    if missing:
        raise DataError(
            f"{len(missing)} of {len(files)} pictures have no label in {path}, such as "
            f"{', '.join(map(repr, missing[:3]))}: add them, or leave labels out"
        )
    return tuple(classes), len(table) - len(used)


def _read_table(path: Path) -> Mapping[str, int]:
    try:
        with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as stream:
            start = stream.readline()
            stream.seek(0)
            delimiter = next((sign for sign in ",;\t" if sign in start), ",")
            rows = [row for row in csv.reader(stream, delimiter=delimiter) if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read the labels {path}: {error}") from error
    heads = [cell.strip().lower() for cell in rows[0]] if rows else []
    file_at = next((i for i, head in enumerate(heads) if head in FILE_HEADS), None)
    label_at = next((i for i, head in enumerate(heads) if head in LABEL_HEADS), None)
    first = 1
    if file_at is None or label_at is None:
        first, file_at, label_at = 0, 0, 1
    table: dict[str, int] = {}
    for number, row in enumerate(rows[first:], start=first + 1):
        try:
            name, label = row[file_at].strip(), int(row[label_at])
        except (IndexError, ValueError) as error:
            raise DataError(
                f"row {number} of the labels {path} is {shorten(row, 80)}: a file name and a class "
                "number are needed (a first row may name the columns, such as file,label)"
            ) from error
        name = name.replace("\\", "/").removeprefix("./")
        problem = _label_problem(label, table.get(name))
        if problem is not None:
            said = f"{shorten(label, 40)} for {shorten(name, 80)!r}"
            raise DataError(f"row {number} of the labels {path}: {said} {problem}")
        table[name] = label
    return table


def _label_problem(label: int, earlier: int | None) -> str | None:
    """Return why a label cannot be taken, as the rest of a sentence about it."""
    if label < 0:
        return "is negative"
    if not is_class_number(label):
        return "is too large for the number of a class"
    if earlier not in (None, label):
        return f"contradicts its earlier label {earlier}"
    return None


def _decoded(path: Path, name: str) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            # broken EXIF and the like are not ours to report; a bomb's warning must be its end
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with open_regular(path) as stream, Image.open(stream, formats=FORMATS) as image:
                image.load()
                if image.mode.startswith("I;16"):  # Pillow would clip 16 bits, not scale them
                    grey = (np.asarray(image) >> 8).astype(np.uint8)
                    return np.repeat(grey[:, :, None], 3, axis=2)
                return np.asarray(image.convert("RGB"))
    except FileNotFoundError as error:
        raise UnreadableError(name, "the file is gone") from error
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise UnreadableError(name, "so many pixels that it may be an attack; left out") from error
    except Exception as error:  # Pillow's decoders raise nearly anything on broken files
        raise UnreadableError(name, f"not a readable picture ({error})") from error


def _ends(path: Path) -> bytes:
    try:
        with open_regular(path) as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(DIGEST_BYTES)
            stream.seek(max(size - DIGEST_BYTES, len(head)))
            return str(size).encode() + b"\0" + head + stream.read()
    except OSError:
        return b"unreadable"  # named and counted when it is read

"""A folder of pictures and a folder of masks with the same names."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from seqto.data.pictures import FORMATS, NO_LABELS, Pictures
from seqto.data.preprocess import UnreadableError
from seqto.errors import DataError
from seqto.records import Json, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Masks:
    """Pictures, and for each a mask file of the same name (endings may differ).

    binary   a pixel of 128 or more belongs to the object, which becomes 1; else a pixel's value
             (of a palette: its number) is its class
    """

    images: Path | str
    masks: Path | str
    binary: bool = False
    pictures: Pictures = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        pictures = Pictures(self.images, NO_LABELS)
        by_stem: dict[str, str] = {}
        for name in Pictures(self.masks, NO_LABELS).files:
            other = by_stem.setdefault(_stem(name), name)
            if other != name:
                raise DataError(f"the masks {other!r} and {name!r} in {self.masks} are for one")
        missing = [name for name in pictures.files if _stem(name) not in by_stem]
        if missing:
            raise DataError(
                f"{len(missing)} of {len(pictures)} pictures have no mask in {self.masks}, such as "
                f"{', '.join(map(repr, missing[:3]))}: a mask has its picture's name"
            )
        object.__setattr__(self, "pictures", pictures)
        object.__setattr__(self, "files", tuple(by_stem[_stem(n)] for n in pictures.files))

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> Sample:
        """Return the picture; its label comes from `mask`."""
        return self.pictures.read(index)

    def mask(self, index: int) -> NDArray[np.uint8]:
        """Return the class of each pixel of the picture, or 0 and 1."""
        name = self.files[index]
        pixels = _pixels(Path(self.masks) / name, name)
        return (pixels >= 128).astype(np.uint8) if self.binary else pixels

    def identity(self) -> Json:
        digest = hashlib.sha256()
        for name in self.files:
            path = Path(self.masks) / name
            digest.update(
                name.encode("utf-8", "surrogateescape")
                + b"\0"
                + (path.read_bytes() if path.is_file() else b"")
            )
        return {
            "kind": "masks",
            "pictures": self.pictures.identity(),
            "labels": digest.hexdigest(),
            "binary": self.binary,
        }


def _stem(name: str) -> str:
    return PurePosixPath(name).with_suffix("").as_posix()


def _pixels(path: Path, name: str) -> NDArray[np.uint8]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                image.load()
                mode = image.mode
                # a palette's numbers are the classes, its colours are for people
                plain = mode in ("P", "L")
                pixels = np.array(image if plain else image.convert("RGB"))
    except Exception as error:  # Pillow's decoders raise nearly anything on broken files
        raise UnreadableError(name, f"not a readable mask ({error})") from error
    if plain:
        return pixels.astype(np.uint8)
    if mode.startswith(("I", "F")) or (pixels != pixels[..., :1]).any():
        raise UnreadableError(
            name, f"a mask of mode {mode!r} has no class numbers: 8 bits, grey or palette, needed"
        )
    return np.array(pixels[..., 0], dtype=np.uint8)

"""Arrays from a `.npz` or `.npy` file, or from memory: one row a sample.

Files are mapped, not loaded: parts of a `.npz` that are compressed are unpacked to a nameless
temporary file first, so memory does not grow with the number of rows.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.lib import format as npy

from seqto.data.labels import as_label
from seqto.errors import DataError
from seqto.files import open_regular
from seqto.records import Json, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from seqto.records import Array

LABEL_KEYS = ("labels", "label")
PERHAPS_LABEL_KEYS = ("y", "targets")  # a model's input may be called so: labels if they look it
CALIBRATION_KEY = "calibration_rows"
DIGEST_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Arrays:
    """Rows of named arrays: a file, or a dict of arrays.

    One array (under any name, such as `images`, `inputs` or `x`) serves a model's only input;
    several are inputs by their names. `labels` or `y` are class numbers, or arrays with a row per
    sample. `calibration_rows` are the rows that serve calibration alone, one number n for the
    first n. Pictures are uint8, N×H×W or N×H×W×C in RGB order; float arrays are taken as already
    prepared.
    """

    source: Path | str | Mapping[str, Array]
    inputs: Mapping[str, Array] = field(init=False, repr=False, compare=False)
    labels: Array | None = field(init=False, repr=False, compare=False)
    calibration_rows: tuple[int, ...] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.source, Mapping):
            arrays = {str(key): np.asarray(value) for key, value in self.source.items()}
            where = "the dict of arrays"
        else:
            arrays, where = _open(Path(self.source)), str(self.source)
        for key, array in arrays.items():
            if array.dtype.hasobject:
                raise DataError(f"{key!r} in {where} holds Python objects, not numbers")
        rows = arrays.pop(CALIBRATION_KEY, None)
        label_key = next((key for key in arrays if _is_label(key, arrays)), None)
        labels = arrays.pop(label_key) if label_key else None
        if len(arrays) == 1:
            arrays = {"": next(iter(arrays.values()))}
        count = _count(arrays, labels, where=where)
        object.__setattr__(self, "inputs", arrays)
        object.__setattr__(self, "labels", None if labels is None else _one_number(labels))
        object.__setattr__(self, "calibration_rows", _checked_rows(rows, count, where=where))

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def read(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise DataError(f"there is no row {index}, only {len(self)}")
        inputs = {key: np.array(array[index]) for key, array in self.inputs.items()}
        label = None if self.labels is None else as_label(self.labels[index])
        return Sample(inputs, label, f"row-{index}")

    def identity(self) -> Json:
        """Return a digest over every value: reading once is cheap beside running a model on it."""
        digest = hashlib.sha256()
        everything = dict(self.inputs) | ({} if self.labels is None else {"labels": self.labels})
        for key, array in sorted(everything.items()):
            digest.update(f"{key} {array.dtype.str} {array.shape}\n".encode())
            row_bytes = max(1, array.nbytes // len(array))
            step = max(1, DIGEST_CHUNK // row_bytes)
            for start in range(0, len(array), step):
                digest.update(array[start : start + step].tobytes())
        named = None if isinstance(self.source, Mapping) else Path(self.source).name
        return {
            "kind": "arrays",
            "file": named,
            "count": len(self),
            "digest": digest.hexdigest(),
            "calibration_rows": len(self.calibration_rows or ()),
        }


def _is_label(key: str, arrays: Mapping[str, Array]) -> bool:
    looks = arrays[key].ndim == 1 and arrays[key].dtype.kind in "iu"
    return len(arrays) > 1 and (key in LABEL_KEYS or (key in PERHAPS_LABEL_KEYS and looks))


def _open(path: Path) -> dict[str, Array]:
    try:
        with open_regular(path) as stream:
            magic = stream.read(6)
            stream.seek(0)
            if magic == npy.MAGIC_PREFIX:
                return {"": _mapped(stream, 0, path.name)}
            if magic[:4] != b"PK\x03\x04":
                raise DataError(f"{path} is neither a .npz nor a .npy file")
            with zipfile.ZipFile(stream) as archive:
                return {
                    info.filename.removesuffix(".npy"): _member(archive, info, stream)
                    for info in archive.infolist()
                }
    except FileNotFoundError as error:
        raise DataError(f"the array file {path} does not exist") from error
    except DataError:
        raise
    except OSError as error:
        folder = "it is a folder; an .npz or .npy file is needed" if path.is_dir() else ""
        why = folder or error.strerror or error
        raise DataError(f"cannot read arrays from {path}: {why}") from error
    # zlib.error and NotImplementedError (an odd compression) among them, from inside the archive
    except Exception as error:
        raise DataError(f"cannot read arrays from {path}: {error}") from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, stream: IO[bytes]) -> Array:
    if info.compress_type == zipfile.ZIP_STORED:
        stream.seek(info.header_offset)
        # a local header is 30 bytes, its last four the lengths of the name and extra fields
        name_length, extra_length = struct.unpack("<HH", stream.read(30)[26:])
        start = info.header_offset + 30 + name_length + extra_length
        return _mapped(stream, start, info.filename)
    with tempfile.TemporaryFile() as unpacked:
        with archive.open(info) as packed:
            shutil.copyfileobj(packed, unpacked, DIGEST_CHUNK)
        return _mapped(unpacked, 0, info.filename)


def _mapped(stream: IO[bytes], start: int, name: str) -> NDArray[Any]:
    """Map the array whose `.npy` bytes begin at `start`. The map outlives the stream."""
    stream.seek(start)
    version = npy.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has .npy version {version}, 1.0 or 2.0 can be read")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read_header(stream)
    if dtype.hasobject:
        raise DataError(f"{name} holds Python objects, which are never loaded: save plain numbers")
    order: Literal["C", "F"] = "F" if fortran else "C"
    if 0 in shape:
        return np.empty(shape, dtype, order=order)  # what is empty cannot be mapped
    return np.memmap(stream, dtype, "r", offset=stream.tell(), shape=shape, order=order)


def _count(inputs: Mapping[str, Array], labels: Array | None, *, where: str) -> int:
    named = {key or "array": a for key, a in inputs.items()}
    everything = named | ({} if labels is None else {"labels": labels})
    if not inputs:
        raise DataError(f"{where} holds no input: an array such as 'images' or 'x' is needed")
    for key, array in everything.items():
        if array.ndim == 0:
            raise DataError(f"{key!r} in {where} is a single number; its first axis must be rows")
    counts = {key: len(array) for key, array in everything.items()}
    if len(set(counts.values())) > 1:
        raise DataError(
            f"arrays in {where} have different numbers of rows: "
            + ", ".join(f"{key!r} {count}" for key, count in counts.items())
        )
    count = next(iter(counts.values()))
    if count == 0:
        raise DataError(f"{where} has no rows")
    return count


def _one_number(labels: Array) -> Array:
    """Return labels in memory; a column of class numbers is taken as a list of them."""
    is_column = labels.ndim == 2 and labels.shape[1] == 1 and labels.dtype.kind in "iu"
    return np.array(labels[:, 0] if is_column else labels)


def _checked_rows(rows: Array | None, count: int, *, where: str) -> tuple[int, ...] | None:
    if rows is None:
        return None
    if rows.dtype.kind not in "iu" or rows.ndim > 1:
        raise DataError(f"{CALIBRATION_KEY} in {where} must be one number or a list of rows")
    chosen = range(int(rows)) if rows.ndim == 0 else [int(row) for row in rows]
    if any(not 0 <= row < count for row in chosen):
        raise DataError(f"{CALIBRATION_KEY} in {where} goes beyond its {count} rows")
    return tuple(chosen)

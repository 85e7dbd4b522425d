"""Named arrays and a JSON record in one file that several processes map into memory.

The file holds a length, a JSON header and the arrays' bytes, each at a multiple of 64.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import JournalError
from seqto.files import replacing
from seqto.records import Json

_LENGTH = struct.Struct("<8sQ")
_MAGIC = b"seqtoarr"
_ALIGNED = 64
_PLAIN_KINDS = "biufc"  # array types that are their bytes: no objects, no records


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], record: Json) -> None:
    """Write the file in one step; arrays hold numbers only."""
    rows, offset = [], 0
    for name, array in arrays.items():
        if array.dtype.kind not in _PLAIN_KINDS:
            raise TypeError(f"array {name!r} of {array.dtype} cannot be written: numbers only")
        rows.append([name, array.dtype.str, list(array.shape), offset])
        offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
    head = json.dumps({"arrays": rows, "record": record}).encode()
    head += b" " * (-(_LENGTH.size + len(head)) % _ALIGNED)
    with replacing(path) as stream:
        stream.write(_LENGTH.pack(_MAGIC, len(head)) + head)
        for array in arrays.values():
            stream.write(np.ascontiguousarray(array).data)
            stream.write(bytes(-array.nbytes % _ALIGNED))


def read_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], Json]:
    """Return the arrays, mapped into memory and read-only, and the record."""
    try:
        with open(path, "rb") as stream:
            magic, length = _LENGTH.unpack(stream.read(_LENGTH.size))
            if magic != _MAGIC:
                raise ValueError("it is no file of arrays")
            head = json.loads(stream.read(length))
        whole = np.memmap(path, np.uint8, mode="r")
        first = _LENGTH.size + length
        arrays = {}
        for name, kind, shape, offset in head["arrays"]:
            dtype = np.dtype(kind)
            if dtype.kind not in _PLAIN_KINDS:  # bytes must never become pointers
                raise ValueError(f"it holds an array of {kind!r}")
            size = dtype.itemsize * int(np.prod(shape))
            part = whole[first + offset : first + offset + size]
            arrays[name] = np.asarray(part).view(dtype).reshape(shape)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise JournalError(f"cannot read {path.name}: {error}; delete it and run again") from error
    return arrays, head["record"]

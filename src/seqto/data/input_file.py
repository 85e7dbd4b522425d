"""One input's rows, written to a `.npy` file: of one shape, or of different lengths end to end."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy

from seqto.data.preprocess import InputMismatchError, sizes
from seqto.errors import DataError
from seqto.records import InputSpec, Json

if TYPE_CHECKING:
    from seqto.records import Array


class InputFile:
    """One input's rows, appended to a `.npy` file; of sequences all values end to end.

    Plain writes, not a writable memory map: with a full disk the first raises, the second kills
    the process with SIGBUS.
    """

    def __init__(self, path: Path, spec: InputSpec, *, sequences: bool = False) -> None:
        self.path, self.spec, self.sequences = path, spec, sequences
        self.picture = False
        self._shape: tuple[int, ...] | None = None
        self._dtype: np.dtype[np.generic] = np.dtype(np.uint8)
        self._rows = 0
        self._stream: IO[bytes] | None = None

    def append(self, row: Array, *, picture: bool, planned: int) -> None:
        if self._stream is None:
            self.picture, self._dtype = picture, row.dtype
            self._shape = row.shape[1:] if self.sequences else row.shape
            with writing(self.path.parent, planned * row.nbytes):
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._stream = self.path.open("wb")
                self._write_header(planned)
        shape = row.shape[1:] if self.sequences else row.shape
        if (shape, row.dtype) != (self._shape, self._dtype):
            raise InputMismatchError(
                f"input {self.spec.name!r}: samples differ, {sizes(row.shape)} {row.dtype} after "
                f"{sizes(self._shape or ())} {self._dtype}: set preprocess.resize and "
                "preprocess.crop for pictures, pad or cut arrays to one size"
            )
        with writing(self.path.parent, planned * row.nbytes):
            self._stream.write(row.tobytes())
        self._rows += len(row) if self.sequences else 1

    def finish(self) -> Json:
        """Put the true number of rows into the header and make it last; what the record keeps."""
        assert self._stream is not None
        with writing(self.path.parent, 0), self._stream as stream:
            size_bytes = stream.tell()
            stream.seek(0)
            self._write_header(self._rows)
            stream.flush()
            os.fsync(stream.fileno())
        return {"name": self.path.name, "size_bytes": size_bytes, "picture": self.picture}

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            if self._stream is not None:
                self._stream.close()
            self.path.unlink(missing_ok=True)

    def _write_header(self, rows: int) -> None:
        # numpy leaves room for 21 digits of the first axis, so that the length stays the same
        assert self._stream is not None
        shape = (rows, *(self._shape or ()))
        descr = npy.dtype_to_descr(self._dtype)
        npy.write_array_header_1_0(
            self._stream, {"descr": descr, "fortran_order": False, "shape": shape}
        )


@contextlib.contextmanager
def writing(folder: Path, needed_bytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            size = f" of about {needed_bytes / 1e6:.1f} MB" if needed_bytes else ""
            raise DataError(
                f"the disk is full: no room for the prepared samples{size} in {folder}; free "
                "some space or choose another folder"
            ) from error
        raise DataError(f"cannot write prepared samples to {folder}: {error}") from error

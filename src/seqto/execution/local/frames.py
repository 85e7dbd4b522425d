"""Frames between main and a worker, and the worker's own end of them (see workers.py).

A frame is a length, a JSON header and raw array bytes: no pickle. Frames keep their order, so a
reply or a stop that comes too late lies before the next job, and falls away there.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from seqto.records import Json

if TYPE_CHECKING:
    from numpy.typing import NDArray

if TYPE_CHECKING:
    Arrays = Sequence[NDArray[Any]]


_PREFIX = struct.Struct("!4sI")  # magic, bytes of the header


_MAGIC = b"sqto"


_PLAIN_KINDS = "biufc"  # array types that are their bytes: no objects, no records


class Frame(NamedTuple):
    """One message on the wire."""

    kind: str  # main: setup, job, reply, stop; worker: ready, message, result, failure
    body: Json
    arrays: Arrays = ()


class Wire:
    """Frames over a stream socket; reading never waits, writing waits unless told not to."""

    def __init__(self, stream: socket.socket) -> None:
        self.socket = stream
        self._out: deque[memoryview] = deque()
        self._parts = _parts()
        self._space = next(self._parts)

    def read(self) -> Frame | None:
        """One frame, or None if its end has not come yet; EOFError when the other side left."""
        while True:
            try:
                got = self.socket.recv_into(self._space, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not got:
                raise EOFError
            self._space = self._space[got:]
            if self._space.nbytes:
                continue
            try:
                self._space = next(self._parts)
            except StopIteration as end:
                frame: Frame = end.value
                self._parts = _parts()
                self._space = next(self._parts)
                return frame

    def queue(self, frame: Frame) -> None:
        """Make a frame ready for `flush`."""
        self._out.extend(_encoded(frame))

    def flush(self, flags: int = 0) -> bool:
        """Write what is queued; False when the other side must read before more can go."""
        while self._out:
            try:
                sent = self.socket.send(self._out[0], flags)
            except BlockingIOError:
                return False
            self._out[0] = self._out[0][sent:]
            if not self._out[0].nbytes:
                self._out.popleft()
        return True


def _encoded(frame: Frame) -> list[memoryview]:
    blobs: list[memoryview] = []
    shapes = []
    for array in frame.arrays:
        if array.dtype.kind not in _PLAIN_KINDS:
            raise TypeError(f"an array of {array.dtype} cannot be sent: numbers only")
        shapes.append([array.dtype.str, list(array.shape)])
        if array.nbytes:
            blobs.append(array.ravel().view("u1").data)
    head = {"kind": frame.kind, "body": frame.body, "arrays": shapes}
    text = json.dumps(head).encode()
    return [memoryview(_PREFIX.pack(_MAGIC, len(text)) + text), *blobs]


def _parts() -> Generator[memoryview, None, Frame]:
    """Yields the buffers that a frame's bytes fill, one after the other; returns the frame."""
    prefix = bytearray(_PREFIX.size)
    yield memoryview(prefix)
    magic, length = _PREFIX.unpack(prefix)
    if magic != _MAGIC:
        raise ValueError("not a frame")
    text = bytearray(length)
    yield memoryview(text)
    head = json.loads(text)
    arrays = []
    if head["arrays"]:
        import numpy as np

        for kind, shape in head["arrays"]:
            if np.dtype(kind).kind not in _PLAIN_KINDS:  # bytes must never become pointers
                raise ValueError(f"an array of {kind!r}")
            array = np.empty(shape, kind)
            if array.nbytes:
                yield array.reshape(-1).view("u1").data
            arrays.append(array)
    return Frame(head["kind"], head["body"], arrays)

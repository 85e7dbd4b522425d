"""Frames between the main process and a worker process (see pool.py).

A frame is a length and JSON text: no pickle. Frames keep their order, so a stop that comes too
late lies before the next job, and falls away there.
"""

from __future__ import annotations

import json
import socket
import struct
from collections import deque
from collections.abc import Generator
from typing import NamedTuple

from seqto.records import Json

_PREFIX = struct.Struct("!4sI")  # magic, bytes of the header


_MAGIC = b"sqto"


class Frame(NamedTuple):
    """One message on the wire."""

    kind: str  # main: setup, job, stop; worker: ready, message, result, failure
    body: Json


class Wire:
    """Frames over a stream socket; reading never waits, writing waits unless told not to."""

    def __init__(self, stream: socket.socket) -> None:
        self.socket = stream
        self._out: deque[memoryview] = deque()
        self._parts = _parts()
        self._space = next(self._parts)

    def read(self) -> Frame | None:
        """Return one frame, or None if its end has not come yet.

        Raises EOFError when the other side left.
        """
        while True:
            try:
                received = self.socket.recv_into(self._space, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            if not received:
                raise EOFError
            self._space = self._space[received:]
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
        self._out.append(_encoded(frame))

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


def _encoded(frame: Frame) -> memoryview:
    text = json.dumps({"kind": frame.kind, "body": frame.body}).encode()
    return memoryview(_PREFIX.pack(_MAGIC, len(text)) + text)


def _parts() -> Generator[memoryview, None, Frame]:
    """Yield the buffers that a frame's bytes fill, one after the other; return the frame."""
    prefix = bytearray(_PREFIX.size)
    yield memoryview(prefix)
    magic, length = _PREFIX.unpack(prefix)
    if magic != _MAGIC:
        raise ValueError("not a frame")
    text = bytearray(length)
    yield memoryview(text)
    head = json.loads(text)
    return Frame(head["kind"], head["body"])

"""What tests of TVM share: their marks and sessions that are closed again."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from seqto.devices.tvm.device import Tvm

needs_tvm = [
    pytest.mark.tvm,
    pytest.mark.skipif(
        importlib.util.find_spec("tvm") is None,
        reason="apache-tvm is not installed (pip install 'seqto[tvm]')",
    ),
]


def tvm_test(function: Any) -> Any:
    for mark in needs_tvm:
        function = mark(function)
    return function


@contextlib.contextmanager
def opened(device: Tvm, model: bytes, *, threads: int = 0) -> Iterator[Any]:
    session = device.open(model, threads=threads)
    try:
        yield session
    finally:
        session.close()

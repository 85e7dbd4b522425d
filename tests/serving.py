"""A live page for as long as a block of a test runs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from seqto.report.live import start


@contextlib.contextmanager
def live_view(folder: str | os.PathLike[str], *, port: int = 0) -> Iterator[str]:
    """Serve a folder; give the address."""
    view = start(folder, port=port)
    try:
        yield view.url
    finally:
        view.shutdown()

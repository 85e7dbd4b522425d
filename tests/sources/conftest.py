from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from hub_server import FakeHub, serve_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A fake hub; no proxy, token or offline switch of this machine has a say in the tests."""
    from huggingface_hub import close_session, constants

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    close_session()
    with serve_hub() as server:
        yield server
        # its connections are to be closed before the server waits for their threads
        close_session()

"""Makes tests/ importable for the folders below it (`from nets import …`); an inline executor."""

from __future__ import annotations

import pytest

from inline_runs import run_inline


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this test execute their jobs in this process, and draw no plots."""
    run_inline(monkeypatch)

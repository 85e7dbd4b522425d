"""Makes tests/ importable for the folders below it (`from nets import …`); an inline executor."""

from __future__ import annotations

import pytest
from hypothesis import settings

from inline_runs import run_inline

# a busy machine takes longer for an example than Hypothesis allows by default
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this test execute their jobs in this process, and draw no plots."""
    run_inline(monkeypatch)

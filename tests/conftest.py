"""Makes tests/ importable for the folders below it (`from nets import …`); an inline pool."""

from __future__ import annotations

import importlib

import pytest

from seqto.testing import InlinePool


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs in this test execute their jobs in this process."""
    monkeypatch.setattr(importlib.import_module("seqto.tune"), "Pool", InlinePool)

"""Makes the modules beside the tests importable, and one Chromium for all pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Any]:
    pytest.importorskip("selenium")
    import browser as chromium_for_tests

    driver = chromium_for_tests.start(tmp_path_factory.mktemp("profile"), downloads)
    yield driver
    driver.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """Every test ends with a look at the console: an error there is a failure."""
    chromium.get("about:blank")  # else the page of an earlier test may go on asking its server
    chromium.get_log("browser")
    yield chromium
    said = [
        entry for entry in chromium.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]
    chromium.get("about:blank")
    assert said == []

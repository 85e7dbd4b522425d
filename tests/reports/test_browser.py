"""The page in a real Chromium: what a reader sees."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium")

from browser import click, pinned, points, show, text, wait  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from synthetic import EVIL_NAMES, build_report, journal  # noqa: E402

from seqto.report.html_page import write_page  # noqa: E402


def test_the_page_shows_the_whole_report(browser: Any, tmp_path: Path) -> None:
    from seqto.report import wording

    report = show(browser, tmp_path, journal())
    assert text(browser, "#sentence") == wording.recommendation(report)
    assert text(browser, "#command") == wording.export_command(report, folder=str(tmp_path))
    assert len(browser.find_elements(By.CSS_SELECTOR, "#trial-table tbody tr")) == 30
    assert len(browser.find_elements(By.CSS_SELECTOR, "#layer-table tbody tr")) == 24
    assert set(points(browser)) == {t["number"] for t in report["trials"] if t["loss"]}
    assert browser.find_elements(By.CSS_SELECTOR, "#objectives-chart svg path")
    browser.execute_script("document.getElementById('causes').open = true")
    assert "per-tensor weight ranges differ" in text(browser, "#findings")
    assert len(browser.find_elements(By.CSS_SELECTOR, "#failure-table tbody tr")) == 2
    assert "onnxruntime" in text(browser, "#settings-tables")
    assert pinned(browser) == [report["recommended"]["balanced"]]


def test_the_diagnosis_is_a_picture_and_a_table(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    found = report["diagnosis"]
    bars = browser.find_elements(By.CSS_SELECTOR, "#steps-chart [aria-label=bar] > *")
    assert len(bars) == len(found["steps"]) + 2  # between fully quantized and float
    rows = browser.find_elements(By.CSS_SELECTOR, "#diagnosis-layers > .scroll tbody tr")
    assert len(rows) == min(10, len(found["layers"]))
    assert found["layers"][0]["layer"] in rows[0].text
    assert not browser.find_element(By.ID, "skipped-table").is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#skipped summary").click()
    assert "Add mixes the scales of channels" in text(browser, "#skipped-table")
    assert "{" not in text(browser, "#diagnosis-layers")  # no JSON


def test_a_click_on_a_layer_of_the_map_shows_its_findings(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    assert not browser.find_element(By.ID, "layer-findings").is_displayed()
    name = report["model"]["layers"][1]["name"]
    click(browser, browser.find_element(By.CSS_SELECTOR, '[data-layer-button="1"]'))
    said = text(browser, "#layer-findings")
    assert name in said
    assert "a scale a channel" in said
    assert "per-tensor weight ranges differ" in said
    browser.find_element(By.CSS_SELECTOR, "#layer-findings .close").click()
    assert not browser.find_element(By.ID, "layer-findings").is_displayed()


@pytest.mark.parametrize("end", [0, 1, 3, 6, 8, 20])
def test_a_partial_run_renders(browser: Any, tmp_path: Path, end: int) -> None:
    show(browser, tmp_path, journal()[:end])
    assert text(browser, "#sentence")


def test_names_full_of_markup_run_nothing(browser: Any, tmp_path: Path) -> None:
    for name in EVIL_NAMES[:5]:
        report = show(browser, tmp_path, journal(names=EVIL_NAMES, name=name, layers=20))
        for number in list(points(browser))[:3]:
            click(browser, points(browser)[number])
        browser.execute_script(
            "for (const e of document.querySelectorAll('circle'))"
            "e.dispatchEvent(new MouseEvent('mouseenter'))"
        )
        assert browser.execute_script("return window.hacked") is None
        assert not browser.find_elements(By.CSS_SELECTOR, "main img, main iframe, main script")
        cells = browser.find_elements(By.CSS_SELECTOR, "#layer-table td.name")
        assert EVIL_NAMES[0] in cells[0].text
        assert len(cells) == len(report["model"]["layers"])


def test_a_phone_shows_the_page_without_sideways_scrolling(browser: Any, tmp_path: Path) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        show(browser, tmp_path, journal(names=EVIL_NAMES, name="n" * 200))
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_largest_page_is_ready_soon(browser: Any, tmp_path: Path) -> None:
    report = build_report(journal(layers=500, trials=500, strategy="frontier"))
    page = write_page(tmp_path, report).as_uri()
    start = time.monotonic()
    browser.get(page)
    wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "html[data-ready=true]"))
    # generous, for a busy machine: a page that takes longer than this is no page
    assert time.monotonic() - start < 10
    assert len(points(browser)) == 498
    assert (tmp_path / "report.html").stat().st_size < 3_000_000

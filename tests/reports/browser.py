"""Chromium for the tests of pages: its flags, and what a reader does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
from synthetic import Event, build_report

from seqto.report.html_page import write_page

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--force-prefers-reduced-motion",  # smooth scrolling would race with clicks
    "--window-size=1280,900",
)


def start(profile: Path, downloads: Path) -> Any:
    """Start Chromium; the test is skipped where there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("needs Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def wait(browser: Any, check: Callable[[Any], Any]) -> Any:
    return WebDriverWait(browser, 10, poll_frequency=0.05).until(check)


def show(browser: Any, folder: Path, events: list[Event]) -> dict[str, Any]:
    report = build_report(events)
    browser.get(write_page(folder, report).as_uri())
    wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "html[data-complete=true]"))
    return report


def text(browser: Any, selector: str) -> str:
    found: str = browser.find_element(By.CSS_SELECTOR, selector).text.replace("\u00a0", " ")
    return found


def points(browser: Any) -> dict[int, Any]:
    script = """return [...document.querySelectorAll("#front-chart .points circle")]
      .map((dot) => [Number(dot.dataset.trial), dot])"""
    return dict(browser.execute_script(script))


def click(browser: Any, element: Any) -> None:
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    # dots may lie on each other: the event goes to the one that is meant
    browser.execute_script(
        "arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", element
    )


def pinned(browser: Any) -> list[int]:
    found = browser.find_elements(By.CSS_SELECTOR, "[data-pinned]")
    return [int(p.get_attribute("data-pinned")) for p in found]

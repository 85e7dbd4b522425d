"""The front in a real Chromium: zoom, pins, axes, by mouse and by keyboard."""

from __future__ import annotations

import csv
import io
import itertools
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium")

from browser import click, pinned, points, show, text, wait  # noqa: E402
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402
from synthetic import EVIL_NAMES, journal  # noqa: E402


def test_the_front_begins_with_the_trials_and_zooms(browser: Any, tmp_path: Path) -> None:
    show(browser, tmp_path, journal(strategy="frontier"))

    def labels() -> str:
        return str(browser.find_element(By.ID, "front-chart").text.replace("\u00a0", " "))

    assert "float " in labels()
    assert "→" in labels()  # float lies beyond the right edge, and is marked there
    browser.find_element(By.ID, "zoom").click()
    assert text(browser, "#zoom") == "Zoom to the trials"
    everything = points(browser)[0].get_attribute("cx")
    svg = browser.find_element(By.CSS_SELECTOR, "#front-chart svg")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", svg)
    drag = webdriver.ActionChains(browser)
    drag.move_to_element_with_offset(svg, -350, 90).click_and_hold()
    drag.move_by_offset(200, 60).release().perform()
    wait(browser, lambda _: points(browser)[0].get_attribute("cx") != everything)
    assert "beyond the frame" in text(browser, "#front-note")
    svg = browser.find_element(By.CSS_SELECTOR, "#front-chart svg")
    far = webdriver.ActionChains(browser).move_to_element_with_offset(svg, 300, -190)
    far.double_click().perform()
    wait(browser, lambda _: points(browser)[0].get_attribute("cx") == everything)


def test_picks_are_named_in_the_picture_and_tabled_below_it(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal(strategy="frontier"))
    shown = [row for row in report["picks"] if row["shown"]]
    assert len(shown) <= 4
    names = [e.text for e in browser.find_elements(By.CSS_SELECTOR, "#front-chart .pick-label")]
    assert names == [row["title"] for row in shown]
    table = text(browser, "#pick-table")
    for row in shown:
        assert row["question"] in table
        assert row["given_up"] in table
    more = [row["title"] for row in report["picks"] if not row["shown"]]
    assert text(browser, "#more-picks summary") == f"More: {', '.join(more)}" if more else True


def test_no_name_in_the_picture_lies_on_another(browser: Any, tmp_path: Path) -> None:
    """A pick with the lowest loss near the right edge met the name of float, which lies beyond."""
    show(browser, tmp_path, journal(strategy="frontier"))
    for axis in ("size", "latency"):
        Select(browser.find_element(By.ID, "axis-x")).select_by_value(axis)
        named = "#front-chart .pick-label, #front-chart .float-label text"
        boxes = [e.rect for e in browser.find_elements(By.CSS_SELECTOR, named)]
        assert len(boxes) > 2
        for a, b in itertools.combinations(boxes, 2):
            apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert apart or abs(a["y"] - b["y"]) >= 10, (a, b)


def test_a_click_pins_and_two_pins_are_compared(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    best = report["recommended"]["balanced"]
    full = report["fully_quantized"]
    assert not browser.find_element(By.ID, "compare").is_displayed()
    click(browser, points(browser)[full])
    assert pinned(browser) == [best, full]
    assert browser.find_element(By.ID, "compare").is_displayed()
    plans = [next(t["plan"] for t in report["trials"] if t["number"] == n) for n in (best, full)]
    names = [row["name"] for row in report["model"]["layers"]]
    apart = [n for n in names if plans[0].get(n) != plans[1].get(n)]
    rows = browser.find_elements(By.CSS_SELECTOR, "#compare-table tbody tr")
    assert len(rows) == len(apart) > 0
    assert all(name in row.text for name, row in zip(apart, rows, strict=True))
    browser.find_element(By.ID, "compare-all").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#compare-table tbody tr")) == len(names)
    third = next(n for n in points(browser) if n not in (best, full))
    click(browser, points(browser)[third])
    assert pinned(browser) == [best, third]
    click(browser, points(browser)[best])
    assert pinned(browser) == [third]


def test_a_real_mouse_can_hover_and_click_a_point(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    # the largest file stands alone at the right end, nothing lies over it
    number = max(points(browser), key=lambda n: report["trials"][n]["size_bytes"])
    lonely = sorted(points(browser), key=lambda n: report["trials"][n]["loss"]["value"])[-2]
    assert number != lonely
    browser.find_element(By.ID, "zoom").click()  # it lies beyond the frame
    dot = points(browser)[lonely]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", dot)
    webdriver.ActionChains(browser).move_to_element(dot).perform()
    assert wait(browser, lambda b: text(b, "#tip").startswith(f"Trial {lonely}"))
    assert "static-u8-u8-channel" in text(browser, "#tip")
    webdriver.ActionChains(browser).click().perform()
    assert lonely in pinned(browser)


def test_axes_can_be_changed_and_the_third_becomes_colour(browser: Any, tmp_path: Path) -> None:
    show(browser, tmp_path, journal())

    def axes() -> tuple[str, str, str]:
        chosen = [Select(browser.find_element(By.ID, i)) for i in ("axis-x", "axis-y")]
        x, y = (c.first_selected_option.get_attribute("value") for c in chosen)
        return x, y, text(browser, "#front-chart")

    def place() -> str:
        return str(points(browser)[0].get_attribute("cx"))

    assert axes()[:2] == ("size", "loss")
    assert "Colour: latency" in axes()[2]
    before = place()
    Select(browser.find_element(By.ID, "axis-x")).select_by_value("latency")
    assert axes()[:2] == ("latency", "loss")
    assert "Colour: file size" in axes()[2]
    assert place() != before
    Select(browser.find_element(By.ID, "axis-y")).select_by_value("latency")
    assert axes()[:2] == ("loss", "latency")  # the same axis twice swaps them


def test_intervals_and_front_only_can_be_switched(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())

    def lines() -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, "#front-chart [aria-label=rule] line"))

    assert lines() == len(points(browser))
    browser.find_element(By.ID, "intervals").click()
    assert lines() == 0
    browser.find_element(By.ID, "front-only").click()
    assert set(points(browser)) == set(report["front"])
    browser.find_element(By.ID, "stretch").click()
    assert set(points(browser)) == set(report["front"])


def test_the_keyboard_reaches_everything(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    browser.find_element(By.ID, "zoom").click()  # all trials
    order = sorted(points(browser), key=lambda n: report["trials"][n]["size_bytes"])
    stops = [n for n, dot in points(browser).items() if dot.get_attribute("tabindex") == "0"]
    assert stops == pinned(browser)  # one Tab stop for the whole chart
    at = order.index(stops[0])
    points(browser)[stops[0]].send_keys(Keys.ARROW_RIGHT)
    focused = browser.switch_to.active_element
    assert int(focused.get_attribute("data-trial")) == order[at + 1]
    assert text(browser, "#tip").startswith(f"Trial {order[at + 1]}")
    focused.send_keys(Keys.ENTER)
    assert pinned(browser) == [stops[0], order[at + 1]]
    focused = browser.switch_to.active_element
    assert int(focused.get_attribute("data-trial")) == order[at + 1]  # focus survives the redraw
    assert focused.get_attribute("aria-pressed") == "true"
    focused.send_keys(Keys.ESCAPE)
    assert pinned(browser) == []
    head = browser.find_element(By.CSS_SELECTOR, "#trial-table [data-sort=loss]")
    head.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("data-sort") == "loss"


def test_trials_can_be_sorted_filtered_and_downloaded(
    browser: Any, tmp_path: Path, downloads: Path
) -> None:
    report = show(browser, tmp_path, journal(names=EVIL_NAMES))

    def numbers() -> list[int]:
        rows = browser.find_elements(By.CSS_SELECTOR, "#trial-table tbody tr")
        return [int(row.get_attribute("data-number")) for row in rows]

    losses = {t["number"]: t["loss"]["value"] for t in report["trials"] if t["loss"]}
    head = "#trial-table [data-sort=loss]"
    click(browser, browser.find_element(By.CSS_SELECTOR, head))
    up = [losses[n] for n in numbers() if n in losses]
    assert up == sorted(losses.values())
    click(browser, browser.find_element(By.CSS_SELECTOR, head))
    assert [losses[n] for n in numbers() if n in losses] == up[::-1]
    assert numbers()[-1] not in losses  # failed trials stay at the end
    browser.find_element(By.ID, "filter").send_keys("failed")
    assert sorted(numbers()) == [t["number"] for t in report["trials"] if t["error"]]
    browser.find_element(By.ID, "filter").clear()
    browser.find_element(By.ID, "filter").send_keys("step")
    shown = numbers()
    click(browser, browser.find_element(By.ID, "csv"))
    file = wait(browser, lambda _: next(downloads.glob("trials*.csv"), None))
    rows = list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"))))
    assert [int(row["trial"]) for row in rows] == shown
    assert len(shown) > 3
    for row in rows:
        assert not row["note"].startswith(("=", "+", "-", "@"))

"""The model's graph on the page, in a real Chromium."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium")

from browser import click, show, text, wait  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402
from synthetic import build_report, journal  # noqa: E402

from seqto.report.html_page import write_page  # noqa: E402

PLACES = """return [...document.querySelectorAll("#graph-box .node")].map((node) => {
  const box = node.getBoundingClientRect(); return [box.left, box.top, box.right, box.bottom] })"""


def nodes(browser: Any) -> list[Any]:
    found: list[Any] = browser.find_elements(By.CSS_SELECTOR, "#graph-box .node")
    return found


def test_a_layer_stands_below_those_that_it_reads(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    layers = report["model"]["layers"]
    assert len(nodes(browser)) == len(layers)
    places = browser.execute_script(PLACES)
    edges = [(p, i) for i, layer in enumerate(layers) for p in layer["inputs"]]
    assert edges
    for before, after in edges:
        assert places[before][3] < places[after][1]


def test_nodes_do_not_lie_on_each_other(browser: Any, tmp_path: Path) -> None:
    events = journal(layers=40)
    events[0]["layer_inputs"] = [
        [] if i == 0 else [i // 2] if i % 3 else [i - 1, i // 3]
        for i in range(len(events[0]["layers"]))
    ]
    show(browser, tmp_path, events)
    places = browser.execute_script(PLACES)
    for i, a in enumerate(places):
        for b in places[:i]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (a, b)


def test_colours_follow_the_pinned_trial_and_the_choice(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    trial = report["trials"][report["recommended"]["balanced"]]
    codes = set(trial["plan"].values())
    key = text(browser, "#graph-key")
    assert codes
    assert all(code in key for code in codes)
    label = nodes(browser)[0].get_attribute("aria-label")
    assert label.endswith(trial["plan"].get(report["model"]["layers"][0]["name"], "fp32"))
    choice = Select(browser.find_element(By.ID, "graph-colour"))
    assert choice.options[0].get_attribute("value") == "scheme"
    choice.select_by_value("damage")
    assert "damage" in text(browser, "#graph-key")
    shares = {n.get_attribute("style").partition("--share:")[2] for n in nodes(browser)}
    assert len(shares) > 5


def test_search_click_and_keys(browser: Any, tmp_path: Path) -> None:
    report = show(browser, tmp_path, journal())
    name = report["model"]["layers"][5]["name"]
    search = browser.find_element(By.ID, "graph-search")
    search.send_keys(name)
    found = browser.find_elements(By.CSS_SELECTOR, "#graph-box .node.found")
    assert "5" in [n.get_attribute("data-node") for n in found]
    assert text(browser, "#graph-count").startswith(str(len(found)))
    click(browser, nodes(browser)[5])
    assert name in text(browser, "#graph-layer")
    browser.execute_script("document.querySelector('#graph-box .node[data-node=\"5\"]').focus()")
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert browser.switch_to.active_element.get_attribute("data-node") == "6"
    assert report["model"]["layers"][6]["name"] in text(browser, "#graph-tip")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert report["model"]["layers"][6]["name"] in text(browser, "#graph-layer")
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not browser.find_element(By.ID, "graph-layer").is_displayed()


def test_a_circle_in_a_journal_hangs_nothing(browser: Any, tmp_path: Path) -> None:
    events = journal()
    count = len(events[0]["layers"])
    events[0]["layer_inputs"] = [[(i + 1) % count, 99999] for i in range(count)]
    show(browser, tmp_path, events)
    assert len(nodes(browser)) == count


def test_the_graph_of_500_layers_is_laid_out_and_scrolls_smoothly(
    browser: Any, tmp_path: Path
) -> None:
    events = journal(layers=500, trials=20, strategy="frontier")
    count = len(events[0]["layers"])
    # blocks of five with a skip, as residual nets have them
    events[0]["layer_inputs"] = [
        [] if i == 0 else [i - 1, i - 5] if i % 5 == 0 else [i - 1] for i in range(count)
    ]
    browser.get(write_page(tmp_path, build_report(events)).as_uri())
    wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "html[data-complete=true]"))
    assert len(nodes(browser)) == count
    start = time.monotonic()
    frames = browser.execute_async_script("""
      const done = arguments[0]; const box = document.getElementById("graph-box");
      box.scrollIntoView(); let frames = 0;
      const step = () => {
        box.scrollBy(0, 150);
        frames += 1;
        if (frames < 60) requestAnimationFrame(step); else done(frames);
      };
      requestAnimationFrame(step)""")
    assert frames == 60
    # 60 frames take 1 s; generous, for a busy machine
    assert time.monotonic() - start < 10

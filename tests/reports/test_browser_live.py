"""The live page and the pages of real runs in a real Chromium."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium")

from browser import click, pinned, points, text, wait  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402
from synthetic import journal  # noqa: E402

from serving import live_view  # noqa: E402


def test_the_live_view_follows_a_run_and_keeps_the_readers_choices(
    browser: Any, tmp_path: Path
) -> None:
    events = [json.dumps(e).replace("Infinity", "null") + "\n" for e in journal(trials=12)]
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(events[:10]))

    def status() -> str:
        return text(browser, "#status")

    def rows() -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, "#trial-table tbody tr"))

    with live_view(tmp_path) as url:
        browser.get(url)
        wait(browser, lambda _: text(browser, "#live") == "live")
        assert (status(), rows()) == ("running", 4)
        Select(browser.find_element(By.ID, "axis-x")).select_by_value("loss")
        browser.find_element(By.ID, "filter").send_keys("step")
        with open(path, "a") as journal_file:
            journal_file.write(events[10])
        wait(browser, lambda _: rows() == 5)
        with open(path, "a") as journal_file:
            journal_file.write("".join(events[11:]))
        wait(browser, lambda _: status() == "finished")
        assert rows() == 12
        chosen = Select(browser.find_element(By.ID, "axis-x")).first_selected_option
        assert chosen.get_attribute("value") == "loss"
        assert browser.find_element(By.ID, "filter").get_attribute("value") == "step"
        browser.get("about:blank")


def test_a_server_that_ends_is_said_and_the_page_stays(chromium: Any, tmp_path: Path) -> None:
    # without the console check: a refused connection is logged by the browser itself
    events = [json.dumps(e).replace("Infinity", "null") + "\n" for e in journal(reason=None)]
    (tmp_path / "journal.jsonl").write_text("".join(events))
    with live_view(tmp_path) as url:
        chromium.get(url)
        wait(chromium, lambda b: text(b, "#live") == "live")
    wait(chromium, lambda b: "no answer" in text(b, "#live"))
    assert len(chromium.find_elements(By.CSS_SELECTOR, "#trial-table tbody tr")) == 30


@pytest.mark.zoo
def test_a_real_run_is_followed_and_its_page_is_sound(browser: Any, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    config = root.parent / "shared" / "zoo" / "resnet20-cifar10.toml"
    out = tmp_path / "run"
    command = [sys.executable, "-m", "seqto", "tune", "--config", config, "--out", out]
    command += ["--strategy", "stepwise", "--max-trials", "6", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}

    def rows(_: Any) -> int:
        return len(browser.find_elements(By.CSS_SELECTOR, "#trial-table tbody tr"))

    with live_view(out) as url, subprocess.Popen(command, env=environment) as process:
        try:
            browser.get(url)  # no run yet: the list of runs loads itself again
            WebDriverWait(browser, 120).until(lambda b: b.find_elements(By.ID, "live"))
            WebDriverWait(browser, 200).until(lambda b: 0 < rows(b) < 6)
            WebDriverWait(browser, 200).until(lambda b: text(b, "#status") != "running")
            assert rows(browser) == 6
            assert process.wait(120) == 0
        finally:
            process.terminate()
            browser.get("about:blank")
    explore(browser, out)


@pytest.mark.zoo
@pytest.mark.parametrize("name", ["demo", "efficientnet-lite0"])
def test_the_page_of_a_real_run_can_be_explored(
    browser: Any, tmp_path: Path, downloads: Path, name: str
) -> None:
    root = Path(__file__).parents[2]
    config = root.parent / "shared" / "zoo" / f"{name}.toml"
    command = ["demo"] if name == "demo" else ["tune", "--config", str(config)]
    short = ["--max-trials", "6", "--quiet", "--set", "device.latency_s=0.05"]
    if name != "demo":
        for split in ("calibration", "evaluation", "report"):
            short += ["--set", f"data.{split}=24"]
    command = [sys.executable, "-m", "seqto", *command, "--out", str(tmp_path), *short]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(root / "src")}, check=True)
    report = explore(browser, tmp_path)
    for old in downloads.glob("trials*.csv"):
        old.unlink()
    click(browser, browser.find_element(By.ID, "csv"))
    file = wait(browser, lambda _: next(downloads.glob("trials*.csv"), None))
    assert len(list(csv.DictReader(io.StringIO(file.read_text("utf-8-sig"))))) == len(
        report["trials"]
    )


def explore(browser: Any, out: Path) -> dict[str, Any]:
    """The page of a finished run: every trial is there, axes change, two trials are compared."""
    browser.get((out / "report.html").as_uri())
    wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "html[data-ready=true]"))
    report: dict[str, Any] = json.loads((out / "report.json").read_text("utf-8"))
    whole = [t for t in report["trials"] if t["loss"] and not t["stopped_early"]]
    measured = [t["number"] for t in whole if t["same_as"] is None]
    assert set(points(browser)) <= set(measured)  # it starts with the useful ones in view
    browser.execute_script(
        "document.querySelector('#front-chart svg')"
        ".dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))"
    )
    assert set(points(browser)) == set(measured)
    Select(browser.find_element(By.ID, "axis-x")).select_by_value("latency")
    assert set(points(browser)) <= set(measured)
    Select(browser.find_element(By.ID, "axis-x")).select_by_value("size")
    for number in pinned(browser):  # the page opens with the recommended trial pinned
        click(browser, points(browser)[number])
    assert pinned(browser) == []
    for number in measured[:2]:
        click(browser, points(browser)[number])
    assert pinned(browser) == measured[:2]
    a, b = (report["trials"][n]["plan"] for n in measured[:2])
    apart = sum(a.get(x["name"]) != b.get(x["name"]) for x in report["model"]["layers"])
    rows = browser.find_elements(By.CSS_SELECTOR, "#compare-table tbody tr")
    assert len(rows) == apart > 0
    return report

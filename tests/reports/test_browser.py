"""The page in a real Chromium: what a reader can do with it, by mouse and by keyboard."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import EVIL_NAMES, Event, build_report, journal

from seqto.report.html_page import write_page
from seqto.report.live import live_view

pytestmark = pytest.mark.browser
selenium = pytest.importorskip("selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

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


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory, downloads: Path) -> Iterator[Any]:
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("needs Debian's chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield browser
    browser.quit()


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


def wait(browser: Any, check: Callable[[Any], Any]) -> Any:
    return WebDriverWait(browser, 10, poll_frequency=0.05).until(check)


def show(browser: Any, folder: Path, events: list[Event]) -> dict[str, Any]:
    report = build_report(events)
    browser.get(write_page(folder, report).as_uri())
    wait(browser, lambda b: b.find_element(By.CSS_SELECTOR, "html[data-ready=true]"))
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


@pytest.mark.parametrize("end", [0, 1, 3, 6, 8, 20])
def test_a_partial_run_renders(browser: Any, tmp_path: Path, end: int) -> None:
    show(browser, tmp_path, journal()[:end])
    assert text(browser, "#sentence")


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


def test_dark_follows_the_system_and_the_button(browser: Any, tmp_path: Path) -> None:
    def background() -> str:
        script = "return getComputedStyle(document.body).backgroundColor"
        return str(browser.execute_script(script))

    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    try:
        show(browser, tmp_path, journal())
        dark = background()
        browser.find_element(By.ID, "theme").click()
        assert background() != dark
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_texts_are_readable_in_both_themes(browser: Any, tmp_path: Path) -> None:
    show(browser, tmp_path, journal(slow=True))
    script = """
      const lum = (rgb) => { const c = rgb.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]; };
      const back = (e) => { for (; e; e = e.parentElement) {
        const b = getComputedStyle(e).backgroundColor;
        if (b.startsWith('rgb(')) return b; } return 'rgb(255,255,255)'; };
      const bad = [];
      const all = 'h1,h2,h3,p,li,th,td,dd,dt,button,label,small,b,span,code';
      for (const e of document.querySelectorAll(all)) {
        if (!e.textContent.trim() || !e.offsetParent) continue;
        const [x, y] = [lum(getComputedStyle(e).color), lum(back(e))];
        const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
        if (ratio < 4.5) bad.push(e.tagName + ': ' + e.textContent.slice(0, 30) + ' ' + ratio);
      }
      return bad;"""
    assert browser.execute_script(script) == []
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script(script) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Any, tmp_path: Path, theme: str) -> None:
    found = sorted((Path(__file__).parents[2] / ".tools").glob("axe-core-*/axe.min.js"))
    if not found:
        pytest.skip("needs axe-core: scripts/axe-core fetches it")
    show(browser, tmp_path, journal(strategy="frontier", slow=True))
    if theme == "dark":
        browser.find_element(By.ID, "theme").click()
    browser.execute_script(
        "for (const d of document.querySelectorAll('details')) d.open = true;"
        "document.querySelector('[data-layer-button]').click();"
    )
    browser.execute_script(found[-1].read_text("utf-8"))
    result = browser.execute_async_script(
        "const done = arguments[0]; axe.run(document).then(done, (e) => done(String(e)))"
    )
    assert isinstance(result, dict), result
    bad = [
        (v["id"], v["impact"], [n["html"][:120] for n in v["nodes"][:3]])
        for v in result["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert bad == []
    assert len(result["passes"]) > 15  # it did look


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
    measured = [t["number"] for t in report["trials"] if t["loss"]]
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

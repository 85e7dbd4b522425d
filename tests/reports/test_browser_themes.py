"""Light, dark and accessibility of the page in a real Chromium."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
pytest.importorskip("selenium")

from browser import show  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from synthetic import journal  # noqa: E402


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

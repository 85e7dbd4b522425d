from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import EVIL_NAMES, build_report, journal

from seqto.report.html_page import embed, page_data, render, render_index, write_page

ASSETS = resources.files("seqto.report") / "assets"


class Page(HTMLParser):
    """What a browser would see: elements, attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.cdata_elem == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)


def policy_of(page: Page) -> str:
    wanted = "Content-Security-Policy"
    found = next(a["content"] for _, a in page.tags if a.get("http-equiv") == wanted)
    assert found is not None
    return found


def data_of(page: Page) -> dict[str, object]:
    text = next(t for attrs, t in page.scripts if attrs.get("type") == "application/json")
    found: dict[str, object] = json.loads(text)
    return found


def test_the_page_needs_no_network() -> None:
    text = render(build_report(journal()), folder="run")
    for tag, attrs in Page(text).tags:
        assert tag not in ("iframe", "object", "embed", "form" if "action" in attrs else "")
        for name in ("src", "href"):
            value = attrs.get(name)
            assert value is None or value.startswith(("#", "data:,"))
    css = (ASSETS / "page.css").read_text("utf-8")
    assert "url(" not in css
    assert "@import" not in css


def test_sections_are_in_the_order_a_reader_wants_them() -> None:
    page = Page(render(build_report(journal()), folder="run"))
    assert [a["id"] for tag, a in page.tags if tag == "section"] == [
        "recommendation",
        "front",
        "diagnosis",
        "graph",
        "layers",
        "objectives",
        "run-time",
        "failures",
        "settings",
        "trials",
    ]


def test_names_from_strangers_stay_data() -> None:
    clean = Page(render(build_report(journal(layers=20)), folder="run"))
    for name in EVIL_NAMES:
        report = build_report(journal(layers=20, names=EVIL_NAMES, name=name))
        page = Page(render(report, folder=name))
        assert [t for t, _ in page.tags] == [t for t, _ in clean.tags]
        layers = data_of(page)["layers"]
        assert [row["name"] for row in layers] == list(EVIL_NAMES)  # type: ignore[attr-defined]


def test_only_the_pages_own_scripts_may_run() -> None:
    page = Page(render(build_report(journal()), folder="run"))
    policy = policy_of(page)
    allowed = re.search("script-src ([^;]*)", policy)
    assert allowed is not None
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() + "'"
        for attrs, t in page.scripts
        if "type" not in attrs
    ]
    assert len(hashes) == 3
    assert allowed[1].split() == hashes
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    live = Page(render(build_report([]), folder="run", live=True))
    assert "connect-src 'self'" in policy_of(live)


def test_our_scripts_never_turn_text_into_markup() -> None:
    for name in ("page_facts.js", "page_charts.js", "page_tables.js", "page_main.js"):
        script = (ASSETS / name).read_text("utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in script
        assert "</script" not in script


@settings(max_examples=40, deadline=None)
@given(st.recursive(st.text() | st.none() | st.integers(), lambda x: st.dictionaries(st.text(), x)))
def test_embedded_json_means_the_same_and_cannot_end_its_element(value: object) -> None:
    text = embed(value)
    assert not set(text) & set("<>&\u2028\u2029")
    text.encode("utf-8")
    assert json.loads(text) == value


def test_two_hundred_layers_and_five_hundred_trials_fit_in_three_megabytes(tmp_path: Path) -> None:
    names = tuple(
        f"/backbone/stage{i}/block/attention/projection/output/MatMul" for i in range(200)
    )
    report = build_report(journal(layers=200, trials=500, strategy="frontier", names=names))
    assert len(report["trials"]) == 500
    assert write_page(tmp_path, report).stat().st_size < 3_000_000


def test_plans_survive_their_short_form() -> None:
    report = build_report(journal(strategy="frontier"))
    data = page_data(report, folder="run")
    assert data["kinds"] == {code: code.split("-")[0] for code in data["schemes"]}
    for trial, short in zip(report["trials"], data["trials"], strict=True):
        codes = [data["schemes"][ord(sign) - 48] for sign in short["plan"]]
        names = [row["name"] for row in report["model"]["layers"]]
        plan = {name: code for name, code in zip(names, codes, strict=True) if code != "fp32"}
        assert plan == trial["plan"]


@pytest.mark.parametrize("end", [0, 1, 2, 3, 5, 8])
def test_a_page_can_be_made_at_any_moment(end: int) -> None:
    assert "</html>" in render(build_report(journal()[:end]), folder="run")


def test_a_name_that_looks_like_a_placeholder_is_not_filled_in() -> None:
    text = render(build_report(journal(name="{{DATA}}{{CSS}}")), folder="run")
    assert '<h1 id="model-name">{{DATA}}{{CSS}}</h1>' in text


def test_index_escapes_what_it_lists() -> None:
    rows = [
        {"href": f"/runs/{i}/", "name": name, "status": name, "trials": 1, "sentence": name}
        for i, name in enumerate(EVIL_NAMES)
    ]
    page = Page(render_index(rows, folder=EVIL_NAMES[0]))
    assert not {"script", "img", "svg"} & {tag for tag, _ in page.tags}
    assert sum(tag == "a" for tag, _ in page.tags) == len(rows)


def test_libraries_come_with_their_licence() -> None:
    for name in ("d3", "plot"):
        assert "Permission to use, copy" in (ASSETS / f"{name}.LICENSE.txt").read_text("utf-8")


def test_libraries_are_the_published_files() -> None:
    script = Path(__file__).parents[2] / "scripts" / "vendor_assets"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.returncode == 0


def test_a_page_of_ten_thousand_trials_holds_a_sample_with_front_and_picks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seqto.report.html_page.MOST_TRIALS", 40)
    report = build_report(journal(trials=120, strategy="frontier"))
    data = page_data(report, folder="runs/x")
    shown = [t["number"] for t in data["trials"]]
    assert len(shown) <= max(40, len(report["front"]) + 8)
    assert shown == sorted(set(shown))
    assert {*report["front"], *report["recommended"].values()} <= set(shown)
    assert any("of 120 trials" in warning for warning in data["warnings"])


def test_the_axis_of_losses_is_named_in_the_tasks_words() -> None:
    report = build_report(journal())
    report["output"] = {"changed": "tokens"}
    table = page_data(report, folder="run")["objective_table"]
    labels = {row["name"]: row["label"] for row in table}
    assert labels["loss"] == "tokens changed"
    assert labels["size"] == "file size"

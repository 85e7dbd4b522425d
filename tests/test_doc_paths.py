"""Files and groups that the documents name exist, and no document names a room that is gone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from seqto import plugins

ROOT = Path(__file__).resolve().parent.parent
OUT_OF_DATE = ("0001-layout.md", "0005-judging-in-main.md")  # they say themselves that they are
PAGES = [
    path
    for path in [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if path.name not in OUT_OF_DATE
]
NAMED = re.compile(r"`((?:[\w.]+/)*[a-z]\w*\.py)`")
EXAMPLE = re.compile(r"(^|/)x\.py$")  # the file that somebody is about to add


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    places = (ROOT, ROOT / "src" / "seqto", ROOT / "benchmarks")
    missing = [
        name
        for name in NAMED.findall(page.read_text(encoding="utf-8"))
        if not EXAMPLE.search(name) and not any((place / name).is_file() for place in places)
    ]
    assert missing == []


def test_the_drawing_of_the_rooms_names_them_all() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawing = text.split("```text")[1].split("```")[0]
    package = ROOT / "src" / "seqto"
    rooms = {p.name + "/" for p in package.iterdir() if (p / "__init__.py").is_file()}
    files = {p.stem for p in package.glob("*.py") if not p.stem.startswith("__")}
    words = set(drawing.split())
    assert rooms | files <= words
    assert {w for w in words if w.endswith("/")} == rooms


def test_the_list_of_decisions_has_each_page_under_its_title_and_number() -> None:
    folder = ROOT / "docs" / "adr"
    pages = [p for p in sorted(folder.glob("*.md")) if p.name != "README.md"]
    titles = [p.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ") for p in pages]
    for number, (page, title) in enumerate(zip(pages, titles, strict=True), 1):
        assert page.name.startswith(f"{number:04d}-")
        assert title.startswith(f"{number}. ")
    rows = [f"- [{title}]({page.name})" for page, title in zip(pages, titles, strict=True)]
    assert (folder / "README.md").read_text(encoding="utf-8").splitlines()[4:] == rows


def test_the_pages_for_plugin_authors_name_every_group() -> None:
    for name in ("docs/python.md", "docs/architecture.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert [g for g in plugins.BUILT_IN if f"`{g}`" not in text] == [], name

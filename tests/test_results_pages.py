"""The tables of the results pages are those that the JSON files give."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import results_page  # noqa: E402

# pages whose every table is made from a JSON file
GENERATED = ("classifiers", "pictures", "peers", "papers", "devices")


@pytest.mark.parametrize("page", results_page.pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_tables_of_a_page_equal_the_json_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert results_page.filled(text) == text, "run python benchmarks/results_page.py"


@pytest.mark.parametrize("name", GENERATED)
def test_no_table_of_a_detail_page_is_written_by_hand(name: str) -> None:
    text = (ROOT / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
    rest = results_page.BLOCK.sub("", text)
    assert not re.search(r"^\|", rest, re.MULTILINE)


def test_a_changed_figure_is_seen() -> None:
    text = "<!-- table: papers quoted -->\n\n| old |\n\n<!-- end of table -->"
    made = results_page.filled(text)
    assert made != text
    assert results_page.filled(made) == made


def test_an_unknown_table_is_named() -> None:
    with pytest.raises(SystemExit, match="no table 'none such'"):
        results_page.filled(
            "<!-- table: none such --><!-- end of table -->".replace("--><", "-->\n<")
        )

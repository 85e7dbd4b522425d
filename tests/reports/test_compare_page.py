"""The page of a comparison: both fronts, the picks of both runs, names as text."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from synthetic import EVIL_NAMES, build_report, journal

from seqto.errors import ConfigError
from seqto.report import compare_page
from seqto.report.compare import compare

BEFORE, AFTER = build_report(journal(seed=1)), build_report(journal(seed=2))


def test_both_fronts_are_in_one_picture() -> None:
    svg = ElementTree.fromstring(compare_page.both_fronts(BEFORE, AFTER))
    for side, report in (("before", BEFORE), ("after", AFTER)):
        group = svg.find(f"g[@class='{side}']")
        assert group is not None
        assert len(group.findall("circle[@class='dot']")) == len(report["front"])
        assert len(group.findall("circle[@class='ring']")) == 1
    numbers = [float(c.get(k, "nan")) for c in svg.iter("circle") for k in ("cx", "cy")]
    assert all(0 <= n <= compare_page.WIDTH for n in numbers)


def test_the_page_says_the_verdict_and_the_picks() -> None:
    result = compare(BEFORE, AFTER, margin=0.0)
    text = compare_page.render(result, BEFORE, AFTER)
    assert "<script" not in text
    assert text.count("<small>before</small>") == text.count("<small>after</small>") >= 3
    for row in result["rows"]:
        assert row["text_change"] in text


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_names_are_text(name: str) -> None:
    report = build_report(journal(name=name, trials=4))
    text = compare_page.render(compare(report, report, margin=0.0), report, report)
    assert "<script" not in text
    assert "<img" not in text


def test_a_run_without_trials_can_be_compared() -> None:
    empty = build_report(journal()[:3])
    text = compare_page.render(compare(empty, AFTER, margin=0.0), empty, AFTER)
    assert "not there" in text
    nothing = compare_page.render(compare(empty, empty, margin=0.0), empty, empty)
    assert "Neither run has a measured trial" in nothing


def test_only_a_page_of_ours_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    compare_page.check_page(path)
    path.write_text(compare_page.render(compare(BEFORE, AFTER, margin=0.0), BEFORE, AFTER))
    compare_page.check_page(path)
    (tmp_path / "link.html").symlink_to(path)
    path.with_name("nowhere.html").symlink_to("nowhere")
    for name in ("link.html", "nowhere.html"):
        with pytest.raises(ConfigError, match="choose another name"):
            compare_page.check_page(tmp_path / name)
    path.write_text("mine")
    with pytest.raises(ConfigError, match="choose another name"):
        compare_page.check_page(path)

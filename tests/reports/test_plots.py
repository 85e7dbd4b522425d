from __future__ import annotations

import os
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from synthetic import EVIL_NAMES, build_report, journal

from seqto.report.plots import NAMES, draw, write_plots


def test_all_plots_are_made_as_png_and_svg(tmp_path: Path) -> None:
    made = write_plots(tmp_path / "plots", build_report(journal()))
    assert {p.name for p in made} == {f"{n}.{k}" for n in NAMES for k in ("png", "svg")}
    for path in made:
        assert path.stat().st_size > 5_000


def test_pngs_have_print_resolution() -> None:
    content = draw(build_report(journal()), "front")
    assert content is not None
    assert content.startswith(b"\x89PNG")
    where = content.index(b"pHYs") + 4
    per_metre = struct.unpack(">I", content[where : where + 4])[0]
    assert round(per_metre * 0.0254) == 200


@pytest.mark.parametrize("name", NAMES)
def test_names_full_of_mathematics_and_markup_are_drawn_as_they_are(name: str) -> None:
    report = build_report(journal(layers=20, names=EVIL_NAMES, name="$\\frac{1}{$ & <b>"))
    content = draw(report, name, kind="svg")
    assert content is not None
    texts = "".join(ET.fromstring(content).itertext())
    assert "$\\frac{1}{$ & <b>" in texts
    if name == "layer_errors":
        assert "$\\undefined$" in texts
        assert "\x1b" not in texts


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_drawn_from_nothing(name: str) -> None:
    assert draw(build_report(journal()[:1]), name) is None


@pytest.mark.parametrize("variant", [{"trials": 1, "failures": 0}, {"latency": False}])
def test_little_is_drawn_from_little(variant: dict[str, object]) -> None:
    report = build_report(journal(**variant))  # type: ignore[arg-type]
    assert all(draw(report, name, kind="svg") for name in NAMES)


def test_picks_with_as_many_float_layers_are_named_in_lines() -> None:
    """Of a sentence encoder all picks kept no layer float: the names in a row left no room."""
    report = build_report(journal(strategy="frontier"))
    kept = [t for t in report["trials"] if t["error"] is None][:7]
    for trial in kept:
        trial["excluded"] = []
    titles = ("balanced", "portable", "drop-in", "small", "fast", "lowest loss", "smallest")
    rows = zip(kept, titles, strict=True)
    report["picks"] = [{"trial": t["number"], "title": title} for t, title in rows]
    content = draw(report, "objectives", kind="svg")  # warnings are errors here
    assert content is not None
    for title in titles:
        assert title in "".join(ET.fromstring(content).itertext())


def test_the_same_report_gives_the_same_svg() -> None:
    report = build_report(journal())
    assert draw(report, "front", kind="svg") == draw(report, "front", kind="svg")


def test_random_data_are_marked_in_the_plot() -> None:
    content = draw(build_report(journal(kind="random")), "front", kind="svg")
    assert content is not None
    assert "random inputs" in "".join(ET.fromstring(content).itertext())


@pytest.mark.parametrize("date", ["x", "-1", "1e3", "9" * 30, "0"])
def test_a_build_date_that_is_no_date_stops_no_plot(
    date: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
    assert draw(build_report(journal()), "front", kind="svg")
    assert os.environ["SOURCE_DATE_EPOCH"] == date


def test_a_backend_that_does_not_exist_stops_no_plot() -> None:
    program = (
        "from synthetic import build_report, journal\n"
        "from seqto.report.plots import draw\n"
        "assert draw(build_report(journal()), 'front')\n"
    )
    environment = {
        **os.environ,
        "MPLBACKEND": "nonsense",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=120)


def test_float_beyond_the_frame_is_named_with_its_size() -> None:
    report = build_report(journal(strategy="frontier"))
    report["baseline"]["size_bytes"] = 10 * max(t["size_bytes"] for t in report["trials"])
    content = draw(report, "front", kind="svg")
    assert content is not None
    texts = "".join(ET.fromstring(content).itertext())
    assert f"float: {report['baseline']['size_bytes'] / 1e6:.2f} MB" in texts
    assert "in search (%)" in texts
    assert all(row["title"] in texts for row in report["picks"][:1])


def marks(content: bytes | None) -> int:
    """Count the signs that a plot as SVG has."""
    assert content is not None
    return sum(element.tag.endswith("}use") for element in ET.fromstring(content).iter())


@pytest.mark.parametrize("name", ["objectives", "front"])
def test_of_a_long_run_a_sample_is_drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    report = build_report(journal(trials=120, strategy="frontier"))
    whole = marks(draw(report, name, kind="svg"))
    monkeypatch.setattr("seqto.report.plots.MOST_TRIALS", 40)
    content = draw(report, name, kind="svg")
    assert whole - 3 * 80 <= marks(content) < whole - 40
    texts = "".join(ET.fromstring(content or b"").itertext())
    assert ("sample of the other trials" in texts) == (name == "front")

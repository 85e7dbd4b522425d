"""A result in a notebook: HTML that shows itself; the example notebook from end to end."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from synthetic import EVIL_NAMES, build_report, journal, state_of

from seqto.record.events import ProbeFinished
from seqto.report import notebook, wording

EXAMPLE = Path(__file__).parents[2] / "examples" / "tune.ipynb"


def test_the_result_says_the_sentence_the_picks_and_the_front() -> None:
    report = build_report(journal())
    text = notebook.result_html(report, folder="runs/x")
    ElementTree.fromstring(text)  # every element is closed
    assert wording.recommendation(report).split(":")[0] in text
    assert report["picks"]
    for pick in report["picks"]:
        assert pick["title"] in text
    sizes = {t["number"]: t["size_bytes"] for t in report["trials"] if t["loss"]}
    largest = max(sizes[number] for number in report["front"])
    assert text.count("<circle") == sum(size <= largest for size in sizes.values()) + 1
    assert "runs/x/report.html" in text


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_names_are_text(name: str) -> None:
    report = build_report(journal(name=name, trials=4))
    text = notebook.result_html(report, folder=name)
    ElementTree.fromstring(text)
    assert not re.search(r"<(script|img)", text)


def test_a_run_without_trials_has_no_front() -> None:
    report = build_report(journal()[:3])
    assert notebook.small_front(report) == ""
    assert notebook.plot(report, "front") is None


def test_a_picture_shows_itself_and_is_saved(tmp_path: Path) -> None:
    picture = notebook.plot(build_report(journal(trials=4)), "front")
    assert picture is not None
    assert "<svg" in picture._repr_svg_()
    assert picture.save(tmp_path / "front.svg").read_text("utf-8") == picture.svg


def test_progress_is_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    display = pytest.importorskip("IPython.display")
    lines: list[str] = []

    class Handle:
        def update(self, shown: Any) -> None:
            lines.append(shown.data)

    def show(shown: Any, *, display_id: bool) -> Handle:
        lines.append(shown.data)
        return Handle()

    monkeypatch.setattr(display, "display", show)
    monkeypatch.setattr(notebook, "EVERY_S", 0.0)
    progress = notebook.NotebookProgress()
    progress.step("calibration", 1, 2)
    state = state_of(journal(trials=3))
    progress.event(ProbeFinished(state.trials[0]))
    assert "calibration 1/2" in lines[0]
    assert "probing layers, 1 done" in lines[1]


@pytest.mark.slow
def test_the_example_notebook_runs(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    book = nbformat.read(EXAMPLE, as_version=4)
    # the kernel is this interpreter, whatever kernels are installed
    spec = tmp_path / "kernels" / "python3"
    spec.mkdir(parents=True)
    command = f'"{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"'
    (spec / "kernel.json").write_text(
        f'{{"argv": [{command}], "display_name": "x", "language": "python"}}'
    )
    client = nbclient.NotebookClient(
        book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.create_kernel_manager()
    client.km.kernel_spec_manager.kernel_dirs.insert(0, str(tmp_path / "kernels"))
    client.execute()
    outputs = [cell.outputs for cell in book.cells if cell.cell_type == "code"]
    assert "samples that no search has seen" in outputs[0][-1].data["text/html"]
    assert "<svg" in outputs[1][-1].data["image/svg+xml"]
    assert "bytes, trial" in outputs[3][-1].text

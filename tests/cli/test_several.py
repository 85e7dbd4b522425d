"""Several models in one command: a bad one stops no other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import runs
from seqto.api.several import TimeShare
from seqto.cli.exit_codes import SOME_FAILED
from seqto.cli.main import main
from seqto.study import open_executor
from seqto.testing.executors import InlineExecutor


def test_a_bad_model_is_one_line_and_the_others_are_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(open_executor, "LocalExecutor", InlineExecutor)
    config = runs.write_config(tmp_path)
    good = (tmp_path / "net.onnx").read_bytes()
    models = tmp_path / "models"
    models.mkdir()
    for name, content in (("a", good), ("broken", b"no model"), ("c", good)):
        (models / f"{name}.onnx").write_bytes(content)
    paths = [str(p) for p in sorted(models.iterdir())]
    out = tmp_path / "out"
    words = ["tune", *paths, str(models / "missing.onnx"), "--config", str(config)]
    code = main([*words, "--out", str(out), "--max-trials", "2"])
    shown = capsys.readouterr()
    assert code == SOME_FAILED
    assert (out / "a" / "report.json").is_file()
    assert (out / "c" / "report.json").is_file()
    assert "broken" in shown.out
    assert "failed" in shown.out
    failures = [x for x in shown.err.splitlines() if "broken:" in x or "missing.onnx:" in x]
    assert len(failures) == 2
    page = (out / "index.html").read_text()
    assert "a/report.html" in page
    assert "not a readable ONNX model" in page
    assert "http-equiv='refresh'" not in page


def test_an_index_of_somebody_else_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = runs.write_config(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("mine")
    words = ["tune", str(tmp_path / "x.onnx"), str(tmp_path / "y.onnx"), "--config", str(config)]
    assert main([*words, "--out", str(out)]) == SOME_FAILED
    assert (out / "index.html").read_text() == "mine"
    assert "is not ours" in capsys.readouterr().err


def test_models_share_the_time_of_the_command() -> None:
    share = TimeShare(10.0, at_once=2, waiting=4)
    first = [share.next_minutes() for _ in range(2)]
    assert first == pytest.approx([5.0, 5.0], abs=0.01)
    share.began = time.monotonic() - 5 * 60
    assert [share.next_minutes() for _ in range(2)] == pytest.approx([5.0, 5.0], abs=0.01)
    assert TimeShare(None, 2, 4).next_minutes() is None

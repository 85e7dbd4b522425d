"""Results of analyze, diagnose and export never replace what is not theirs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import nets
from short_run import (
    MINE,
    SHORT,
    Done,
    content,
    is_one_line,
    put,
    seqto,
    short_run,
)


@pytest.fixture(autouse=True)
def without_plots(request: pytest.FixtureRequest) -> None:
    """Reports are written again and again here: plots only where they are the subject."""
    if "plots" not in request.node.name:
        request.getfixturevalue("inline")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return short_run(tmp_path_factory.mktemp("done"))


# ------------------------------------------------------------------------- analyze and diagnose


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    model = nets.residual(uneven=True)
    nets.save(model, tmp_path / "net.onnx")
    nets.save_samples(tmp_path / "rows.npz", 24, model=model)
    few = ["--set", "data.calibration=4", "--set", "search.jobs=1"]
    return [str(tmp_path / "net.onnx"), "--data", str(tmp_path / "rows.npz"), *few]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("analyze", "analysis.json"),
        ("analyze", "plots/layer_errors.png"),
        ("diagnose", "diagnosis.json"),
    ],
)
def test_a_file_of_the_users_where_a_result_belongs_is_refused_before_the_work(
    small: list[str], tmp_path: Path, command: str, name: str
) -> None:
    out = tmp_path / "out"
    put(out, [name, "notes.txt"])
    code, error = seqto(command, *small, "--out", out)
    assert code == 2
    assert is_one_line(error)
    assert name in error
    assert content(out) == {name: MINE, "notes.txt": MINE}


def test_analyze_works_twice_beside_files_of_the_users_which_then_are_no_run(
    small: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    put(out, ["notes.txt"])
    for _ in range(2):
        assert seqto("analyze", *small, "--out", out) == (0, "")
    assert (out / "notes.txt").read_bytes() == MINE
    before = content(out)
    code, error = seqto("tune", *small, "--out", out, "-q", *SHORT)
    assert code == 2
    assert "notes.txt" in error
    assert content(out) == before


def test_analyze_works_in_a_run_folder_and_tune_in_one_of_analyze(
    done: Done, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ("--config", done.config, "--out", run, *SHORT)
    assert seqto("analyze", *words) == (0, "")
    assert done.again(run) == (0, "")
    assert seqto("analyze", *words) == (0, "")
    assert seqto("report", run) == (0, "")


# --------------------------------------------------------------------------------------- export


def test_export_never_replaces_its_own_source(small: list[str], tmp_path: Path) -> None:
    model = Path(small[0])
    before = model.read_bytes()
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.onnx").symlink_to(model)
    os.link(model, tmp_path / "hard.onnx")
    for output in (model, tmp_path / "sub" / ".." / "net.onnx", "link.onnx", "hard.onnx"):
        code, error = seqto("export", *small, "-o", tmp_path / output)
        assert code == 2
        assert is_one_line(error)
    assert model.read_bytes() == (tmp_path / "hard.onnx").read_bytes() == before
    assert (tmp_path / "link.onnx").is_symlink()


def test_a_model_of_ours_is_not_exported_over_itself(done: Done, tmp_path: Path) -> None:
    made = tmp_path / "made.onnx"
    assert seqto("export", done.out, "-o", made)[0] == 0
    before = made.read_bytes()
    code, error = seqto("export", made, "--mode", "weight", "-o", made)
    assert code == 2
    assert "itself" in error
    assert made.read_bytes() == before


def test_export_replaces_an_export_but_nothing_else(done: Done, tmp_path: Path) -> None:
    made = tmp_path / "made.onnx"
    for trial in ("0", "1"):
        assert seqto("export", done.out, "--trial", trial, "-o", made)[0] == 0
    float_model = tmp_path / "float.onnx"
    shutil.copy(done.config.parent / "net.onnx", float_model)
    put(tmp_path, ["notes.txt", "empty"])
    (tmp_path / "empty").write_bytes(b"")
    before = content(tmp_path)
    for name in ("float.onnx", "notes.txt", "empty"):
        code, error = seqto("export", done.out, "-o", tmp_path / name)
        assert code == 2
        assert is_one_line(error)
        assert name in error
    assert content(tmp_path) == before


@pytest.mark.parametrize(
    "name",
    [
        "journal.jsonl",
        "variants/base/model.onnx",
        "variants/new.onnx",
        "models/trial-0.onnx",
        "models/trial-77.onnx",
        "report.json",
        "seqto-files.jsonl",
        "cache/x.onnx",
        "sub/../journal.jsonl",
        "journal.lock",
    ],
)
@pytest.mark.parametrize("source", ["run", "model"])
def test_export_writes_no_name_that_belongs_to_a_run(
    done: Done, tmp_path: Path, name: str, source: str
) -> None:
    run = done.copy(tmp_path)
    before = content(run)
    given = [run] if source == "run" else [done.config.parent / "net.onnx", "--mode", "weight"]
    code, error = seqto("export", *given, "-o", run / name)
    assert code == 2
    assert is_one_line(error)
    assert content(run) == before
    assert not (run / "cache").exists()


def test_export_may_write_a_new_name_beside_the_files_of_a_run(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    assert seqto("export", run, "-o", run / "best.onnx")[0] == 0
    assert (run / "best.onnx").is_file()


@pytest.mark.parametrize("source", ["run", "model"])
def test_an_output_that_cannot_be_written_is_one_line_and_leaves_nothing(
    done: Done, tmp_path: Path, source: str
) -> None:
    (tmp_path / "folder").mkdir()
    put(tmp_path, ["file"])
    given = [done.out] if source == "run" else [done.config.parent / "net.onnx", "--mode", "weight"]
    for output in (tmp_path / "folder", tmp_path / "file" / "x.onnx", tmp_path / ("n" * 300), ""):
        code, error = seqto("export", *given, "-o", output)
        assert code == 2
        assert is_one_line(error)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


# ---------------------------------------------------------------------------------- empty names


@pytest.mark.parametrize("command", ["tune", "demo", "analyze", "diagnose"])
def test_an_empty_out_is_refused(
    done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [] if command == "demo" else ["--config", str(done.config)]
    code, error = seqto(command, *words, "--out", "", "-q", *SHORT)
    assert code == 2
    assert is_one_line(error)
    assert "empty" in error
    assert os.listdir(tmp_path) == []


def test_an_empty_out_is_refused_by_the_function_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqto import tune
    from seqto.errors import ConfigError

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="empty"):
        tune(tmp_path / "net.onnx", out="", data=[np.zeros(3)])

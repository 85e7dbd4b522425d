"""What a run did not write is never removed or replaced, and nothing is written elsewhere."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nets
import runs
from seqto.cli.main import main

MINE = b"the user's own"


def seqto(*words: str | Path) -> tuple[int, str]:
    """The command in this process: exit code and stderr."""
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        code = main([str(w) for w in words])
    return code, err.getvalue()


@dataclasses.dataclass(frozen=True)
class Done:
    """A short finished run; tests change copies of it."""

    config: Path
    out: Path

    def copy(self, folder: Path) -> Path:
        shutil.copytree(self.out, folder / "run", symlinks=True)
        return folder / "run"

    def again(self, run: Path) -> tuple[int, str]:
        return seqto("tune", "--config", self.config, "--out", run, "-q", *SHORT)


SHORT = ("--max-trials", "2", "--jobs", "1")


@pytest.fixture(autouse=True)
def without_plots(request: pytest.FixtureRequest) -> None:
    """Reports are written again and again here: plots only where they are the subject."""
    if "plots" not in request.node.name:
        request.getfixturevalue("inline")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("done")
    made = Done(runs.write_config(folder), folder / "out")
    code, error = made.again(made.out)
    assert (code, error) == (0, "")
    return made


def put(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(MINE)


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def is_one_line(error: str) -> bool:
    return error.startswith("seqto: ") and error.count("\n") == 1 and error.endswith("\n")


def recommended(run: Path) -> Path:
    number = json.loads((run / "report.json").read_text())["recommended"]["loss"]
    return run / "models" / f"trial-{number}.onnx"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ------------------------------------------------------------------- folders that are not a run


@pytest.mark.parametrize(
    "name",
    ["variants/base/notes.txt", "cache/notes.txt", "models/trial-9.onnx", "report.html", "notes"],
)
@pytest.mark.parametrize("command", ["tune", "demo"])
def test_a_folder_with_files_of_the_users_is_refused_and_stays_as_it_is(
    done: Done, tmp_path: Path, name: str, command: str
) -> None:
    put(tmp_path, [name])
    words = ["--config", done.config] if command == "tune" else []
    code, error = seqto(command, *words, "--out", tmp_path, "-q", *SHORT)
    assert code == 2
    assert is_one_line(error)
    assert "not empty" in error
    assert content(tmp_path) == {name: MINE}


def test_a_dry_run_says_already_that_the_folder_is_refused(done: Done, tmp_path: Path) -> None:
    put(tmp_path, ["notes"])
    code, error = seqto("tune", "--config", done.config, "--out", tmp_path, "--dry-run")
    assert code == 2
    assert "not empty" in error


@pytest.mark.parametrize(
    "text", [b"one line of mine\n", b"no newline", b'{"event":"login"}\n', b'{"a":1}', b"12\n"]
)
@pytest.mark.parametrize("marked", [False, True])
def test_a_foreign_journal_is_never_emptied(
    done: Done, tmp_path: Path, text: bytes, marked: bool
) -> None:
    run = tmp_path / "run"
    if marked:  # a folder of ours, in which somebody has put another file of that name
        done.copy(tmp_path)
    else:
        run.mkdir()
    (run / "journal.jsonl").write_bytes(text)
    code, error = done.again(run)
    assert code == 2
    assert is_one_line(error)
    assert (run / "journal.jsonl").read_bytes() == text


def test_a_foreign_lock_file_is_not_emptied(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    put(run, ["journal.lock"])
    code, error = done.again(run)
    assert code == 2
    assert "journal.lock" in error
    assert (run / "journal.lock").read_bytes() == MINE


def test_a_run_killed_before_its_first_record_can_be_started_again(
    done: Done, tmp_path: Path
) -> None:
    run = done.copy(tmp_path)
    (run / "journal.jsonl").write_bytes((run / "journal.jsonl").read_bytes()[:40])
    (run / "variants" / "base" / "model.onnx").write_bytes(b"half")
    assert done.again(run) == (0, "")


# ----------------------------------------------------------------------------- in a run folder


def test_files_added_to_a_run_survive_a_report_and_the_same_command(
    done: Done, tmp_path: Path
) -> None:
    run = done.copy(tmp_path)
    names = ["models/trial-99.onnx", "models/trial-mine.onnx", "cache/notes.txt", "plots/mine.png"]
    names += ["variants/mine/model.onnx", "cache/samples/mine.npy", "notes.txt"]
    shutil.copy(recommended(run), run / "models" / "copy.onnx")
    put(run, [n for n in names if "samples" not in n])
    for command in (("report", run), None):
        code, error = seqto(*command) if command else done.again(run)
        assert (code, error) == (0, "")
        left = content(run)
        assert all(left[n] == MINE for n in names if "samples" not in n)
        assert "models/copy.onnx" in left
    assert not (run / "cache" / "samples").exists()


def test_samples_of_the_users_are_neither_used_nor_removed(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    put(run, ["cache/samples/input-0.npy"])
    code, error = done.again(run)
    assert code == 2
    assert is_one_line(error)
    assert "cache/samples" in error
    assert (run / "cache/samples/input-0.npy").read_bytes() == MINE


def test_what_is_no_longer_recommended_is_removed_if_the_run_wrote_it(
    done: Done, tmp_path: Path
) -> None:
    from seqto.record.own_files import OwnFiles

    run = done.copy(tmp_path)
    OwnFiles.read(run).write(run / "models" / "trial-7.onnx", b"ours")
    OwnFiles.read(run).write(run / "models" / "trial-8.onnx", b"ours")
    put(run, ["models/trial-8.onnx"])
    assert seqto("report", run) == (0, "")
    assert not (run / "models" / "trial-7.onnx").exists()
    assert (run / "models" / "trial-8.onnx").read_bytes() == MINE


@pytest.mark.parametrize("damage", ["flipped byte", "cut", "empty", "gone"])
@pytest.mark.parametrize("command", ["report", "tune"])
def test_a_damaged_model_of_the_run_is_made_again(
    done: Done, tmp_path: Path, damage: str, command: str
) -> None:
    run = done.copy(tmp_path)
    path = recommended(run)
    good, data = sha256(path), bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes({"flipped byte": data, "cut": data[:500], "empty": b""}[damage])
    code, error = seqto("report", run) if command == "report" else done.again(run)
    assert (code, error) == (0, "")
    assert sha256(path) == good


@pytest.mark.parametrize("command", ["report", "tune"])
def test_a_foreign_model_is_named_and_kept_and_the_rest_is_written(
    done: Done, tmp_path: Path, command: str
) -> None:
    run = done.copy(tmp_path)
    path = recommended(run)
    path.write_bytes(MINE)
    (run / "report.html").unlink()
    code, error = seqto("report", run) if command == "report" else done.again(run)
    assert code == 2
    assert is_one_line(error)
    assert path.name in error
    assert path.read_bytes() == MINE
    assert (run / "report.html").is_file()


@pytest.mark.parametrize("name", ["report.html", "report.json", "front.csv", "plots/front.png"])
def test_a_report_that_the_user_changed_is_kept_and_named(
    done: Done, tmp_path: Path, name: str
) -> None:
    run = done.copy(tmp_path)
    (run / name).write_bytes(MINE)
    code, error = seqto("report", run)
    assert code == 2
    assert is_one_line(error)
    assert name in error
    assert (run / name).read_bytes() == MINE
    (run / name).unlink()
    assert seqto("report", run) == (0, "")
    assert (run / name).is_file()


def test_a_link_at_a_name_of_ours_is_not_followed(done: Done, tmp_path: Path) -> None:
    run = done.copy(tmp_path)
    put(tmp_path, ["precious.html"])
    (run / "report.html").unlink()
    (run / "report.html").symlink_to(tmp_path / "precious.html")
    code, error = seqto("report", run)
    assert code == 2
    assert "report.html" in error
    assert (tmp_path / "precious.html").read_bytes() == MINE
    assert (run / "report.html").is_symlink()


# --------------------------------------------------------------------- outside of the run folder


@pytest.mark.parametrize("odd", ["x/../../../OUTSIDE", -1, True, 1.5, None, [0], "0"])
def test_a_trial_number_that_is_no_count_never_becomes_a_path(
    done: Done, tmp_path: Path, odd: Any
) -> None:
    folder = tmp_path / "deep" / "deeper"
    folder.mkdir(parents=True)
    run = done.copy(folder)
    shutil.rmtree(run / "models")
    events = [json.loads(x) for x in (run / "journal.jsonl").read_text().splitlines()]
    for event in events:
        if event["event"] == "trial":
            event["trial"]["number"] = odd
    (run / "journal.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    before = content(tmp_path)
    code, error = seqto("report", run)
    assert code == 2
    assert is_one_line(error)
    assert "number" in error
    assert content(tmp_path) == before


@pytest.mark.parametrize("name", ["../../x", "..", "a/b", "", "a\0b", 7])
def test_a_transform_that_is_no_plain_name_never_becomes_a_path(tmp_path: Path, name: Any) -> None:
    from seqto.errors import PlanError
    from seqto.transforms.variants import variant_folder

    with pytest.raises(PlanError, match="transform"):
        variant_folder(tmp_path, [name])


@pytest.mark.parametrize("name", ["models", "plots"])
def test_a_report_is_not_written_through_a_link(done: Done, tmp_path: Path, name: str) -> None:
    run = done.copy(tmp_path)
    shutil.rmtree(run / name)
    (tmp_path / "elsewhere").mkdir()
    (run / name).symlink_to(tmp_path / "elsewhere")
    code, error = seqto("report", run)
    assert code == 2
    assert is_one_line(error)
    assert name in error
    assert os.listdir(tmp_path / "elsewhere") == []


@pytest.mark.parametrize(
    "name", ["variants", "variants/base", "cache", "cache/samples", "journal.jsonl", "journal.lock"]
)
def test_a_run_does_not_go_on_through_a_link(done: Done, tmp_path: Path, name: str) -> None:
    run = done.copy(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    if (run / name).exists():
        (run / name).rename(elsewhere)
    elif name == "journal.lock":
        elsewhere.write_bytes(b"123")
    else:
        elsewhere.mkdir()
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(elsewhere)
    before = content(tmp_path)
    code, error = done.again(run)
    assert code == 2
    assert is_one_line(error)
    assert "outside" in error
    assert content(tmp_path) == before


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

"""What a run did not write is never removed or replaced, and nothing is written elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from seqto.assembly.plan import Plan
from seqto.record.own_files import OwnFiles
from seqto.record.trial import Trial
from seqto.report.models import save_recommended
from short_run import (
    MINE,
    SHORT,
    Done,
    content,
    is_one_line,
    put,
    recommended,
    seqto,
    sha256,
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


def test_what_killed_calls_have_left_is_swept_and_is_nobodys_file(
    done: Done, tmp_path: Path
) -> None:
    """`analyze` was killed at work, then a run while it wrote a model and its report."""
    run = tmp_path / "run"
    unfinished = run / ".seqto-abcd1234"
    put(run, [f"{unfinished.name}/samples/store.json", f"{unfinished.name}/.seqto-folder"])
    assert seqto("tune", "--config", done.config, "--out", run, "-q", *SHORT) == (0, "")
    assert not unfinished.exists()
    names = [".seqto-report00", "models/.seqto-model000", "variants/base/.seqto-00000000"]
    put(run, [*names, "models/.seqto-notes.txt"])
    for name in names:
        os.utime(run / name, (0, 0))
    assert done.again(run) == (0, "")
    left = {name for name in content(run) if ".seqto-" in name}
    assert left == {"models/.seqto-notes.txt"}


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
    run = done.copy(tmp_path)
    OwnFiles.read(run).write(run / "models" / "trial-7.onnx", b"ours")
    OwnFiles.read(run).write(run / "models" / "trial-8.onnx", b"ours")
    put(run, ["models/trial-8.onnx"])
    assert seqto("report", run) == (0, "")
    assert not (run / "models" / "trial-7.onnx").exists()
    assert (run / "models" / "trial-8.onnx").read_bytes() == MINE


def test_models_that_earlier_versions_did_not_list_are_told_by_their_hash(tmp_path: Path) -> None:
    put(tmp_path, ["models/trial-3.onnx", "models/trial-4.onnx", "models/trial-03.onnx"])
    of_mine = hashlib.sha256(MINE).hexdigest()
    trials = {n: Trial(n, Plan(), sha256=digest) for n, digest in ((3, of_mine), (4, "other"))}
    assert save_recommended(OwnFiles.read(tmp_path), trials, ()) == ([], [])
    assert sorted(os.listdir(tmp_path / "models")) == ["trial-03.onnx", "trial-4.onnx"]


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


@pytest.mark.parametrize("name", ["variants/base", "cache/samples", "cache/work", "models"])
def test_a_file_in_place_of_a_folder_of_the_run_is_one_line(
    done: Done, tmp_path: Path, name: str
) -> None:
    done.copy(tmp_path)
    run = tmp_path / "run"
    shutil.rmtree(run / name, ignore_errors=True)
    put(run, [name])
    code, error = done.again(run)
    assert code == 2
    assert is_one_line(error)
    assert (run / name).read_bytes() == MINE


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    from seqto.errors import JournalError

    (tmp_path / "mine").write_text("a file of the user")
    with pytest.raises(JournalError, match="mine' is no folder"):
        OwnFiles.read(tmp_path / "mine")

"""Bad input gets one clear line: settings, paths, pipes among files, models that never end."""

from __future__ import annotations

import errno
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import endless_nets
import nets
import runs
from seqto.cli.main import main
from seqto.data.arrays import Arrays
from seqto.data.coco import Coco
from seqto.data.pictures import Pictures
from seqto.data.tables import open_table
from seqto.devices.ort import Ort
from seqto.errors import ConfigError, DataError, DeviceError, ModelError
from seqto.execution.local.first_run import moved_answers
from seqto.files import open_regular
from seqto.model.files import load
from seqto.model.ort_session import open_session
from seqto.report.live import LiveView
from seqto.selection.recommend import pick_named
from seqto.testing.fakes import small_model

LONG = "a" * 5000


@pytest.mark.parametrize(
    ("assignment", "part"),
    [
        ("data.seed=-1", "must be at least 0"),
        ("data.seed=1" + "0" * 400, "too large"),
        ("data.seed=1" + "0" * 4400, "too many digits"),
        ("search.stop_loss=nan", "not a number"),
        ("data.max_bad_share=1" + "0" * 400, "is not a number"),
        ("quantize.exclude=" + "[" * 5000, "nested too deeply"),
        ("device.provider=3", "is not a text"),
        ("device.options=3", "is not a table"),
        ("device.threads=100000", "between 0 and 4096"),
        ("search.treatments=2020-01-01", "is not a list of texts"),
        (f"data.images={LONG}", "too many for a file name"),
        ('data.images="a\\u0000b"', "null character"),
        ("data.random=1000000000000000", "between 1 and"),
        ("search.objectives=[]", "is empty"),
        ("search.max_size=4", "max_size is 4 bytes; write 4MB"),
        ('search.max_size="4"', "max_size is 4 bytes; write 4MB"),
        ("search.max_size=2.5", "max_size is 2.5 bytes; write 2.5MB"),
        ("search.max_peak_memory=200", "max_peak_memory is 200 bytes; write 200MB"),
        ("executor.address=foo", "is none of auto, host:port"),
        ("executor.address=ray://", "is none of auto, host:port"),
        ("executor.address=host:99999", "is none of auto, host:port"),
        ("executor.address=:6379", "is none of auto, host:port"),
    ],
)
def test_a_bad_setting_is_one_short_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, assignment: str, part: str
) -> None:
    nets.save(nets.residual(), tmp_path / "net.onnx")
    words = ["tune", str(tmp_path / "net.onnx"), "--out", str(tmp_path / "run")]
    assert main([*words, "--set", assignment]) == 2
    error = capsys.readouterr().err
    assert part in error
    assert error.count("\n") == 1
    assert len(error) < 500


@pytest.mark.parametrize("names", ["", ",", ",,"])
def test_objectives_without_a_name_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, names: str
) -> None:
    nets.save(nets.residual(), tmp_path / "net.onnx")
    words = ["tune", str(tmp_path / "net.onnx"), "--out", str(tmp_path / "run")]
    assert main([*words, "--data", "random:24", "--objectives", names]) == 2
    assert "search.objectives is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["serve", ""],
        ["report", ""],
        ["compare", "", ""],
        ["export", "", "-o", "x.onnx"],
        ["tune", "", "--out", "run"],
        ["tune", "--config", "", "--out", "run"],
        ["tune", "net.onnx", "--data", "", "--out", "run"],
        ["tune", "net.onnx", "--data", "random:24", "--labels", "", "--out", "run"],
        ["status", ""],
        ["picks", ""],
        ["inspect", ""],
        ["apply", "", "net.onnx", "-o", "x.onnx"],
    ],
    ids=" ".join,
)
def test_an_empty_name_is_not_this_folder(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(LiveView, "wait", lambda _view: None)
    nets.save(nets.residual(), tmp_path / "net.onnx")
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "'' is empty" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("name", ["", " "])
def test_a_pick_without_a_name_is_no_pick(name: str) -> None:
    with pytest.raises(ConfigError, match=f"no pick {name!r}"):
        pick_named(name, {"balanced": 0, "loss": 1})
    assert pick_named(None, {"balanced": 0, "loss": 1}) == "balanced"
    assert pick_named(None, {"balanced": 0, "goal": 1}) == "goal"


@pytest.mark.parametrize(
    "text", ["[" * 20_000, "x = 1" + "0" * 4400, '[model]\npath = "a\\u0000b"', "\ufeff]"]
)
def test_a_config_that_cannot_be_read_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(text, encoding="utf-8")
    assert main(["tune", "--config", str(config), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_byte_order_mark_before_a_config_is_skipped(tmp_path: Path) -> None:
    config = runs.write_config(tmp_path)
    config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
    assert main(["tune", "--config", str(config), "--out", str(tmp_path / "o"), "--dry-run"]) == 0


def test_a_line_break_in_a_name_does_not_break_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "tune.toml"
    config.write_text('[model]\npath = "m.onnx"\n[data]\narrays = "a\\nb\\u001b[31m.npz"\n')
    (tmp_path / "m.onnx").write_bytes(small_model())
    assert main(["tune", "--config", str(config), "--out", str(tmp_path / "run")]) == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert r"a\nb\x1b[31m.npz" in printed


@pytest.mark.parametrize("option", ["--max-trials", "--seed", "--nonsense"])
def test_a_long_word_is_not_repeated_in_full(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tune", "m.onnx", "--out", "run", option, "9" * 100_000])
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert len(last) < 500
    assert "99…99" in last


@pytest.mark.parametrize("words", [["report", LONG], ["export", LONG, "-o", "x.onnx"]])
def test_a_path_that_is_too_long_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(words) == 2
    assert "too many for a file name" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_among_pictures_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    pictures = Pictures(tmp_path)
    assert pictures.identity()["count"] == 2
    for row in range(2):
        with pytest.raises(DataError, match="regular file"):
            pictures.read(row)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_place_of_labels_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "labels.csv")
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(DataError, match="regular file"):
        Pictures(tmp_path, tmp_path / "labels.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize(
    ("name", "open_it"),
    [
        ("rows.npz", Arrays),
        ("texts.tsv", lambda path: open_table(path, ("text",))),
        ("boxes.json", lambda path: Coco(path.parent, path)),
    ],
)
def test_a_pipe_in_place_of_data_is_refused(
    tmp_path: Path, name: str, open_it: Callable[[Path], object]
) -> None:
    (tmp_path / "a.png").touch()
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="regular file"):
        open_it(tmp_path / name)


def test_a_folder_is_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"regular file|directory"):
        open_regular(tmp_path)


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    code = (
        "import os, sys; from seqto.cli.main import main;"
        "r, w = os.pipe(); os.close(r); os.dup2(w, 1); sys.exit(main(['devices']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_an_output_that_is_full_is_one_line() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "seqto", "devices"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "seqto: cannot write to the standard output: No space left on device\n"


def test_a_name_that_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-m", "seqto", "devices"],
        capture_output=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_model_that_never_ends_is_ended(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    onnx.save(endless_nets.endless(), tmp_path / "net.onnx")
    words = ["tune", str(tmp_path / "net.onnx"), "--data", "random:24", "--quiet"]
    sizes = ["--set", "data.calibration=4", "--set", "data.evaluation=8"]
    limit = ["--set", "device.timeout_s=2", "--out", str(tmp_path / "run")]
    assert main([*words, *sizes, *limit]) == 2
    assert "endless loop" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["tune", "endless.onnx", "--data", "random:24", "--out", "run", "--dry-run"],
        ["check", "plain.onnx", "--against", "endless.onnx", "--data", "random:24"],
        ["check", "endless.onnx", "--against", "plain.onnx", "--data", "random:24"],
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_model_that_never_ends_is_ended_where_there_is_no_search(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
) -> None:
    model = endless_nets.endless()
    onnx.save(model, tmp_path / "endless.onnx")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array(1), "turns"))
    onnx.save(model, tmp_path / "plain.onnx")
    monkeypatch.chdir(tmp_path)
    few = [w for k in ("calibration", "evaluation", "report") for w in ("--set", f"data.{k}=4")]
    assert main([*words, *few, "--set", "device.timeout_s=2"]) == 2
    error = capsys.readouterr().err
    assert "does not answer within 2 s" in error
    assert "endless.onnx" in error
    assert error.count("\n") == 1


def test_a_first_run_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ModelError):
        moved_answers([tmp_path / "a"], tmp_path / "b", tmp_path / "c", timeout_s=30)


def test_main_leaves_a_replaced_output_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert main(["--version"]) == 0


def test_a_model_whose_name_is_not_utf8_is_tuned(tmp_path: Path) -> None:
    """ONNX Runtime opens no such file by its name."""
    config = runs.write_config(tmp_path)
    name = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    try:
        name.write_bytes((tmp_path / "net.onnx").read_bytes())
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    words = ["tune", str(name), "--config", str(config), "--out", str(tmp_path / "run")]
    assert main([*words, "--max-trials", "2", "--quiet"]) == 0
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "made.onnx")]) == 0


def test_a_file_that_is_no_model_and_whose_name_is_not_utf8_is_one_line(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.onnx"))
    path.write_bytes(b"rubbish" * 30)
    with pytest.raises(ModelError, match="not a readable ONNX model"):
        load(path)


def test_external_data_beside_a_model_whose_name_is_not_utf8_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = runs.write_config(tmp_path)
    name = tmp_path / os.fsdecode(b"caf\xe9.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.save(
        model, tmp_path / "out.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    try:
        (tmp_path / "out.onnx").rename(name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    words = ["tune", str(name), "--config", str(config), "--out", str(tmp_path / "run")]
    assert main([*words, "--max-trials", "2", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "rename" in error
    assert error.count("\n") == 1


def test_a_worker_that_cannot_be_started_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As where a process may have few open files."""

    def refuse(*_words: object, **_more: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr("seqto.execution.local.child.subprocess.Popen", refuse)
    config = runs.write_config(tmp_path)
    words = ["tune", "--config", str(config), "--out", str(tmp_path / "run"), "--quiet"]
    assert main([*words, "--max-trials", "2"]) == 2
    error = capsys.readouterr().err
    assert "a worker process cannot be started: Too many open files" in error
    assert error.count("\n") == 1


@pytest.mark.usefixtures("inline")
def test_a_folder_whose_name_is_not_utf8_is_written_and_read(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    config = runs.write_config(tmp_path)
    model = folder / "net.onnx"
    model.write_bytes((tmp_path / "net.onnx").read_bytes())
    out = str(folder / "run")
    words = ["--config", str(config), "--max-trials", "2", "--quiet"]
    assert main(["tune", str(model), *words, "--out", out]) == 0
    assert main(["tune", str(model), *words, "--out", out]) == 0  # resumed
    assert main(["report", out]) == 0
    assert main(["export", out, "-o", str(folder / "made.onnx")]) == 0
    assert main(["analyze", str(model), "--config", str(config), "--out", str(folder / "a")]) == 0


def test_names_in_a_dry_run_move_no_cursor(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = nets.residual()
    for number, node in enumerate(model.graph.node):
        node.name = f"\x1b[31m\u202e\n{number}"
    nets.save(model, tmp_path / "net.onnx")
    words = ["tune", str(tmp_path / "net.onnx"), "--data", "random:300", "--out", "run"]
    assert main([*words, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert "\n0" not in printed


def test_nodes_with_one_name_are_told_apart(tmp_path: Path) -> None:
    model = nets.residual()
    for node in model.graph.node:
        node.name = "same"
    path = nets.save(model, tmp_path / "net.onnx")
    feeds = {"x": nets.pictures(2)}
    answers = [open_session(m).run(None, feeds) for m in (path, model.SerializeToString())]
    assert all(np.array_equal(a, b) for a, b in zip(*answers, strict=True))
    words = ["export", str(path), "--data", "random:24", "-o", str(tmp_path / "made.onnx")]
    assert main([*words, "--set", "data.calibration=4"]) == 0


def test_a_name_beyond_ascii_works_in_the_c_locale(tmp_path: Path) -> None:
    model = nets.save(nets.residual(), tmp_path / "модель.onnx")
    words = ["tune", str(model), "--data", "random:24", "--dry-run", "--out", str(tmp_path / "run")]
    counts = ["--set", "data.calibration=4", "--set", "data.evaluation=8"]
    off = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "seqto", *words, *counts],
        env={**os.environ, **off},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "layers" in done.stdout


def test_a_profile_that_was_cut_short_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk."""
    model = nets.residual().SerializeToString()
    feeds = {"x": nets.pictures(1)}
    assert Ort().profile(model, feeds, runs=1)

    def cut(stream: io.TextIOBase) -> None:
        json.loads(stream.read()[:-9])

    monkeypatch.setattr("seqto.devices.ort.json.load", cut)
    with pytest.raises(DeviceError, match="profile is not whole"):
        Ort().profile(model, feeds, runs=1)


@pytest.mark.parametrize("command", ["analyze", "diagnose"])
def test_a_device_that_cannot_be_used_is_refused_before_the_work(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = runs.write_config(tmp_path)
    if importlib.util.find_spec("tvm") is not None:
        pytest.skip("TVM is installed here")
    words = ["--config", str(config), "--out", str(tmp_path / "out"), "--device", "tvm"]
    assert main([command, *words]) == 2
    said = capsys.readouterr().err
    assert said == "seqto: apache-tvm is not installed: pip install 'seqto[tvm]'\n"


SWALLOWED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from seqto.cli import main as command_line, models
from seqto.errors import ModelError

def devices(options):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt:
        raise {error}("initialization failed")

models.devices = devices
sys.argv = ["seqto", "devices"]
sys.exit(command_line.main())
"""


@pytest.mark.parametrize("error", ["ModelError", "ImportError"])
def test_ctrl_c_while_a_library_loads_is_an_interruption(error: str) -> None:
    """Extension modules turn KeyboardInterrupt into ImportError while they are loaded."""
    code = SWALLOWED.replace("{error}", error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "seqto: interrupted\n")

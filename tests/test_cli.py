"""The command from the outside: one clear line and an exit code for everything that is wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nets
import runs
from refused import said
from seqto.cli.main import main

PICTURES = """
[model]
path = "net.onnx"

[data]
images = "pictures"
calibration = 4
evaluation = 8

[data.preprocess]
resize = 10
crop = 10
mean = [127.5]
std = [127.5]

[search]
strategy = "stepwise"
objectives = ["loss", "size"]
max_trials = 1

[analysis]
samples = 2
diagnose = false

[device]
latency_s = 0.01
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return runs.write_config(tmp_path / "in")


def pictures(folder: Path, count: int, *, broken: int = 0) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(count):
        pixels = rng.integers(0, 255, (14, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"p{i:03}.png")
    for i in range(broken):
        (folder / f"broken{i:03}.png").write_bytes(b"\x89PNG\r\n\x1a\n but no picture")


# ------------------------------------------------------------------------------------- models


def test_a_missing_model(capsys: Any, tmp_path: Path) -> None:
    line = said(capsys, "tune", tmp_path / "no.onnx", "--data", "random:9", "--out", tmp_path / "o")
    assert "no.onnx" in line


def test_no_model_at_all(capsys: Any, tmp_path: Path) -> None:
    assert "no model" in said(capsys, "tune", "--out", tmp_path / "o")


@pytest.mark.parametrize("content", [b"", b"hello, world\n" * 40, b"\x08\x07\x12\x04abcd"])
def test_a_file_that_is_no_model(capsys: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.onnx"
    path.write_bytes(content)
    line = said(capsys, "tune", path, "--data", "random:9", "--out", tmp_path / "o")
    assert "odd.onnx" in line


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_model(capsys: Any, tmp_path: Path, config: Path, share: float) -> None:
    path = config.parent / "net.onnx"
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    assert "net.onnx" in said(capsys, "tune", "--config", config, "--out", tmp_path / "o")


@pytest.mark.usefixtures("inline")
def test_a_model_that_is_quantized_already(capsys: Any, tmp_path: Path, config: Path) -> None:
    assert main(["tune", "--config", str(config), "--out", str(tmp_path / "r"), "-q"]) == 0
    capsys.readouterr()
    quantized = next((tmp_path / "r" / "models").glob("*.onnx"))
    shutil.copy(quantized, config.parent / "net.onnx")
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    assert "quantized already" in line


# --------------------------------------------------------------------------------------- data


def test_no_data(capsys: Any, tmp_path: Path, config: Path) -> None:
    line = said(capsys, "tune", config.parent / "net.onnx", "--out", tmp_path / "o")
    assert "no data are given" in line


def test_data_of_another_shape(capsys: Any, tmp_path: Path, config: Path) -> None:
    np.savez(config.parent / "samples.npz", x=np.zeros((110, 3, 7, 7), dtype=np.float32))
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    assert "3×10×10" in line
    assert "3×7×7" in line


def test_too_few_samples(capsys: Any, tmp_path: Path, config: Path) -> None:
    np.savez(config.parent / "samples.npz", x=nets.pictures(20))
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    assert "too few samples" in line


def test_a_missing_array_file(capsys: Any, tmp_path: Path, config: Path) -> None:
    (config.parent / "samples.npz").unlink()
    assert "samples.npz" in said(capsys, "tune", "--config", config, "--out", tmp_path / "o")


def test_an_empty_folder(capsys: Any, tmp_path: Path) -> None:
    config = runs.write_config(tmp_path / "in", text=PICTURES)
    (config.parent / "pictures").mkdir()
    assert "pictures" in said(capsys, "tune", "--config", config, "--out", tmp_path / "o")


def test_a_missing_folder(capsys: Any, tmp_path: Path) -> None:
    config = runs.write_config(tmp_path / "in", text=PICTURES)
    assert "pictures" in said(capsys, "tune", "--config", config, "--out", tmp_path / "o")


def test_too_many_broken_pictures(capsys: Any, tmp_path: Path) -> None:
    config = runs.write_config(tmp_path / "in", text=PICTURES)
    pictures(config.parent / "pictures", 16, broken=12)
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    assert "broken0" in line


@pytest.mark.usefixtures("inline")
def test_few_broken_pictures_are_named_in_the_report(capsys: Any, tmp_path: Path) -> None:
    config = runs.write_config(tmp_path / "in", text=PICTURES)
    pictures(config.parent / "pictures", 30, broken=1)
    out = tmp_path / "o"
    words = ["tune", "--config", config, "--out", out, "-q", "--set", "data.max_bad_share=0.2"]
    assert main([str(w) for w in words]) == 0
    report = json.loads((out / "report.json").read_text())
    assert any("broken000.png" in str(name) for name in report["data"]["unreadable"])


# ----------------------------------------------------------------------------------- settings


def test_an_unknown_key_names_the_nearest(capsys: Any, tmp_path: Path, config: Path) -> None:
    config.write_text(config.read_text().replace("strategy =", "stratgey ="))
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    assert "search.stratgey" in line
    assert "'strategy'" in line


def test_an_unknown_section(capsys: Any, tmp_path: Path, config: Path) -> None:
    config.write_text(config.read_text() + "\n[serach]\nseed = 1\n")
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    assert "'serach'" in line
    assert "'search'" in line


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("search.sed=3", "search.sed"),
        ("search.seed=three", "search.seed"),
        ("seed", "section.key=value"),
        ("search.seed=1\nfoo=2", "'foo' follows"),
        ("search.seed=1\n[x]", "'x' follows"),
        ("search.strategy=best", "best"),
        ("search.order=upwards", "upwards"),
        ("quantize.mode=statik", "statik"),
        ("quantize.weight=s9", "s9"),
        ("quantize.activation=q8", "q8"),
        ("quantize.ranges=median", "median"),
        ("quantize.bias=s16", "s16"),
        ("search.objectives=['loss','beauty']", "beauty"),
        ("device.kind=toaster", "toaster"),
        ("device.colour=red", "colour"),
        ("task.kind=poetry", "poetry"),
        ("quantize.skip=['middle']", "middle"),
        ("quantize.transforms=['polish']", "polish"),
        ("search.menu=['static-s8-u8-chanel']", "static-s8-u8-chanel"),
        ("data.calibration=0", "calibration"),
        ("data.evaluation=-5", "evaluation"),
        ("search.max_trials=-1", "max_trials"),
        ("search.jobs=-2", "jobs"),
        ("search.max_loss=7", "max_loss"),
        ("data.preprocess.crop=0", "crop"),
        ("constraints.max_opset=11", "max_opset"),
        ("device.provider=cuda", "CUDA"),
    ],
)
def test_a_wrong_setting_is_named(
    capsys: Any, tmp_path: Path, config: Path, setting: str, wanted: str
) -> None:
    words = ["tune", "--config", config, "--out", tmp_path / "o", "--set", setting]
    assert wanted in said(capsys, *words)


@pytest.mark.usefixtures("inline")
def test_an_excluded_name_that_is_not_there_shows_near_ones(
    capsys: Any, tmp_path: Path, config: Path
) -> None:
    words = ["tune", "--config", config, "--out", tmp_path / "o", "--exclude", "/net/Conv_00"]
    line = said(capsys, *words)
    assert "/net/Conv_00" in line
    assert "/net/Conv_0'" in line


def test_a_config_file_that_is_missing_or_no_toml(
    capsys: Any, tmp_path: Path, config: Path
) -> None:
    assert "no.toml" in said(capsys, "tune", "--config", tmp_path / "no.toml", "--out", tmp_path)
    config.write_text("[model\npath = 3")
    assert "not valid TOML" in said(capsys, "tune", "--config", config, "--out", tmp_path / "o")
    config.write_bytes(b"\xff\xfe\x00")
    assert "tune.toml" in said(capsys, "tune", "--config", config, "--out", tmp_path / "o")


def test_an_out_folder_that_cannot_be(capsys: Any, tmp_path: Path, config: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = said(capsys, "tune", "--config", config, "--out", tmp_path / "file" / "out")
    assert "file" in line
    assert "file" in said(capsys, "tune", "--config", config, "--out", tmp_path / "file")


@pytest.mark.parametrize("command", ["report", "export", "serve"])
def test_a_folder_that_is_no_run(capsys: Any, tmp_path: Path, command: str) -> None:
    more = ["-o", str(tmp_path / "m.onnx")] if command == "export" else []
    said(capsys, command, tmp_path / "nowhere", *more)


def test_comparing_what_is_no_run(capsys: Any, tmp_path: Path) -> None:
    assert "no run folder" in said(capsys, "compare", tmp_path, tmp_path)


@pytest.mark.usefixtures("inline")
def test_a_damaged_journal(capsys: Any, tmp_path: Path, config: Path) -> None:
    out = tmp_path / "o"
    assert main(["tune", "--config", str(config), "--out", str(out), "-q"]) == 0
    capsys.readouterr()
    journal = out / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], b"{nonsense\n", *lines[1:]]))
    assert "line 2" in said(capsys, "tune", "--config", config, "--out", out)
    assert "line 2" in said(capsys, "report", out)


# ---------------------------------------------------------------------------------- disk full


@pytest.mark.parametrize("size_kb", [8, 100, 180, 400])
def test_a_full_disk_gives_one_line_wherever_it_strikes(
    config: Path, tmp_path: Path, size_kb: int
) -> None:
    """A small file system in a mount namespace of its own: no root, nothing left behind."""
    place = tmp_path / "small"
    place.mkdir()
    script = 'mount -t tmpfs -o size="$1"k seqto "$2" && shift 2 && exec "$@"'
    unshare = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"])]
    probe = [*unshare, "sh", "-c", script, "sh", "8", str(place), "true"]
    if not shutil.which("unshare") or subprocess.run(probe, check=False).returncode:
        pytest.skip("no small file system can be mounted here (unshare, tmpfs)")
    program = [sys.executable, "-m", "seqto", "tune", "--config", str(config), "-q"]
    finished = subprocess.run(
        [*unshare, "sh", "-c", script, "sh", str(size_kb), str(place), *program, "--out", place],
        env={**runs.environment(), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 2, finished.stderr
    assert finished.stderr.count("\n") == 1, finished.stderr
    assert "No space left" in finished.stderr or "the disk is full" in finished.stderr

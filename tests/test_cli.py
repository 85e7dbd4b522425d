"""The command from the outside: one clear line and an exit code for everything that is wrong."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

import nets
import runs
import seqto
from seqto import plugins
from seqto.cli.main import main
from seqto.study.setup import distinct_names

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


def said(capsys: Any, *words: str | Path) -> str:
    """The one line that a bad call prints; checks all that is common to them."""
    code = main([str(w) for w in words])
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    assert printed.err.startswith("seqto: ")
    assert printed.err.count("\n") == 1, printed.err
    assert "Traceback" not in printed.err
    return str(printed.err)


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


# ------------------------------------------------------------------------------- other commands


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    capsys: Any, tmp_path: Path, config: Path
) -> None:
    out = tmp_path / "o"
    assert main(["tune", "--config", str(config), "--out", str(out), "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "7 layers, 4 with weights" in text
    assert "/net/Conv_0" in text
    assert "min" in text
    assert "MB" in text
    assert not out.exists()


@dataclasses.dataclass
class Look:
    """Asks for nothing and remembers what it might have chosen from."""

    needs: frozenset[seqto.Need]
    menu: set[str] = dataclasses.field(default_factory=set)

    def search(self, space: Any, *, seed: int) -> Any:
        self.menu |= {str(scheme) for schemes in space.menu.values() for scheme in schemes}
        yield from ()


@pytest.mark.parametrize(
    "settings",
    [
        {"search.strategy": "stepwise"},
        {"search.strategy": "stepwise", "quantize.mode": "weight"},
        {"search.strategy": "frontier"},
        {"search.strategy": "frontier", "search.objectives": ["loss", "latency"]},
        {"search.strategy": "frontier", "constraints.max_opset": 20},
    ],
)
def test_a_dry_run_shows_the_menu_of_the_run(
    capsys: Any, tmp_path: Path, config: Path, settings: dict[str, Any]
) -> None:
    words = ["tune", "--config", str(config), "--out", str(tmp_path / "o"), "--dry-run"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    assert main(words) == 0
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("menu: ")]
    look = Look(plugins.find("seqto.strategies", settings["search.strategy"]).needs)
    overrides = {key.replace(".", "__"): value for key, value in settings.items()}
    seqto.tune(config=config, out=tmp_path / "run", strategy=look, **overrides)
    assert set(line.removeprefix("menu: ").split(", ")) == look.menu


def unreadable(tmp_path: Path) -> list[str]:
    """A net of an open length that in truth takes 12 numbers a row, and random data of 32."""
    net = nets.Net()
    shape = net.constant(np.array([-1, 12], dtype=np.int64))
    y = net.add("MatMul", [net.add("Reshape", ["x", shape]), net.weight(12, 5)], output="y")
    path = nets.save(net.model({"x": ["n", "l"]}, {y: ["m", 5]}), tmp_path / "net.onnx")
    sizes = ["--set", "data.calibration=4", "--set", "data.evaluation=5"]
    return ["tune", str(path), "--data", "random:10", "--out", str(tmp_path / "o"), *sizes]


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_samples_that_the_float_model_cannot_take_are_one_line(
    capsys: Any, tmp_path: Path, more: list[str]
) -> None:
    assert main([*unreadable(tmp_path), *more]) == 2
    text = capsys.readouterr().err
    assert text.count("\n") == 1, text
    assert "does not run on the first samples" in text
    assert "x: 1×32" in text or "x: 4×32" in text
    assert "--data" in text


def test_the_module_is_the_command() -> None:
    words = [sys.executable, "-m", "seqto", "--version"]
    finished = subprocess.run(words, capture_output=True, text=True, check=True)
    assert finished.stdout.startswith("seqto ")


@pytest.mark.usefixtures("inline")
def test_json_mode_prints_one_object_a_line(capsys: Any, tmp_path: Path, config: Path) -> None:
    words = ["tune", "--config", str(config), "--out", str(tmp_path / "o"), "--json"]
    assert main([*words, "--max-trials", "2"]) == 0
    printed = capsys.readouterr()
    events = [json.loads(line) for line in printed.out.splitlines()]
    assert [e["event"] for e in events].count("trial") == 2
    assert events[0]["event"] == "header"
    assert events[-1]["event"] == "result"
    assert printed.err == ""


@pytest.mark.usefixtures("inline")
def test_several_models_get_a_folder_each_and_one_table(
    capsys: Any, tmp_path: Path, config: Path
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    nets.save(nets.residual(), folder / "one.onnx")
    nets.save(nets.branches(), folder / "two.onnx")
    out = tmp_path / "o"
    words = ["tune", folder, "--config", config, "--out", out, "-q", "--max-trials", "1"]
    assert main([str(w) for w in words]) == 0
    text = capsys.readouterr().out
    for name in ("one", "two"):
        assert (out / name / "report.json").is_file()
        assert name in text


def test_export_without_a_run_quantizes_with_an_exclusion_list(
    capsys: Any, tmp_path: Path, config: Path
) -> None:
    import onnx

    target = tmp_path / "q.onnx"
    words = ["export", config.parent / "net.onnx", "--data", config.parent / "samples.npz"]
    words += ["--exclude", "/net/Conv_2", "-o", target, "--set", "data.calibration=12"]
    assert main([str(w) for w in words]) == 0, capsys.readouterr().err
    made = onnx.load(str(target))
    node = next(n for n in made.graph.node if n.name == "/net/Conv_2")
    assert node.input[1] in {t.name for t in made.graph.initializer}, "the excluded one is float"
    assert "QuantizeLinear" in {n.op_type for n in made.graph.node}
    assert "quantized" in capsys.readouterr().out
    words[words.index("/net/Conv_2")] = "/net/Conv_22"
    line = said(capsys, *words)
    assert "'/net/Conv_2'" in line


def test_the_command_without_words_shows_its_help(capsys: Any) -> None:
    assert main([]) == 2
    assert "tune" in capsys.readouterr().out


def test_devices_are_listed_with_reasons(capsys: Any) -> None:
    assert main(["devices"]) == 0
    text = capsys.readouterr().out
    assert "ort" in text
    assert "tvm" in text


# --------------------------------------------------------------------------------- quick start


def best_of(words: list[str], times: int = 3) -> float:
    """CPU seconds of a command: a busy machine makes it wait, not compute."""
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, env=runs.environment(), check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(found)


def test_import_seqto_loads_nothing_heavy() -> None:
    program = (
        "import sys; import seqto; "
        "heavy = {'numpy', 'onnx', 'onnxruntime', 'pymoo', 'matplotlib', 'PIL', 'rich'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    finished = runs.command(program=("-c", program))
    assert finished.stdout.strip() == "[]"


def test_import_and_help_are_quick() -> None:
    """0.15 s and 0.3 s of their own on a quiet machine; shared caches may cost three times that."""
    bare = best_of([sys.executable, "-c", "pass"])
    imported = best_of([sys.executable, "-c", "import seqto"])
    helped = best_of([sys.executable, "-m", "seqto", "--help"])
    assert imported - bare < 3 * 0.15
    assert helped < 3 * 0.3


def test_tune_can_be_called_whatever_was_imported_before() -> None:
    """The package's function and the module behind it have the same name."""
    ways = ("", "import seqto.api; ", "import seqto.cli.main; from seqto.api import run_tune; ")
    for way in ways:
        program = f"{way}import seqto; from seqto import tune; "
        program += "print(callable(seqto.tune), callable(tune))"
        assert runs.command(program=("-c", program)).stdout == "True True\n", way


def test_every_public_name_can_be_had() -> None:
    import seqto

    for name in seqto.__all__:
        assert getattr(seqto, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'tone'"):
        _ = seqto.tone  # type: ignore[attr-defined]


# --------------------------------------------------------------------------------- several models


@given(st.lists(st.text("aAb-.01/ ", max_size=4), max_size=8))
@example(["a", "a", "a-1"])
@example(["A", "a"])
@example(["", "model-0"])
def test_every_model_has_a_folder_of_its_own(names: list[str]) -> None:
    """Also on a disk that does not tell capitals apart; and no name leads out of the run folder."""
    folders = distinct_names(names)
    assert len({f.casefold() for f in folders}) == len(names)
    assert all(f and not f.startswith(".") and not set("/ ") & set(f) for f in folders)
    if len({n.casefold() for n in names}) == len(names):
        plain = [i for i, n in enumerate(names) if n and not set("./ ") & set(n)]
        if len(plain) == len(names):
            assert folders == names

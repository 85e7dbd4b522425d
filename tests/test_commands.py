"""Dry runs, JSON lines, several models, help, a quick start of the command."""

from __future__ import annotations

import dataclasses
import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import nets
import runs
import seqto
from net_builder import Net
from refused import said
from seqto import plugins
from seqto.cli.main import main
from seqto.study.setup import distinct_names


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return runs.write_config(tmp_path / "in")


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
    assert re.search(r"up to \d+\.\d GB of memory with \d+ workers", text)
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
    net = Net()
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
    """Return CPU seconds of a command: a busy machine makes it wait, not compute."""
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

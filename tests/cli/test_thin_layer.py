"""The command line is a thin layer: each command calls exactly one public function."""

from __future__ import annotations

import functools
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import runs
import seqto
from inline_runs import run_inline
from seqto import api
from seqto.cli.main import main
from seqto.cli.options import COMMANDS

PUBLIC = [name for name in seqto.__all__ if isinstance(getattr(seqto, name), FunctionType)]
# the shell's half of the command line itself; a server whose tools are other commands
NO_FUNCTION = {"completion", "mcp"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config, a net, samples and a finished run."""
    folder = tmp_path_factory.mktemp("thin")
    config = runs.write_config(folder)
    with pytest.MonkeyPatch.context() as patched:
        run_inline(patched)
        seqto.tune(config=config, out=folder / "run", search__max_trials=2)
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Calls:
    """Records the public functions that are called from outside of them."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._inside = threading.local()

    def recording(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if not getattr(self._inside, "yes", False):
                self.names.append(name)
            self._inside.yes = True
            try:
                return function(*args, **kwargs)
            finally:
                self._inside.yes = False

        return recorded


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    found = Calls()
    for name in PUBLIC:
        monkeypatch.setattr(api, name, found.recording(name, getattr(api, name)))
    return found


WORDS: Sequence[tuple[str, str]] = (
    ("tune --config tune.toml --out new --max-trials 1 -q", "tune_models"),
    ("tune --config tune.toml --out new --dry-run", "dry_run"),
    ("demo --out demo -q --max-trials 1", "run_demo"),
    ("analyze --config tune.toml --out layers", "analyze_models"),
    ("diagnose --config tune.toml --out why", "diagnose_models"),
    ("report run", "write_report"),
    ("report run --format md", "read_report"),
    ("report run --format sensitivities", "read_sensitivities"),
    ("export run -o q.onnx", "export"),
    ("export net.onnx --mode weight -o w.onnx", "quantize"),
    ("export run -o q.onnx --card", "export_with_card"),
    ("push run --repo me/net --dry-run", "push"),
    ("compare run run", "compare"),
    ("inspect net.onnx", "inspect"),
    ("status run", "status"),
    ("picks run", "picks"),
    ("devices", "list_devices"),
    ("init net.onnx -o other.toml", "init"),
    ("check net.onnx --against net.onnx --config tune.toml", "check"),
    ("apply run net.onnx -o a.onnx", "apply"),
    ("serve missing", "serve"),
)


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize(("words", "function"), WORDS, ids=[f for _, f in WORDS])
def test_a_command_calls_one_public_function(
    words: str, function: str, folder: Path, monkeypatch: pytest.MonkeyPatch, calls: Calls
) -> None:
    if function == "run_demo":  # minutes of search are not the subject
        monkeypatch.setattr("seqto.api.runs.run_tune", lambda _setup: finished_result(folder))
    assert main(words.split()) == (2 if function == "serve" else 0)
    assert calls.names == [function]


def finished_result(folder: Path) -> seqto.Result:
    return seqto.write_report(folder / "run")


def test_every_command_and_every_public_function_is_looked_at() -> None:
    assert {words.split()[0] for words, _ in WORDS} == set(COMMANDS) - NO_FUNCTION
    single = {"tune", "analyze", "diagnose"}  # of one model, with Python objects
    assert {function for _, function in WORDS} | single == set(PUBLIC)

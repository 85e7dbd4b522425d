"""A short finished run beside files of the user; what tests of both need."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import runs
from seqto.cli.main import main

MINE = b"the user's own"


def seqto(*words: str | Path) -> tuple[int, str]:
    """Run a command in this process; return exit code and stderr."""
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


def short_run(folder: Path) -> Done:
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

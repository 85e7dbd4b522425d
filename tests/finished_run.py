"""A finished run of the small net, and the command in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import runs
from seqto.cli.main import main


def seqto(*words: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return exit code, stdout, stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(w) for w in words])
    return code, out.getvalue(), err.getvalue()


@dataclasses.dataclass(frozen=True)
class Done:
    """A finished run that tests look at and copy, but never change."""

    config: Path
    out: Path
    code: int
    printed: str

    def copy(self, folder: Path) -> Path:
        shutil.copytree(self.out, folder / "run")
        return folder / "run"

    @property
    def report(self) -> Any:
        return json.loads((self.out / "report.json").read_text())


def finished_run(folder: Path) -> Done:
    # a fixed batch of 1: how samples are batched is measured, and would differ between two runs
    config = runs.write_config(folder, batch=1)
    code, printed, _ = seqto("tune", "--config", config, "--out", folder / "out", "-q")
    return Done(config, folder / "out", code, printed)

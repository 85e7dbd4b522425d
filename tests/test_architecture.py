"""What docs/architecture.md says: the way of a plan, and the files to touch to add something.

For the table a copy of the package, in which only the files that it names are changed, has another
range method, kind of scheme, executor and report column. Plug-ins (tasks, devices, strategies,
transforms, data and model sources) need no change: tests/test_examples.py. An objective is one row:
tests/selection/test_objectives.py.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqto
from seqto.devices.ort import OrtSession
from seqto.testing import small_model

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def sample_rows() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).random((60, 3, 4, 4), dtype=np.float32)


def test_a_plan_takes_the_way_that_is_drawn(
    tmp_path: Path, inline: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[list[str]] = []
    run = OrtSession.run

    def watched(self: OrtSession, feeds: Any) -> Any:
        stack = traceback.extract_stack()
        if any(frame.name == "evaluate" for frame in stack):
            files = [f.filename.partition("src/seqto/")[2] for f in stack]
            ways.append([name for name in dict.fromkeys(files) if name])
        return run(self, feeds)

    monkeypatch.setattr(OrtSession, "run", watched)
    (tmp_path / "m.onnx").write_bytes(small_model())
    seqto.tune(
        tmp_path / "m.onnx",
        data=list(sample_rows()),
        out=tmp_path / "run",
        search__max_trials=1,
        search__objectives=["loss", "size"],
        analysis__diagnose=False,
        data__calibration=16,
        data__evaluation=24,
    )
    drawing = PAGE.read_text().partition("## The way of a plan")[2].split("```")[1]
    executor = ("study/meter.py", "testing/executors.py")  # here in the process of the test
    strategy = tuple(name for name in ways[0] if name.startswith("search/"))
    passed = [name for name in ways[0] if name not in executor + strategy]
    assert re.findall(r"[\w/]+\.py", drawing) == passed
    stations = re.findall(r"^ (\w\S.*?)(?:  |$)", drawing, re.M)
    assert len(stations) - 1 <= 6


NEW_FILES = {
    "schemes/coarse.py": '''
from dataclasses import dataclass, field
from typing import ClassVar

from seqto.schemes.code import Coded
from seqto.schemes.part import SizedByPart
from seqto.schemes.types import FLOAT_KERNEL, S8, Arithmetic, Rounding
from seqto.schemes.weight_only import WeightOnly


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Coarse(SizedByPart, Coded):
    """Stored as s8 with one scale for the whole weight."""

    weight = S8
    code: str = field(init=False)
    kind: ClassVar[str] = "coarse"
    arithmetic = Arithmetic.FLOAT
    is_float = False
    activation = None
    per_channel = False
    rounding = Rounding.NEAREST
    kernel = FLOAT_KERNEL
    bits = (8,)
    opset = 0

    def __post_init__(self):
        object.__setattr__(self, "code", "coarse")

    @staticmethod
    def parse(code):
        return Coarse()

    def without_output_rounding(self):
        return self

    def problem(self, layer):
        return WeightOnly(S8, per_channel=False).problem(layer)

    def restored_weight(self, layer, constants):
        return WeightOnly(S8, per_channel=False).restored_weight(layer, constants)

    def part(self, layer, constants, **more):
        return WeightOnly(S8, per_channel=False).part(layer, constants, **more)

    def write(self, node, layer, graph):
        WeightOnly.write(self, node, layer, graph)
''',
    "execution/noting.py": '''
from seqto.execution.local.executor import LocalExecutor


class NotingExecutor(LocalExecutor):
    """Notes the kind of every job."""

    def submit(self, job, *, alone=False):
        with (self.files.root / "submitted.txt").open("a") as stream:
            print(type(job).__name__, file=stream)
        return super().submit(job, alone=alone)
''',
}

CHANGES = {
    "calibration/ranges.py": (
        '    if method == "mse":',
        '    if method == "half":\n        return low / 2, high / 2\n    if method == "mse":',
    ),
    "schemes/types.py": ('"entropy", "mse")', '"entropy", "mse", "half")'),
    "schemes/scheme.py": (
        "KINDS: Mapping[str, type[Scheme]] = {",
        "from seqto.schemes.coarse import Coarse\n\n"
        'KINDS: Mapping[str, type[Scheme]] = {\n    "coarse": Coarse,',
    ),
    "search/offered.py": (
        "WEIGHTED: tuple[Scheme, ...] = (",
        "from seqto.schemes.coarse import Coarse\n\n"
        "WEIGHTED: tuple[Scheme, ...] = (\n    Coarse(),",
    ),
    "config/checks.py": ('("local", "ray")', '("local", "ray", "noting")'),
    "study/open_executor.py": (
        "            executor = LocalExecutor(",
        "            from seqto.execution.noting import NotingExecutor\n\n"
        '            noting = setup.settings.executor.kind == "noting"\n'
        "            executor = (NotingExecutor if noting else LocalExecutor)(",
    ),
    "report/columns.py": (
        '    Column("latency_ms",',
        '    Column("plan_key", "key", CSV, lambda row: row.of_trial("key")),\n'
        '    Column("latency_ms",',
    ),
}

RUN = """
import sys
import seqto
from seqto.report import plots
plots.write_plots = lambda _folder, _report, **_writer: []  # most of a small run's time
seqto.tune(
    sys.argv[1], data=sys.argv[2], out=sys.argv[3], executor__kind="noting",
    quantize__ranges="half", search__objectives=["loss", "size"], search__max_trials=5,
    search__treatments=[],
    analysis__diagnose=False, data__calibration=16, data__evaluation=24, search__jobs=1,
)
"""


def changed_package(folder: Path) -> Path:
    """Copy the package and change the files of the table."""
    package = folder / "seqto"
    shutil.copytree(ROOT / "src" / "seqto", package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, content in NEW_FILES.items():
        (package / name).write_text(content)
    for name, (before, after) in CHANGES.items():
        text = (package / name).read_text()
        assert text.count(before) == 1, f"{name} has no line {before!r}: look at the table again"
        (package / name).write_text(text.replace(before, after))
    return folder


def test_four_kinds_of_things_are_added_in_the_files_that_the_table_names(tmp_path: Path) -> None:
    source = changed_package(tmp_path / "src")
    model, data, run = tmp_path / "m.onnx", tmp_path / "data.npy", tmp_path / "run"
    model.write_bytes(small_model())
    np.save(data, sample_rows())
    subprocess.run(
        [sys.executable, "-c", RUN, model, data, run],
        env={**os.environ, "PYTHONPATH": str(source)},
        check=True,
    )
    report = json.loads((run / "report.json").read_text())
    plans = [set(trial["plan"].values()) for trial in report["trials"]]
    assert any("coarse" in plan for plan in plans)
    assert any(code.endswith("-half") for code in plans[0])
    assert "Evaluate" in (run / "submitted.txt").read_text().split()
    with (run / "front.csv").open(newline="") as stream:
        assert all(row["plan_key"] for row in csv.DictReader(stream))


def test_the_table_names_the_files_that_were_changed() -> None:
    rows = re.findall(
        r"^\| (.*) \| (.*) \|$", PAGE.read_text().partition("## To add something")[2], re.M
    )
    named = {what: set(re.findall(r"`([\w/]+\.py)`", files)) for what, files in rows}
    assert named["a range method"] == {"calibration/ranges.py", "schemes/types.py"}
    assert named["a kind of scheme"] == {"schemes/x.py", "schemes/scheme.py", "search/offered.py"}
    assert named["an executor"] == {
        *("execution/x.py", "config/checks.py", "study/open_executor.py"),
    }
    assert named["a report column"] == {"report/columns.py"}
    assert set().union(*named.values()) >= set(CHANGES)
    asked_for = ("a task", "a kind of scheme", "a range method", "an executor", "an objective")
    for what in (*asked_for, "a report column", "a device, strategy or transform"):
        assert 1 <= len(named[what]) <= 3

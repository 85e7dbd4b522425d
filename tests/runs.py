"""Small tuning runs for the tests: a config, the command in this process or in its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nets
from seqto.record import journal
from seqto.report.wording import speed

CONFIG = """
[model]
path = "net.onnx"

[data]
arrays = "samples.npz"
calibration = 12
evaluation = 60
report = 30

[analysis]
samples = 4
diagnose = false

[search]
strategy = "stepwise"
objectives = ["loss", "size"]
jobs = 2

[device]
latency_s = 0.01
"""


def write_config(folder: Path, *, batch: int | str = "N", text: str = CONFIG) -> Path:
    """net.onnx, samples.npz and tune.toml in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model = nets.residual(uneven=True, batch=batch)
    nets.save(model, folder / "net.onnx")
    free = nets.residual(uneven=True)
    nets.save_samples(folder / "samples.npz", 110, model=free)
    path = folder / "tune.toml"
    path.write_text(text)
    return path


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the events of a journal as JSON."""
    return [event.to_json() for event in journal.read_events(path)]


def environment(*extra: Path) -> dict[str, str]:
    """Return an environment in which processes find what this one finds, and more."""
    path = [str(Path(__file__).parent), *(str(p) for p in extra), *sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p)}


def command(
    *words: str | Path, program: Sequence[str] = ("-m", "seqto"), extra: Sequence[Path] = ()
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *program, *(str(w) for w in words)],
        env=environment(*extra),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


TIMED = {
    "peak_memory",
    "load_time",
    "seconds",
    "spent",
    "hypervolume",
    "latency_ms",
    "latency",
    "p90",
    "median",
    "ratio",
    "throughput",
    "speed",  # the ratio in words
}
# `sentence` and `picks` are compared without what a clock has put into them
NOT_COMPARED = {"profile", "warnings", "environment", "sentence", "picks"}
CLOCKED_PICKS = {"fast", "drop_in", "latency"}  # a clock decides which trial they are


def picks(report: Mapping[str, Any]) -> dict[str, int]:
    """Return recommendations that no clock has a say in."""
    return {k: v for k, v in report["recommended"].items() if k not in CLOCKED_PICKS}


def figures(report: Mapping[str, Any]) -> Any:
    """Return a report without what a clock has measured or decided."""
    found = {k: _untimed(v) for k, v in report.items() if k not in TIMED | NOT_COMPARED}
    found["recommended"] = picks(report)
    found["sentence"] = untimed_sentence(report)
    found["portability_cost"] = re.sub(
        r", ([\d.]+ of float's time instead of [\d.]+|no certain difference in time)",
        "",
        report["portability_cost"],
    )
    rows = [(pick, row) for row in report["picks"] for pick in row["picks"]]
    found["picks"] = {
        pick: (row["trial"], row["holds"]) for pick, row in rows if pick not in CLOCKED_PICKS
    }
    for trial in found["trials"]:
        if trial["number"] not in found["recommended"].values():
            trial.pop("report_split", None)  # there only if another pick, a clocked one, chose it
    return found


def untimed_sentence(report: Mapping[str, Any]) -> str:
    """Return the sentence of the recommendation without its words on speed."""
    sentence: str = report["sentence"]
    for trial in report["trials"]:
        if trial["latency_ms"]:
            sentence = sentence.replace(f", {speed(trial['latency_ms'])}", "")
    return sentence


def _untimed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _untimed(v) for k, v in value.items() if k not in TIMED}
    if isinstance(value, list):
        return [_untimed(v) for v in value]
    return value


def essence(report: Mapping[str, Any]) -> list[Any]:
    """Return which trials there are, what they are and what they lose; the same in every run."""
    keys = ("number", "key", "plan", "excluded", "size_bytes", "sha256", "error", "note")
    return [[*(t[k] for k in keys), t["loss"] and t["loss"]["value"]] for t in report["trials"]]


def hears_ctrl_c() -> None:
    """For a child that is to be interrupted: a background shell starts us with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)

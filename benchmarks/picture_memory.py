"""Memory of a run over 100 and over 1,000 pictures: what is kept of large outputs must not grow.

    python benchmarks/picture_memory.py --zoo ../shared/zoo

One detector (84 × 8400 floats a picture), one worker, the float model and one candidate over N
pictures; pictures of the zoo are taken again until there are enough. The figure is the peak, over
the whole process tree, of anonymous memory (RssAnon: what was allocated). Resident memory is noted
too: it counts pages of the memory-mapped pictures, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import zoo

COUNTS = (100, 1000)
LIMIT = 1.5  # of the memory of the smaller number
CALIBRATION = 8
SUFFIXES = (".jpg", ".jpeg", ".png")  # tables of labels lie beside the pictures


def main() -> None:
    parser = zoo.parser("picture_memory", __doc__, models=("yolov8n",), seeds=None)
    options = parser.parse_args()
    results = zoo.Results(options.out, name="picture_memory", options={"set": options.set})
    for name in options.models:
        for count in COUNTS:
            key = f"{name} {count}"
            if key not in results.rows:
                zoo.note(key)
                results.put(key, measured(name, count, options))
        few, many = (results.rows[f"{name} {count}"]["anonymous_bytes"] for count in COUNTS)
        verdict = "pass" if many <= LIMIT * few else "FAIL"
        print(
            f"{name}: {few / 1e6:.0f} MB for {COUNTS[0]} pictures, {many / 1e6:.0f} MB for "
            f"{COUNTS[1]}: {many / few:.2f} × (at most {LIMIT}): {verdict}"
        )


def measured(name: str, count: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the peak of one short run in a process of its own."""
    from seqto import config

    tables = config.read_toml(options.zoo / f"{name}.toml")
    folder_of_pictures = Path(tables["data"]["images"])
    given = sorted(p for p in folder_of_pictures.rglob("*") if p.suffix.lower() in SUFFIXES)
    with tempfile.TemporaryDirectory(prefix="pictures-") as folder:
        pictures = Path(folder) / "pictures"
        pictures.mkdir()
        for i in range(count + CALIBRATION):
            source = given[i % len(given)]
            (pictures / f"{i:05d}{source.suffix}").symlink_to(source.resolve())
        words = [sys.executable, "-m", "seqto", "tune"]
        words += ["--config", str(options.zoo / f"{name}.toml"), "--out", f"{folder}/run"]
        for setting in (
            f"data.images={json.dumps(str(pictures))}",
            'data.labels="none"',
            f"data.calibration={CALIBRATION}",
            f"data.evaluation={count}",
            "data.report=0",
            "data.labelled={}",
            'search.strategy="stepwise"',
            'search.objectives=["loss", "size"]',
            "search.max_trials=1",
            "search.jobs=1",
            'quantize.activation="u8"',
            "quantize.per_channel=true",
            "analysis.diagnose=false",
            "analysis.samples=1",
        ):
            words += ["--set", setting]
        return watched(words)


def watched(command: list[str]) -> dict[str, Any]:
    """Return peak bytes of a command's process tree, and its seconds."""
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    anonymous = resident = 0
    while process.poll() is None:
        found = [_memory(pid) for pid in _tree(process.pid)]
        anonymous = max(anonymous, sum(row[0] for row in found))
        resident = max(resident, sum(row[1] for row in found))
        time.sleep(0.1)
    if process.returncode:
        sys.exit(f"the run failed with {process.returncode}: {' '.join(command)}")
    seconds = round(time.monotonic() - began, 1)
    return {"anonymous_bytes": anonymous, "resident_bytes": resident, "seconds": seconds}


def _tree(pid: int) -> list[int]:
    import psutil

    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        return [pid, *(child.pid for child in root.children(recursive=True))]
    return []


def _memory(pid: int) -> tuple[int, int]:
    found = {"RssAnon": 0, "VmRSS": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] = 1024 * int(value.split()[0])
    return found["RssAnon"], found["VmRSS"]


if __name__ == "__main__":
    main()

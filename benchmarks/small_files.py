"""The pick `small` on several splits: its loss on the report splits, pooled, and its bytes.

    for seed in 0 1 2; do
        seqto tune --config MODEL.toml --set data.seed=$seed --out RUNS/MODEL-$seed
    done
    python benchmarks/small_files.py RUNS/MODEL-0 RUNS/MODEL-1 RUNS/MODEL-2 …

Reads report.json of each run and writes benchmarks/results/small_files.json: rows of other models
stay. What counts is sums and bytes, so that the runs may share a machine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "small_files.json"


def main() -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for folder in map(Path, sys.argv[1:]):
        model, _, seed = folder.name.rpartition("-")
        known.setdefault(model, {})[seed] = read_run(folder)
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def read_run(folder: Path) -> dict[str, Any]:
    report = json.loads((folder / "report.json").read_text())
    trials = {trial["number"]: trial for trial in report["trials"]}
    full = trials[report["fully_quantized"]]
    small = trials[report["recommended"]["small"]]
    held_out = small["report_split"]["loss"]
    return {
        "number": small["number"],
        "size_bytes": small["size_bytes"],
        "fully_quantized_bytes": full["size_bytes"],
        "loss": {name: held_out[name] for name in ("value", "samples")},
        "expected": (small["expected_loss"] or {}).get("value"),
        "counted": small["loss"]["value"],
        "environment": {
            name: report["environment"][name] for name in ("cpu", "cpu_flags", "cores")
        },
    }


if __name__ == "__main__":
    main()

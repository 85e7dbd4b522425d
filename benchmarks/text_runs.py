"""What finished runs on text models say of their recommended trials, on the report split.

    python benchmarks/text_runs.py minilm=RUN arabizi=RUN

Reads report.json of each run folder and writes benchmarks/results/text_runs.json: bytes, loss,
scores, the ratio of times with its interval as the run measured it, how the run ended, seconds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results" / "text_runs.json"


def main() -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name, _, folder in (given.partition("=") for given in sys.argv[1:]):
        report = json.loads((Path(folder) / "report.json").read_text())
        known[name] = {**read_run(report), "seconds": seconds_of(Path(folder))}
    RESULTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def read_run(report: dict[str, Any]) -> dict[str, Any]:
    """Return the recommended trials of a report, smallest first."""
    names: dict[int, list[str]] = {}
    for pick, number in report["recommended"].items():
        names.setdefault(number, []).append(pick)
    rows = [
        {
            "number": trial["number"],
            "picks": names[trial["number"]],
            "size_bytes": trial["size_bytes"],
            "loss": trial["report_split"]["loss"],
            "scores": trial["report_split"]["scores"],
            "figures": trial["report_split"]["figures"],
            "baseline_scores": trial["report_split"]["baseline_scores"],
            "ratio": [trial["latency_ms"][k] for k in ("ratio", "ratio_low", "ratio_high")],
        }
        for trial in report["trials"]
        if trial["number"] in names and trial["report_split"] and trial["latency_ms"]
    ]
    return {
        "rows": sorted(rows, key=lambda row: row["size_bytes"]),
        "status": report["status"],
        "trials": len(report["trials"]),
        "float_bytes": report["model"]["size_bytes"],
        "environment": report["environment"],
    }


def seconds_of(folder: Path) -> float:
    """Return the seconds of all calls on a run folder: a run may have been continued."""
    events = map(json.loads, (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines())
    return float(sum(event["seconds"] for event in events if event["event"] == "end"))


if __name__ == "__main__":
    main()

"""front.csv: the trials on the front, for spreadsheets and scripts."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.files import write_file
from seqto.report.json_file import Writer
from seqto.text import plain

FILE_NAME = "front.csv"


COLUMNS = (
    "trial", "key", "recommended", "layers_float", "loss", "loss_low", "loss_high", "samples",
    "held_out_loss", "held_out_low", "held_out_high", "accuracy", "size_bytes", "latency_ms",
    "latency_p90_ms", "latency_ratio", "transforms", "float_layers", "note", "sha256",
)  # fmt: skip


def write_front(
    folder: str | os.PathLike[str], report: Mapping[str, Any], *, write: Writer = write_file
) -> Path:
    """Make front.csv in a run folder."""
    path = Path(folder) / FILE_NAME
    write(path, front_csv(report).encode())
    return path


def front_csv(report: Mapping[str, Any]) -> str:
    """One line a trial on the front, smallest file first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    on_front = [t for t in report["trials"] if t["number"] in set(report["front"])]
    for trial in sorted(on_front, key=lambda t: (t["size_bytes"], t["number"])):
        row = _row(report, trial)
        writer.writerow([_cell(row[name]) for name in COLUMNS])
    return out.getvalue()


def _row(report: Mapping[str, Any], trial: Mapping[str, Any]) -> dict[str, Any]:
    loss = trial["loss"] or {}
    held = (trial["report_split"] or {}).get("loss") or {}
    latency = trial["latency_ms"] or {}
    picks = [pick for pick, number in report["recommended"].items() if number == trial["number"]]
    return {
        "trial": trial["number"],
        "key": trial["key"],
        "recommended": " ".join(picks),
        "layers_float": len(trial["excluded"]),
        "loss": loss.get("value"),
        "loss_low": loss.get("low"),
        "loss_high": loss.get("high"),
        "samples": loss.get("samples"),
        "held_out_loss": held.get("value"),
        "held_out_low": held.get("low"),
        "held_out_high": held.get("high"),
        "accuracy": trial["accuracy"],
        "size_bytes": trial["size_bytes"],
        "latency_ms": latency.get("median"),
        "latency_p90_ms": latency.get("p90"),
        "latency_ratio": latency.get("ratio"),
        "transforms": " ".join(trial["transforms"]),
        "float_layers": " ".join(trial["excluded"]),
        "note": trial["note"],
        "sha256": trial["sha256"],
    }


def _cell(value: Any) -> Any:
    """Numbers as they are; a text that a spreadsheet would run as a formula gets a quote first."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.lstrip()[:1] in tuple("=+-@|%") else text

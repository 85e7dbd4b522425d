"""Ranges and means of the float model's tensors, and their file."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ModelError, PlanError
from seqto.files import shown, write_file


@dataclass(frozen=True, slots=True)
class RowReads:
    """Rows of a table that calibration reads."""

    rows: NDArray[np.int64]  # in their order
    unread_share: float  # reads of a sample that go to rows which no other sample reads


@dataclass(frozen=True, slots=True)
class Statistics:
    """Ranges and means of the tensors, and reads of tables; JSON and arrays only."""

    ranges: Mapping[str, Mapping[str, tuple[float, float]]]  # tensor → method → (low, high)
    means: Mapping[str, NDArray[np.float32]]  # tensor → mean per channel
    row_reads: Mapping[str, RowReads] = field(default_factory=dict)  # by the table's tensor

    def range_of(self, name: str, method: str) -> tuple[float, float]:
        known = self.ranges.get(name)
        if known is None:
            raise PlanError(f"tensor {name!r} was not calibrated")
        chosen = known.get(method or "minmax")
        if chosen is None:
            raise PlanError(f"no {method!r} range for tensor {name!r}: calibrate with it first")
        return chosen


# ------------------------------------------------------------------------------------- on disk


def save_statistics(statistics: Statistics, path: str | Path) -> None:
    """Save ranges, means and reads in one .npz, without pickles."""
    import io

    arrays: dict[str, NDArray[Any]] = {}
    index: dict[str, Any] = {"ranges": statistics.ranges, "means": [], "reads": []}
    for i, (name, mean) in enumerate(statistics.means.items()):
        index["means"].append(name)
        arrays[f"m{i}"] = mean
    for i, (name, reads) in enumerate(statistics.row_reads.items()):
        index["reads"].append([name, reads.unread_share])
        arrays[f"r{i}"] = reads.rows
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    write_file(path, stream.getvalue())


def load_statistics(path: str | Path) -> Statistics:
    """Read what `save_statistics` wrote; a damaged file is one ModelError."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            index = json.loads(archive["index"].tobytes())
            ranges = {
                n: {m: (float(v[0]), float(v[1])) for m, v in by.items()}
                for n, by in index["ranges"].items()
            }
            means = {name: archive[f"m{i}"] for i, name in enumerate(index["means"])}
            # earlier versions counted no reads
            reads = {
                name: RowReads(archive[f"r{i}"], float(share))
                for i, (name, share) in enumerate(index.get("reads", []))
            }
    except (zipfile.BadZipFile, ValueError, TypeError, KeyError, EOFError, OSError) as error:
        raise ModelError(
            f"{shown(path)} is damaged ({type(error).__name__}): restore the run folder, or start "
            "a run in a new one"
        ) from error
    return Statistics(ranges, means, reads)

"""Distribute the rounding of a variant's weights over the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqto.assembly.rounded_weights import INDEX_FILE
from seqto.calibration.gram import columns_of
from seqto.errors import DeviceError
from seqto.files import write_file
from seqto.model.prepare import open_prepared
from seqto.records import Json

if TYPE_CHECKING:
    from seqto.execution.local.pool import Pool

SHARE_BYTES = 400_000_000  # of Gram matrices that one worker holds at a time


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounds a variant's weights when a plan first wants them; what is there is not made again."""

    pool: Pool
    folder: Path
    kinds: Sequence[str]
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None

    def ensure(self, variant: str) -> None:
        place = self.folder / "variants" / variant
        if not self.kinds or (place / INDEX_FILE).is_file():
            return
        prepared = open_prepared(place / "model.onnx")
        columns = {x.name: columns_of(x, prepared) for x in prepared.layers}
        wanted = {name: count for name, count in columns.items() if count is not None}
        jobs = [
            {
                "kind": "round",
                "variant": variant,
                "layers": names,
                "kinds": list(self.kinds),
                "file": f"rounded-{number}.npy",
            }
            for number, names in enumerate(shares(wanted, self.pool.size))
        ]
        done = 0

        def hear(message: Json, _arrays: list[Any]) -> None:
            nonlocal done
            done += "rounded" in message
            self.progress("rounding", done, len(wanted))

        rows: list[Json] = []
        for ticket in self.pool.map(jobs, hear):
            if ticket.failure is not None or ticket.result is None:
                message = ticket.failure.message if ticket.failure else "no result"
                raise DeviceError(f"rounding weights for the output failed: {message}")
            rows += ticket.result["rows"]
        write_file(place / INDEX_FILE, json.dumps(rows).encode())


def shares(columns: Mapping[str, int], workers: int) -> list[list[str]]:
    """Layers in groups of about equal work, each of which fits into one worker's memory."""
    if not columns:
        return []
    size = {name: 8 * count**2 for name, count in columns.items()}
    count = min(len(columns), max(workers, -(-sum(size.values()) // SHARE_BYTES)))
    groups: list[list[str]] = [[] for _ in range(count)]
    filled = [0] * count
    for name in sorted(columns, key=lambda n: -columns[n]):
        least = filled.index(min(filled))
        groups[least].append(name)
        filled[least] += size[name] + 1
    return groups

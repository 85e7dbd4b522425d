"""Distribute the rounding of a variant's weights over the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqto.assembly.rounded_weights import INDEX_FILE
from seqto.calibration.gram import columns_of
from seqto.errors import DeviceError
from seqto.execution.executor import Executor, Handle, expect
from seqto.execution.jobs import RoundWeights, WeightsRounded
from seqto.files import write_file
from seqto.model.prepare import open_prepared
from seqto.records import Failure, Json

SHARE_BYTES = 400_000_000  # of Gram matrices that one worker holds at a time


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounds a variant's weights when a plan first wants them; what is there is not made again."""

    executor: Executor
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
        running: dict[Handle, RoundWeights] = {}
        for number, names in enumerate(shares(wanted, self.executor.slots)):
            job = RoundWeights(variant, tuple(names), tuple(self.kinds), f"rounded-{number}.npy")
            running[self.executor.submit(job)] = job
        rows: dict[str, Sequence[Json]] = {}
        done_layers = 0
        self.progress("rounding", 0, len(wanted))
        while running:
            for done in self.executor.wait():
                if done.handle not in running:
                    continue
                job = running.pop(done.handle)
                found = expect(done, WeightsRounded)
                if isinstance(found, Failure):
                    self._cancel(running)
                    raise DeviceError(f"rounding weights for the output failed: {found.message}")
                self.executor.files.adopt(found.file, f"variants/{variant}/{job.file}")
                rows[job.file] = found.rows
                done_layers += len(job.layers)
                self.progress("rounding", done_layers, len(wanted))
        index = [row for file in sorted(rows) for row in rows[file]]
        write_file(place / INDEX_FILE, json.dumps(index).encode())

    def _cancel(self, running: Iterable[Handle]) -> None:
        for handle in running:
            self.executor.cancel(handle)


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

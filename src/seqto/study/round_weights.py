"""Distribute the rounding of a variant's weights over the workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqto.assembly.rounded_weights import INDEX_FILE
from seqto.calibration.gram import columns_of
from seqto.calibration.statistics import Statistics
from seqto.errors import DeviceError
from seqto.execution.executor import Executor, Handle, expect
from seqto.execution.jobs import RoundWeights, WeightsRounded
from seqto.files import write_file
from seqto.model.prepare import Prepared, open_prepared
from seqto.model.shared_weights import equal_weights
from seqto.records import Failure, Json
from seqto.schemes.types import INT_TYPES

LARGEST_INPUT = 1e15  # beyond it, sums of squares may leave float's range
SHARE_BYTES = 400_000_000  # of Gram matrices that one worker holds at a time


@dataclass(frozen=True, slots=True)
class Rounding:
    """Rounds a variant's weights when a plan first wants them; what is there is not made again."""

    executor: Executor
    folder: Path
    kinds: Sequence[str]
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None

    def ensure(self, variant: str) -> None:
        folder = self.folder / "variants" / variant
        if not self.kinds or (folder / INDEX_FILE).is_file():
            return
        prepared = open_prepared(folder / "model.onnx")
        columns = {x.name: columns_of(x, prepared) for x in prepared.layers}
        roundable = {name: count for name, count in columns.items() if count is not None}
        running: dict[Handle, RoundWeights] = {}
        groups = equal_weights(prepared.proto, [x for x in prepared.layers if x.name in roundable])
        for number, names in enumerate(shares(roundable, self.executor.slots, together=groups)):
            job = RoundWeights(variant, tuple(names), tuple(self.kinds), f"rounded-{number}.npy")
            running[self.executor.submit(job)] = job
        rows: dict[str, Sequence[Json]] = {}
        done_layers = 0
        self.progress("rounding", 0, len(roundable))
        while running:
            for done in self.executor.wait():
                if done.handle not in running:
                    continue
                job = running.pop(done.handle)
                outcome = expect(done, WeightsRounded)
                if isinstance(outcome, Failure):
                    self._cancel(running)
                    raise DeviceError(f"rounding weights for the output failed: {outcome.message}")
                self.executor.files.adopt(outcome.file, f"variants/{variant}/{job.file}")
                rows[job.file] = outcome.rows
                done_layers += len(job.layers)
                self.progress("rounding", done_layers, len(roundable))
        index = [row for file in sorted(rows) for row in rows[file]]
        write_file(folder / INDEX_FILE, json.dumps(index).encode())

    def _cancel(self, running: Iterable[Handle]) -> None:
        for handle in running:
            self.executor.cancel(handle)


def roundable_kinds(
    prepared: Prepared, kinds: Sequence[str], statistics: Statistics
) -> frozenset[tuple[str, str]]:
    """Return the layers and kinds of integers that can be rounded for the output.

    Nothing is rounded for that: layers whose inputs are so large that their squares may leave
    float's range are left out, and blocks are for matrices alone.
    """
    roundable: set[tuple[str, str]] = set()
    for layer in prepared.layers:
        if columns_of(layer, prepared) is None:
            continue
        known = statistics.ranges.get(layer.inputs[0], {})
        ends = [abs(end) for pair in known.values() for end in pair]
        if not all(end < LARGEST_INPUT for end in ends):  # also where one is not a number
            continue
        matrix = len(layer.weight_shape) == 2
        roundable |= {(layer.name, kind) for kind in kinds if matrix or kind in INT_TYPES}
    return frozenset(roundable)


def shares(
    columns: Mapping[str, int], workers: int, *, together: Iterable[Sequence[str]] = ()
) -> list[list[str]]:
    """Return layers in groups of about equal work, each of which fits into one worker's memory.

    Layers that stand `together` (they share weights) are in one group, however much they take.
    """
    if not columns:
        return []
    size = {name: 8 * count**2 for name, count in columns.items()}
    first = {name: names[0] for names in together for name in names}
    units: dict[str, list[str]] = {}
    for name in sorted(columns, key=lambda n: -columns[n]):
        units.setdefault(first.get(name, name), []).append(name)
    count = min(len(units), max(workers, -(-sum(size.values()) // SHARE_BYTES)))
    groups: list[list[str]] = [[] for _ in range(count)]
    filled = [0] * count
    for names in units.values():
        least = filled.index(min(filled))
        groups[least] += names
        filled[least] += sum(size[name] + 1 for name in names)
    return groups

"""Rows of tables that calibration reads: what a Gather's indices say about an embedding.

A table's rows are its inputs' directions: how often each is read is the diagonal of the Gram matrix
that other layers have. Words are read very unequally (Zipf's law), so that few rows are most reads.
How many reads of new samples go to other rows is told by leaving out one sample at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.statistics import RowReads, Statistics
from seqto.model.prepare import Prepared
from seqto.records import Layer

FEW = 0.25  # of a table's rows: of more, that is five bits a number and more


def tables_of_few_reads(layers: Sequence[Layer], statistics: Statistics) -> frozenset[str]:
    """Return the layers of tables of which calibration reads some rows, but few."""
    return frozenset(
        layer.name
        for layer in layers
        if layer.storage
        and (reads := statistics.row_reads.get(layer.weight or "")) is not None
        and len(reads.rows) <= FEW * layer.weight_shape[0]
    )


@dataclass(frozen=True, slots=True)
class _Table:
    indices: str  # the tensor that says which rows are read
    reads: NDArray[np.int64]  # of each row
    batches: NDArray[np.int64]  # that read a row


class RowCounter:
    """Counts, for every table that a Gather reads, how often calibration reads each row."""

    def __init__(self, prepared: Prepared) -> None:
        nodes = {n.name: n for n in prepared.proto.graph.node}
        self._tables: dict[str, _Table] = {}
        for layer in prepared.layers:
            if layer.storage and layer.nodes and layer.weight is not None:
                count = layer.weight_shape[0]
                zeros = (np.zeros(count, np.int64) for _ in range(2))
                self._tables[layer.weight] = _Table(nodes[layer.nodes[0]].input[1], *zeros)

    @property
    def tensors(self) -> Sequence[str]:
        return list(dict.fromkeys(table.indices for table in self._tables.values()))

    def look(self, values: Mapping[str, NDArray[Any]]) -> None:
        """Count the rows that one batch reads."""
        for table in self._tables.values():
            rows, counts = np.unique(values[table.indices] % len(table.reads), return_counts=True)
            rows = rows.astype(np.int64)  # negative indices count from the end
            table.reads[rows] += counts
            table.batches[rows] += 1

    def row_reads(self) -> dict[str, RowReads]:
        """Return table → the rows that were read, of tables of which some were."""
        found = {}
        for name, table in self._tables.items():
            total = int(table.reads.sum())
            if total:
                alone = int(table.reads[table.batches == 1].sum())
                found[name] = RowReads(np.flatnonzero(table.reads), alone / total)
        return found

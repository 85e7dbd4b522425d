"""Error of a scheme's weights, by the weights alone: no model is run.

Damage at the output is, for one layer, proportional to the squared error of its weights
(Malinovskii et al., "HIGGS", 2024): one measured scheme of few bits tells what the others of the
layer do.
Weights rounded for the output are compared as if rounded to the nearest: what rounding gains is
about the same factor for all of them.
"""

from __future__ import annotations

import numpy as np

from seqto.records import Layer
from seqto.schemes import table
from seqto.schemes.blocks import quantize_blocks
from seqto.schemes.integers import Floats, quantize
from seqto.schemes.multiples import search_grid
from seqto.schemes.nbit import NBit
from seqto.schemes.part import Constants
from seqto.schemes.read_rows import finer_rows
from seqto.schemes.scheme import Scheme
from seqto.schemes.weight_only import WeightOnly

OUTPUTS = 256  # of a layer that are looked at


def weight_errors(
    layer: Layer, schemes: tuple[Scheme, ...], constants: Constants, *, attention: bool
) -> dict[Scheme, float]:
    """Return the squared error over the squared weights, of schemes with integers by channel.

    Without attention, of those alone that store weights in few bits and compute in float: noise of
    integer activations is measured, not derived.
    """
    chosen = [s for s in schemes if s.weight is not None and s.per_channel]
    is_matrix = len(layer.weight_shape) == 2 and layer.op_type in ("MatMul", "Gemm")
    if not attention:
        chosen = [s for s in chosen if isinstance(s, WeightOnly) and s.weight.is_narrow]
    elif not (is_matrix or layer.storage):
        chosen = []
    if not chosen:
        return {}
    rows = _rows(layer, constants)
    whole = float(np.square(rows, dtype=np.float64).sum()) or 1.0
    reads = constants.row_reads(layer)
    unread = 1.0 if reads is None else reads.unread_share
    return {scheme: _error(rows, scheme, unread=unread) / whole for scheme in chosen}


def _rows(layer: Layer, constants: Constants) -> Floats:
    """Return some output channels, or rows of a table, each with what it sums."""
    if table.is_table(layer):
        rows = table.rows_of(layer, constants)
    else:
        values = constants.weight(layer)
        moved = np.moveaxis(values, constants.channel_axis(layer), 0)
        rows = moved.reshape(len(moved), -1)
    step = max(1, len(rows) // OUTPUTS)
    return np.ascontiguousarray(rows[::step][:OUTPUTS])


def _error(rows: Floats, scheme: Scheme, *, unread: float) -> float:
    """Return the squared error; of finer rows that of a read, which may be of another row."""
    assert scheme.weight is not None
    block = scheme.block if isinstance(scheme, NBit | WeightOnly) else 0
    restored: Floats
    if scheme.weight.multiples:
        grid = search_grid(rows, None, size=scheme.weight.multiples)
        restored = grid.restored(grid.nearest(rows.astype(np.float64))).astype(np.float32)
    elif block:
        q = quantize_blocks(rows, scheme.weight, axis=1, block=block)
        restored = q.restore()
        if isinstance(scheme, WeightOnly) and scheme.read8:
            finer = restored + finer_rows(rows, q, scheme.weight).restore()
            return unread * _squares(rows - restored) + (1.0 - unread) * _squares(rows - finer)
    else:
        restored = quantize(rows, scheme.weight, axis=0).restore()
    return _squares(rows - restored)


def _squares(values: Floats) -> float:
    return float(np.square(values, dtype=np.float64).sum())

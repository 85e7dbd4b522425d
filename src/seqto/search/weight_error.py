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
    return {scheme: _error(rows, scheme) / whole for scheme in chosen}


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


def _error(rows: Floats, scheme: Scheme) -> float:
    assert scheme.weight is not None
    block = scheme.block if isinstance(scheme, NBit | WeightOnly) else 0
    restored: Floats
    if scheme.weight.multiples:
        grid = search_grid(rows, None, size=scheme.weight.multiples)
        restored = grid.restored(grid.nearest(rows.astype(np.float64))).astype(np.float32)
    elif block:
        restored = quantize_blocks(rows, scheme.weight, axis=1, block=block).restore()
    else:
        restored = quantize(rows, scheme.weight, axis=0).restore()
    return float(np.square(rows - restored, dtype=np.float64).sum())

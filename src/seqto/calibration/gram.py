"""Gram matrices of layer inputs, which rounding for the output error needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.collect import Batches
from seqto.model.float_session import run_for, session_with_outputs
from seqto.model.graph import attribute, attribute_ints, input_channels
from seqto.model.prepare import Prepared
from seqto.records import Json, Layer

ROWS_PER_SAMPLE = 128  # positions of a feature map that enter a Gram matrix
GRAM_LIMIT = 2560  # columns; beyond that factors cost more than they bring


def grams_of(
    prepared: Prepared,
    batches: Batches,
    layers: Iterable[Layer],
    *,
    on_progress: Callable[[Json], object] = lambda _message: None,
) -> dict[str, NDArray[np.float32]]:
    """Return layer → X Xᵀ of its unfolded input, of every other sample.

    Rounding is judged by samples that it has not seen.
    """
    views = {layer.name: View.of(layer, prepared) for layer in layers}
    names = list(dict.fromkeys(v.source for v in views.values()))
    session = session_with_outputs(prepared, names, exact=False)
    sums = {name: np.zeros((2, v.columns, v.columns), np.float32) for name, v in views.items()}
    for turn, feeds in enumerate(batches()):
        values = run_for(session, names, feeds)
        for name, view in views.items():
            rows = view.rows(values[view.source])
            with np.errstate(over="ignore", invalid="ignore"):
                sums[name][turn % 2] += rows.T @ rows
        on_progress({"samples": turn + 1})
    return sums


@dataclass(frozen=True, slots=True)
class View:
    """View of a layer's input as the matrix that its weights multiply."""

    source: str
    columns: int
    kernel: tuple[int, ...] = ()  # empty: a matrix already
    pads: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()

    @staticmethod
    def of(layer: Layer, prepared: Prepared) -> View:
        columns = columns_of(layer, prepared)
        if columns is None:
            raise ValueError(f"layer {layer.name!r} cannot be seen as one matrix")
        if layer.op_type != "Conv":
            return View(layer.inputs[0], columns)
        dims = _weight_dims(layer, prepared)
        node = _node(layer, prepared)
        pads = attribute_ints(node, "pads") or (0, 0, 0, 0)
        strides = attribute_ints(node, "strides") or (1, 1)
        return View(layer.inputs[0], columns, dims[2:], pads, strides)

    def rows(self, value: NDArray[Any]) -> NDArray[np.float32]:
        """Return some rows of that matrix."""
        if not self.kernel:
            return value.reshape(-1, self.columns)[: ROWS_PER_SAMPLE * 8].astype(np.float32)
        top, left, bottom, right = self.pads
        padded = np.pad(value, ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.kernel, axis=(2, 3))
        windows = windows[:, :, :: self.strides[0], :: self.strides[1]]
        count = windows.shape[2] * windows.shape[3]
        # evenly spread positions: deterministic, and no picture corner is preferred
        chosen = np.linspace(0, count - 1, min(count, ROWS_PER_SAMPLE)).astype(int)
        y, x = np.divmod(chosen, windows.shape[3])
        rows = windows[:, :, y, x].transpose(0, 2, 1, 3, 4)
        return np.ascontiguousarray(rows.reshape(-1, self.columns), dtype=np.float32)


def columns_of(layer: Layer, prepared: Prepared) -> int | None:
    """Return how many columns the matrix has that the layer's weights multiply.

    None where that is not simple.
    """
    if not layer.weight or layer.depthwise or layer.storage:
        return None
    dims = _weight_dims(layer, prepared)
    node = _node(layer, prepared)
    if layer.op_type == "Gemm" or (layer.op_type == "MatMul" and len(dims) == 2):
        columns = input_channels(node, dims)
    elif layer.op_type == "Conv" and len(dims) == 4:
        dilated = any(d != 1 for d in attribute_ints(node, "dilations"))
        if attribute(node, "group", 1) != 1 or dilated:
            return None
        columns = int(np.prod(dims[1:]))
    else:
        return None
    return columns if columns <= GRAM_LIMIT else None


def _weight_dims(layer: Layer, prepared: Prepared) -> tuple[int, ...]:
    weight = next(t for t in prepared.proto.graph.initializer if t.name == layer.weight)
    return tuple(weight.dims)


def _node(layer: Layer, prepared: Prepared) -> Any:
    return next(n for n in prepared.proto.graph.node if n.name == layer.nodes[0])

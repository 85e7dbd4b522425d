"""Weights rounded for the output error: computed by a worker, stored beside their variant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.inserted_factors import UNSCALED, inserted_factors
from seqto.calibration.collect import Batches
from seqto.calibration.gram import grams_of
from seqto.errors import ModelError
from seqto.files import replacing, shown
from seqto.model.prepare import Prepared
from seqto.model.shared_weights import equal_weights
from seqto.records import Json, Layer
from seqto.schemes.block_rounding import BlockForm, Blocks, round_blocks
from seqto.schemes.integers import TINY, Quantized
from seqto.schemes.output_rounding import Rounder
from seqto.schemes.part import Constants
from seqto.schemes.types import INT_TYPES

INDEX_FILE = "rounded.json"


# (layer, weight type or block form) → integers
Rounded = dict[tuple[str, str], Quantized | Blocks]


# --------------------------------------------------------------------------------- in a worker


def round_layers(
    prepared: Prepared,
    batches: Batches,
    layers: Sequence[Layer],
    kinds: Sequence[str],
    *,
    constants: Constants,
    on_progress: Callable[[Json], object] = lambda _message: None,
) -> Rounded:
    """Return integers with small output error, for the layers whose inputs are finite.

    `kinds` are names of weight types, and of block forms, which matrices only have. `on_progress`
    hears of every sample and of every layer, so that nobody takes long work for a hang.
    """
    types = [INT_TYPES[kind] for kind in kinds if kind in INT_TYPES]
    forms = [form for kind in kinds if (form := BlockForm.parse(kind)) is not None]
    grams = grams_of(prepared, batches, layers, on_progress=on_progress)
    factors = inserted_factors(prepared.proto, layers)
    add_grams_of_equal_weights(grams, prepared, [x for x in layers if x.name not in factors])
    by_layer_and_kind: Rounded = {}
    for layer in layers:
        gram = grams.pop(layer.name)
        if np.isfinite(gram).all():  # else what flows in is beyond float's range: nearest must do
            axis, values = constants.channel_axis(layer), constants.weight(layer)
            wide = gram.astype(np.float64)
            rounded = Rounder(layer, values, wide, axis=axis).round(*types)
            by_layer_and_kind |= {(layer.name, to.name): q for to, q in rounded.items()}
            ending, own = "", factors.get(layer.name)
            if own is not None:  # schemes with blocks, and some with channels, go without factors
                ending, wide, values = UNSCALED, own.gram(wide), own.without(values, axis)
                plain = [to for to in types if not to.multiples and to.pair_limit is None]
                rounded = Rounder(layer, values, wide, axis=axis).round(*plain)
                by_layer_and_kind |= {
                    (layer.name, to.name + ending): q for to, q in rounded.items()
                }
            for form in forms if values.ndim == 2 else ():
                rows = np.moveaxis(values, axis, 0)
                by_layer_and_kind[(layer.name, form.name + ending)] = round_blocks(rows, wide, form)
        on_progress({"rounded": layer.name})
    return by_layer_and_kind


def add_grams_of_equal_weights(
    grams: dict[str, NDArray[np.float32]], prepared: Prepared, layers: Sequence[Layer]
) -> None:
    """Give layers with equal weights the sum of their Gram matrices, so that they round alike."""
    for group in equal_weights(prepared.proto, layers):
        if len({grams[name].shape for name in group}) == 1:
            total = np.sum([grams[name] for name in group], axis=0)
            grams.update(dict.fromkeys(group, total))


def placeholders(layer: Layer, kinds: Sequence[str], constants: Constants) -> Rounded:
    """Return zeros in the form of rounded weights: they take as many bytes in a file.

    Scales are about as large as those of rounded weights: small ones are not stored in half.
    """
    values, axis = constants.weight(layer), constants.channel_axis(layer)
    most = np.abs(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)).max(axis=1)
    zeros: Rounded = {}
    for kind in kinds:
        form = BlockForm.parse(kind.removesuffix(UNSCALED))
        if form is None:
            high = INT_TYPES[kind.removesuffix(UNSCALED)].symmetric_high
            scale = np.maximum(most / high, TINY).astype(np.float32)
            data = np.zeros(values.shape, np.int8)
            zeros[layer.name, kind] = Quantized(data, scale, np.zeros(scale.shape, np.int8), axis)
        elif values.ndim == 2:
            integer = np.int8 if form.high <= 127 else np.uint8
            shape = np.moveaxis(values, axis, 0).shape
            scales = (shape[0], -(-shape[1] // form.size))
            zeros[layer.name, kind] = Blocks(
                form,
                np.zeros(shape, integer),
                np.ones(scales, np.float32),
                np.zeros(scales, integer),
            )
    return zeros


# ------------------------------------------------------------------------------------- on disk


def save(rounded: Rounded, path: Path) -> list[Json]:
    """Save all integers and scales in one file; return the rows of the index to them."""
    parts: list[NDArray[np.uint8]] = []
    rows: list[Json] = []
    offset = 0
    for (layer, kind), q in rounded.items():
        row: Json = {"layer": layer, "kind": kind, "file": path.name}
        if isinstance(q, Quantized):
            row |= {"axis": q.axis, "channels": len(q.scale)}
        arrays = {"scale": q.scale, "data": q.data, "zero": q.zero_point}
        for name, array in arrays.items() if isinstance(q, Blocks) else list(arrays.items())[:2]:
            raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            padded = np.concatenate([raw, np.zeros(-len(raw) % 4, np.uint8)])
            row[f"{name}_at"] = offset
            parts.append(padded)
            offset += len(padded)
        rows.append({**row, "shape": list(q.data.shape)})
    with replacing(path) as stream:
        np.save(stream, np.concatenate(parts) if parts else np.zeros(0, np.uint8))
    return rows


def load(folder: Path) -> Rounded:
    """Return the rounded weights of a variant; empty if none were rounded yet.

    Damaged files are one ModelError.
    """
    if not (folder / INDEX_FILE).is_file():
        return {}
    try:
        rows = json.loads((folder / INDEX_FILE).read_bytes())
        names = {row["file"]: folder / Path(row["file"]).name for row in rows}
        mapped = {f: np.load(p, mmap_mode="r", allow_pickle=False) for f, p in names.items()}
        return {(row["layer"], row["kind"]): _read(row, mapped[row["file"]]) for row in rows}
    except (OSError, EOFError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(
            f"the rounded weights in {shown(folder)} are damaged ({type(error).__name__}): restore "
            "the run folder, or start a run in a new one"
        ) from error


def _read(row: Json, raw: NDArray[np.uint8]) -> Quantized | Blocks:
    form = BlockForm.parse(row["kind"].removesuffix(UNSCALED))
    if form is None:
        scale = _array(raw, row["scale_at"], (row["channels"],), np.float32)
        data = _array(raw, row["data_at"], row["shape"], np.int8)
        return Quantized(data, np.array(scale), np.zeros(scale.shape, np.int8), row["axis"])
    integer = np.int8 if form.high <= 127 else np.uint8
    scales = (row["shape"][0], -(-row["shape"][1] // form.size))
    return Blocks(
        form,
        _array(raw, row["data_at"], row["shape"], integer),
        _array(raw, row["scale_at"], scales, np.float32),
        _array(raw, row["zero_at"], scales, integer),
    )


def _array(raw: NDArray[np.uint8], start: int, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    array: NDArray[Any] = raw[start : start + size].view(dtype).reshape(shape)
    return array

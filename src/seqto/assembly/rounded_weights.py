"""Weights rounded for the output error: computed by a worker, stored beside their variant."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.collect import Batches
from seqto.calibration.gram import grams_of
from seqto.files import replacing
from seqto.model.prepare import Prepared
from seqto.records import Json, Layer
from seqto.schemes.integers import Quantized
from seqto.schemes.output_rounding import Rounder
from seqto.schemes.part import Constants
from seqto.schemes.types import INT_TYPES

INDEX_FILE = "rounded.json"


Rounded = dict[tuple[str, str], Quantized]  # (layer, weight type) → integers


# --------------------------------------------------------------------------------- in a worker


def round_layers(
    prepared: Prepared,
    batches: Batches,
    layers: Sequence[Layer],
    kinds: Sequence[str],
    *,
    constants: Constants,
    told: Callable[[Json], object] = lambda _message: None,
) -> Rounded:
    """Integers with small output error, for the layers whose inputs are finite.

    `told` hears of every sample and of every layer, so that nobody takes long work for a hang.
    """
    grams = grams_of(prepared, batches, layers, told=told)
    found: Rounded = {}
    for layer in layers:
        gram = grams.pop(layer.name)
        if np.isfinite(gram).all():  # else what flows in is beyond float's range: nearest must do
            axis = constants.channel_axis(layer)
            rounder = Rounder(layer, constants.weight(layer), gram.astype(np.float64), axis=axis)
            rounded = rounder.round(*(INT_TYPES[kind] for kind in kinds))
            found |= {(layer.name, to.name): q for to, q in rounded.items()}
        told({"rounded": layer.name})
    return found


# ------------------------------------------------------------------------------------- on disk


def save(found: Rounded, path: Path) -> list[Json]:
    """All integers and scales in one file; the rows of the index that finds them again."""
    parts: list[NDArray[np.uint8]] = []
    rows: list[Json] = []
    place = 0
    for (layer, kind), q in found.items():
        for name, array in (("scale", q.scale), ("data", q.data)):
            raw = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)
            padded = np.concatenate([raw, np.zeros(-len(raw) % 4, np.uint8)])
            if name == "scale":
                row = {"layer": layer, "kind": kind, "axis": q.axis, "file": path.name}
                rows.append({**row, "scale_at": place, "channels": len(q.scale)})
            else:
                rows[-1] |= {"data_at": place, "shape": list(q.data.shape)}
            parts.append(padded)
            place += len(padded)
    with replacing(path) as stream:
        np.save(stream, np.concatenate(parts) if parts else np.zeros(0, np.uint8))
    return rows


def load(place: Path) -> Rounded:
    """What has been rounded of a variant; nothing, if nobody has asked for it yet."""
    if not (place / INDEX_FILE).is_file():
        return {}
    rows = json.loads((place / INDEX_FILE).read_bytes())
    files = {r["file"] for r in rows}
    mapped = {f: np.load(place / Path(f).name, mmap_mode="r", allow_pickle=False) for f in files}
    found: Rounded = {}
    for row in rows:
        raw, shape = mapped[row["file"]], row["shape"]
        scale = raw[row["scale_at"] : row["scale_at"] + 4 * row["channels"]].view(np.float32)
        data = raw[row["data_at"] : row["data_at"] + int(np.prod(shape))].view(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        found[(row["layer"], row["kind"])] = Quantized(
            data.reshape(shape), np.array(scale), zero, row["axis"]
        )
    return found

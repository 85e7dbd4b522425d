"""Weights rounded for the output error: made by the workers of a pool, kept beside their model.

Each worker runs the float model over the calibration samples for its share of the layers, adds up
their Gram matrices and rounds (schemes/rounding.py). The integers are memory-mapped when they are
read: all workers look at the same pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from seqto.assemble import Assembler, Statistics
from seqto.calibrate import Batches, run_for, session_with_outputs
from seqto.contracts import Json, Layer
from seqto.errors import DeviceError
from seqto.files import replacing, write_file
from seqto.model import Prepared, open_prepared
from seqto.schemes.integers import Quantized
from seqto.schemes.rounding import Rounder

if TYPE_CHECKING:
    from seqto.workers import Pool

INDEX_FILE = "rounded.json"
ROWS_PER_SAMPLE = 128  # positions of a feature map that enter a Gram matrix
GRAM_LIMIT = 2560  # columns; beyond that factors cost more than they bring
SHARE_BYTES = 400_000_000  # of Gram matrices that one worker holds at a time

Rounded = dict[tuple[str, str], Quantized]  # (layer, weight type) → integers


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


# --------------------------------------------------------------------------------- in a worker


def round_layers(
    prepared: Prepared,
    batches: Batches,
    layers: Sequence[Layer],
    kinds: Sequence[str],
    *,
    told: Callable[[Json], object] = lambda _message: None,
) -> Rounded:
    """Integers with small output error, for the layers whose inputs are finite.

    `told` hears of every sample and of every layer, so that nobody takes long work for a hang.
    """
    grams = grams_of(prepared, batches, layers, told=told)
    constants = Assembler(prepared, Statistics({}, {}))
    found: Rounded = {}
    for layer in layers:
        gram = grams.pop(layer.name)
        if np.isfinite(gram).all():  # else what flows in is beyond float's range: nearest must do
            axis = constants.channel_axis(layer)
            rounder = Rounder(layer, constants.weight(layer), gram.astype(np.float64), axis=axis)
            found |= {(layer.name, kind): q for kind, q in rounder.round(*kinds).items()}
        told({"rounded": layer.name})
    return found


def grams_of(
    prepared: Prepared,
    batches: Batches,
    layers: Iterable[Layer],
    *,
    told: Callable[[Json], object] = lambda _message: None,
) -> dict[str, NDArray[np.float32]]:
    """Layer → X Xᵀ of its unfolded input, of every other sample: rounding is judged by samples
    that it has not seen."""
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
        told({"samples": turn + 1})
    return sums


@dataclass(frozen=True, slots=True)
class View:
    """How a layer's input becomes the matrix that its weights multiply."""

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
        found = _attributes(layer, prepared)
        pads, strides = found.get("pads", (0, 0, 0, 0)), found.get("strides", (1, 1))
        return View(layer.inputs[0], columns, dims[2:], pads, strides)

    def rows(self, value: NDArray[Any]) -> NDArray[np.float32]:
        """Some rows of that matrix."""
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
    """Columns of the matrix that the layer's weights multiply; None where that is not simple."""
    if not layer.weight or layer.depthwise:
        return None
    dims = _weight_dims(layer, prepared)
    found = _attributes(layer, prepared)
    if layer.op_type == "Gemm":
        columns = dims[1] if found.get("transB") else dims[0]
    elif layer.op_type == "MatMul" and len(dims) == 2:
        columns = dims[0]
    elif layer.op_type == "Conv" and len(dims) == 4:
        if found.get("group", 1) != 1 or any(d != 1 for d in found.get("dilations", ())):
            return None
        columns = int(np.prod(dims[1:]))
    else:
        return None
    return columns if columns <= GRAM_LIMIT else None


def _weight_dims(layer: Layer, prepared: Prepared) -> tuple[int, ...]:
    found = next(t for t in prepared.proto.graph.initializer if t.name == layer.weight)
    return tuple(found.dims)


def _attributes(layer: Layer, prepared: Prepared) -> dict[str, Any]:
    node = next(n for n in prepared.proto.graph.node if n.name == layer.nodes[0])
    return {a.name: tuple(a.ints) or a.i for a in node.attribute}


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

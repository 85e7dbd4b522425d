"""The judged output of a model, and the distance between two answers there.

One output is judged: the one that `task.output` names, or else the first that holds numbers and
depends on a layer with weights. What an answer is follows from the output's type and shape:

    integers   integers and bools: an answer is all of a sample's numbers
    scores     floats in one axis of two or more (N×classes): the class with the highest score
    values     all other floats (one column, maps, sequences): the numbers themselves
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.errors import ConfigError, ModelError, nearest
from seqto.records import Json, Layer

INTEGERS, SCORES, VALUES = "integers", "scores", "values"


# their results depend on a tensor's shape, not on its numbers
SHAPE_OPS = ("Shape", "Size")


@dataclass(frozen=True, slots=True)
class Judged:
    """The output that is judged, by name and by position among the model's outputs."""

    name: str
    position: int
    count: int  # of the model's outputs
    numeric: tuple[int, ...]  # positions of all outputs that hold numbers

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "position": self.position,
            "count": self.count,
            "numeric": list(self.numeric),
        }

    @classmethod
    def from_json(cls, data: Json) -> Judged:
        return cls(data["name"], data["position"], data["count"], tuple(data["numeric"]))


def choose(proto: Any, layers: Sequence[Layer], *, output_name: str | None = None) -> Judged:
    """Choose the output to judge: the one that is named, or the first that can be judged."""
    names = [value.name for value in proto.graph.output]
    reasons = [_why_not(value, proto, layers) for value in proto.graph.output]
    numeric = tuple(i for i, value in enumerate(proto.graph.output) if not _no_numbers(value))
    if output_name is not None and output_name not in names:
        known = ", ".join(repr(name) for name in names)
        raise ConfigError(
            f"task.output = {output_name!r} is no output of the model{nearest(output_name, names)}"
            f": it has {known}"
        )
    for position, (name, reason) in enumerate(zip(names, reasons, strict=True)):
        if name == output_name and reason:
            raise ConfigError(f"task.output = {output_name!r} cannot be judged: it {reason}")
        if name == output_name or (output_name is None and reason is None):
            return Judged(name, position, len(names), numeric)
    listed = ", ".join(f"{name!r} {reason}" for name, reason in zip(names, reasons, strict=True))
    raise ModelError(f"no output of the model can be judged: {listed}")


def _why_not(value: Any, proto: Any, layers: Sequence[Layer]) -> str | None:
    unusable = _no_numbers(value)
    if unusable:
        return unusable
    if value.name in {i.name for i in proto.graph.input}:
        return "is an input of the model"
    if not _depends_on_weights(value.name, proto, layers):
        return "depends on no layer with weights"
    return None


def _no_numbers(value: Any) -> str | None:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind not in ("tensor_type", None):
        return f"is a {str(kind).removesuffix('_type').replace('_', ' ')}, not a tensor"
    tensor = value.type.tensor_type
    if tensor.elem_type == onnx.TensorProto.STRING:
        return "holds text"
    if any(d.HasField("dim_value") and d.dim_value == 0 for d in tensor.shape.dim):
        return "has no values: a side of its shape is 0"
    return None


def _depends_on_weights(name: str, proto: Any, layers: Sequence[Layer]) -> bool:
    weighted = {node for layer in layers if layer.weight for node in layer.nodes}
    makers = {o: node for node in proto.graph.node for o in node.output if o}
    visited: set[str] = set()
    waiting = [name]
    while waiting:
        node = makers.get(waiting.pop())
        if node is None or node.name in visited or node.op_type in SHAPE_OPS:
            continue
        if node.name in weighted:
            return True
        visited.add(node.name)
        waiting += _read_by(node)
    return False


def _read_by(node: Any) -> Iterator[str]:
    """Return the tensors that a node reads, also inside of its branches."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _read_by(inner)
            yield from (o.name for o in graph.output)


# -------------------------------------------------------------------------------- its numbers


def by_sample(value: Any, *, name: str, fed: int, rows: int) -> NDArray[Any]:
    """Return an output with one row a sample: of `fed` rows, the first `rows` count."""
    array = np.asarray(value)
    if array.ndim and len(array) == fed:
        return array[:rows]
    if fed == 1:  # a model of single samples, whose answer has no axis for them
        return array[None]
    raise ModelError(
        f"output {name!r} has shape {list(array.shape)} for {fed} samples, but its first axis must "
        "be that of the samples: choose another with task.output, or export the model for a batch "
        "of 1"
    )


def has_rows(value: Any, rows: int) -> bool:
    """Return whether an output has one row for each of the samples."""
    return np.ndim(value) > 0 and len(value) == rows


def joined(parts: Sequence[NDArray[Any]], *, name: str) -> NDArray[Any]:
    """Join the rows of several runs in one array."""
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        a, b = (list(s) for s in sorted(shapes)[:2])
        raise ModelError(
            f"output {name!r} changes its shape from sample to sample ({a}, {b}), which cannot be "
            "judged: choose another with task.output"
        )
    return np.ascontiguousarray(np.concatenate(parts))


def kind_of(value: NDArray[Any]) -> str:
    """Return the kind of answer, by the type and shape of an output with one row per sample."""
    if value.dtype.kind in "iub":
        return INTEGERS
    sides = [side for side in value.shape[1:] if side != 1]
    return SCORES if len(sides) == 1 and sides[0] > 1 else VALUES


def equal_answers(want: NDArray[Any], got: NDArray[Any]) -> NDArray[np.bool_]:
    """Return, per sample, whether all numbers are the same."""
    same: NDArray[np.bool_] = (_flat(want) == _flat(got)).all(axis=1)
    return same


def relative_errors(want: NDArray[Any], got: NDArray[Any]) -> NDArray[np.float64]:
    """Return ‖got − want‖ / ‖want‖ per sample, at most 1; numbers that are not finite make it 1."""
    a, b = (_flat(x).astype(np.float64) for x in (want, got))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, b - a)
        distance = np.sqrt((gap**2).sum(axis=1))
        size = np.sqrt((np.where(np.isfinite(a), a, 0.0) ** 2).sum(axis=1))
        error = np.where(distance == 0, 0.0, distance / size)
    clipped: NDArray[np.float64] = np.minimum(np.nan_to_num(error, nan=1.0, posinf=1.0), 1.0)
    return clipped


def squared_gaps(want: NDArray[Any], got: NDArray[Any]) -> NDArray[np.float64]:
    """Return what damage adds up, per sample; of integers, the share of numbers that differ."""
    gaps: NDArray[np.float64]
    if kind_of(want) == INTEGERS:
        gaps = (_flat(want) != _flat(got)).mean(axis=1)
    else:
        a, b = (_flat(x).astype(np.float64) for x in (want, got))
        with np.errstate(invalid="ignore", over="ignore"):  # infinite answers may be the same
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            gaps = (np.where(same, 0.0, b - a) ** 2).sum(axis=1)
    return gaps


def spread(outputs: Sequence[NDArray[Any]]) -> float:
    """Return the reference of damage: mean squared distance of the answers from their mean."""
    if kind_of(outputs[0]) == INTEGERS:
        return 1.0
    rows = np.concatenate([_flat(x).astype(np.float64) for x in outputs])
    rows = np.where(np.isfinite(rows), rows, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        variance = float(((rows - rows.mean(axis=0)) ** 2).sum(axis=1).mean())
        size = float((rows**2).sum(axis=1).mean())
    return next((x for x in (variance, size) if x and np.isfinite(x)), 1.0)


def _flat(value: NDArray[Any]) -> NDArray[Any]:
    return value.reshape(len(value), -1)

"""Small nets for diagnoses, each with one cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.devices import saturation
from seqto.devices.ort import Ort
from seqto.diagnosis import explain, measure
from seqto.diagnosis.measure import gather
from seqto.diagnosis.subject import Subject
from seqto.model.prepare import prepare
from seqto.records import Json
from seqto.schemes.types import INT_TYPES
from seqto.search.choices import default_schemes

Floats = NDArray[np.float32]
PRODUCTS = saturation.probe(Ort())
SATURATES = PRODUCTS["result"] == saturation.SATURATES


def small_net(
    weights: Mapping[str, Floats],
    *,
    biases: Mapping[str, NDArray[Any]] | None = None,
    side: int = 8,
    relu: bool = True,
) -> onnx.ModelProto:
    """x ─▶ 1×1 Conv ─▶ Relu ─▶ 1×1 Conv ─▶ … ─▶ y, one Conv for each matrix of weights."""
    make = onnx.helper.make_node
    nodes, constants, tensor = [], [], "x"
    for position, (name, matrix) in enumerate(weights.items()):
        values = matrix.astype(np.float32).reshape(*matrix.shape, 1, 1)
        constants.append(onnx.numpy_helper.from_array(values, f"{name}.w"))
        bias = (biases or {}).get(name, np.ones(len(matrix), np.float32))
        constants.append(onnx.numpy_helper.from_array(bias.astype(np.float32), f"{name}.b"))
        last = position == len(weights) - 1
        result = "y" if last else f"{name}.c"
        nodes.append(make("Conv", [tensor, f"{name}.w", f"{name}.b"], [result], name=name))
        if relu and not last:
            nodes.append(make("Relu", [result], [f"{name}.r"], name=f"{name}.relu"))
        tensor = f"{name}.r" if relu and not last else result
    channels = [m.shape for m in weights.values()]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [info("x", 1, ["n", channels[0][1], side, side])],
        [info("y", 1, ["n", channels[-1][0], side, side])],
        constants,
    )
    opset = onnx.helper.make_opsetid("", 13)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)


def subject_of(
    model: onnx.ModelProto,
    samples: Sequence[Floats],
    *,
    mode: str = "static",
    weight: str = "s8",
    activation: str = "u8",
    granularity: str = "channel",
) -> Subject:
    prepared = prepare(model)
    feeds: list[Mapping[str, NDArray[Any]]] = [{"x": x[None]} for x in samples]
    statistics = calibrate(prepared, lambda: feeds).statistics
    schemes = default_schemes(
        prepared.layers,
        mode=mode,
        weight=INT_TYPES[weight],
        activation=INT_TYPES[activation],
        per_channel=granularity == "channel",
    )
    return Subject(
        Assembler(prepared, statistics), Plan.of(schemes), feeds, Ort(), Ort(optimize=False)
    )


def diagnosed(subject: Subject) -> dict[str, Json]:
    measured = {part: gather(part, subject) for part in measure.PARTS}
    found = explain.findings({**measured, "int8_products": PRODUCTS})
    assert all(f["event"] == "finding" and f["kind"] == "diagnosis" for f in found)
    return {f["figures"]["cause"]: f for f in found}


def uniform(rows: int, channels: int, *, side: int = 8, seed: int = 0) -> list[Floats]:
    random = np.random.default_rng(seed)
    return [random.random((channels, side, side), dtype=np.float32) for _ in range(rows)]


def even(outputs: int, inputs: int, *, seed: int = 1) -> Floats:
    """Return weights of one range in every channel: one large one, and small ones below zero.

    No two products have a large sum of one sign, so that it fits into 16 bits.
    """
    random = np.random.default_rng(seed)
    matrix = random.uniform(-0.2, 0.0, (outputs, inputs)).astype(np.float32)
    matrix[np.arange(outputs), np.arange(outputs) % inputs] = 0.9
    return matrix

"""Fakes for tests of plug-ins: a device, a task, a small search space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.errors import DeviceError, PlanError
from seqto.record.trial import Trial
from seqto.records import (
    CALIBRATION,
    EVALUATION,
    Json,
    Latency,
    Layer,
    LayerError,
    Loss,
    Measurement,
)
from seqto.schemes.scheme import FP16, FP32, Scheme
from seqto.search.space import Space
from seqto.tasks.task import Answers

# damage of a layer by the kind of its scheme: made up, and the more the fewer bits are left
BY_KIND = {"fp32": 0.0, "fp16": 0.001, "weight": 0.01, "dynamic": 0.02, "static": 0.04}

STAGES = ("import", "compile", "load", "run", "time")
ROWS = 12


# ---------------------------------------------------------------------------------------- fakes


@dataclass(frozen=True, slots=True)
class FakeDevice:
    """Answers without running anything: a fixed projection of the input, and noise that depends
    on the model's bytes alone. Models with one of `missing_ops` do not load."""

    classes: int = 10
    noise: float = 0.1
    missing_ops: tuple[str, ...] = ()
    milliseconds: float = 1.0

    @property
    def name(self) -> str:
        return "fake"

    def open(self, model: bytes | Path, *, threads: int = 0) -> FakeSession:
        import onnx
        from google.protobuf.message import DecodeError

        try:
            proto = (
                onnx.load(str(model)) if isinstance(model, Path) else onnx.load_from_string(model)
            )
        except DecodeError as error:
            raise DeviceError(f"not a model: {error}", stage="load") from error
        if not proto.graph.node:
            raise DeviceError("not a model: it has no graph", stage="load")
        op_types = {node.op_type for node in proto.graph.node}
        missing = tuple(op for op in self.missing_ops if op in op_types)
        if missing:
            raise DeviceError(f"no kernel for {', '.join(missing)}", stage="load", ops=missing)
        return FakeSession(self, hashlib.sha256(proto.SerializeToString()).digest())

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None:
        del layer, scheme
        return None

    def describe(self) -> Json:
        return {"kind": "fake", "name": self.name, "classes": self.classes}


class FakeSession:
    """A session of FakeDevice."""

    def __init__(self, device: FakeDevice, digest: bytes) -> None:
        self._device = device
        self._seed = int.from_bytes(digest[:8], "little")

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        first = next(iter(feeds.values()))
        flat = np.asarray(first, dtype=np.float64).reshape(len(first), -1)
        fixed = np.random.default_rng(0).standard_normal((flat.shape[1], self._device.classes))
        own = np.random.default_rng(self._seed).standard_normal(fixed.shape)
        scores = flat @ (fixed + self._device.noise * own)
        return [scores.astype(np.float32)]

    def time_ms(self, feeds: Mapping[str, NDArray[Any]]) -> float:
        self.run(feeds)
        return self._device.milliseconds

    def close(self) -> None:
        """Close nothing: nothing is held."""

    def __enter__(self) -> FakeSession:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class FakeTask:
    """Answers are the first output; they differ when a number differs by more than `tolerance`."""

    signal_bytes: ClassVar[int] = 65_536
    tolerance: float = 0.0

    def decode(self, outputs: Sequence[NDArray[Any]]) -> Answers:
        return Answers({"numbers": np.asarray(outputs[0]).reshape(len(outputs[0]), -1)})

    def distance(self, reference: Answers, answers: Answers) -> NDArray[np.float64]:
        gap = np.abs(reference.values["numbers"].astype(np.float64) - answers.values["numbers"])
        far: NDArray[np.float64] = (gap.max(axis=1) > self.tolerance).astype(np.float64)
        return far

    def signal(self, outputs: Sequence[NDArray[Any]]) -> NDArray[Any]:
        return np.asarray(outputs[0]).reshape(len(outputs[0]), -1)

    def scores(self, answers: Answers, labels: Any) -> Mapping[str, float]:
        named = answers.values["numbers"].argmax(axis=1)
        return {"accuracy": float((named == np.asarray(labels)).mean())}


def small_space(*, layers: int = 6, seed: int = 0) -> Space:
    """Return a chain of Convs with an Add in the middle and an output.

    The first layers hurt most.
    """
    chain = []
    for i in range(layers):
        kind = "Add" if i == layers // 2 else "Conv"
        weight = None if kind == "Add" else f"w{i}"
        count = 0 if weight is None else 100 * (i + 1)
        name = f"{kind.lower()}{i}"
        chain.append(Layer(name, kind, (name,), (f"t{i}",), f"t{i + 1}", count, weight))
    end = chain[-1].output
    chain.append(Layer(f"output:{end}", "Output", (), (end,), end, 0))
    parse = Scheme.parse
    codes = ("fp32", "fp16", "weight-s8-channel", "static-u8-u8-channel-bias-float")
    weighted, weightless = tuple(map(parse, codes)), (FP32, parse("static-u8"))
    default = {
        x.name: parse("static-s8-s8-tensor") if x.weight else parse("static-s8") for x in chain
    }
    menu: dict[str, tuple[Scheme, ...]] = {
        x.name: (*(weighted if x.weight else weightless), default[x.name]) for x in chain
    }
    width: dict[Scheme, int] = {FP32: 4, FP16: 2}
    sizes = {
        (x.name, scheme): x.parameters * width.get(scheme, 1) + 40
        for x in chain
        for scheme in menu[x.name]
    }
    errors = np.random.default_rng(seed).permutation(layers) / layers
    rows = [(float(errors[i]), x.name) for i, x in enumerate(chain[:-1])]
    ranking = tuple(
        LayerError(name, e, e, e, -e, -e, rank)
        for rank, (e, name) in enumerate(sorted(rows, key=lambda r: (-r[0], r[1])))
    )
    return Space(
        layers=tuple(chain),
        menu=menu,
        default=default,
        bytes_of=sizes,
        ranking=ranking,
        float_bytes=4 * sum(x.parameters for x in chain) + 1000,
    )


def fake_trial(
    space: Space, plan: Plan, *, number: int = 0, probe: bool = False, samples: int = 200
) -> Trial:
    """Return a trial as of a device on which each layer adds its own damage, first ones most."""
    schemes = plan.as_dict()
    unknown = [name for name in schemes if name not in space.menu]
    if unknown:
        raise PlanError(f"no layer {unknown[0]!r}")
    damage = 0.0
    for position, layer in enumerate(space.layers):
        damage += BY_KIND[plan.scheme_of(layer.name).kind] / (position + 1)
    wrong = min(samples, round(damage * samples))
    bits = np.ones(samples, dtype=bool)
    bits[:wrong] = False
    share = wrong / samples
    loss = Loss(
        share,
        max(0.0, share - 0.02),
        min(1.0, share + 0.02),
        samples,
        np.packbits(bits).tobytes().hex(),
    )
    split = CALIBRATION if probe else EVALUATION
    size = 1000 + sum(space.bytes_of.get((x.name, plan.scheme_of(x.name)), 0) for x in space.layers)
    speed = 2.0 - sum(not s.is_float for s in schemes.values()) / len(space.layers)
    return Trial(
        number=number,
        plan=plan,
        size_bytes=size,
        sha256=plan.key,
        measurements={split: Measurement(split, "fake", loss, damage=damage**2)},
        latency=Latency(speed, speed, speed / 2.0, speed / 2.1, speed / 1.9, 10),
    )


# --------------------------------------------------------------------------------------- devices


def small_model() -> bytes:
    """Return the model x (N×3×4×4) ─ Conv ─ Relu ─ GlobalAveragePool ─ Flatten ─ Gemm ─ y (N×5)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    shapes = {"cw": (4, 3, 3, 3), "cb": (4,), "gw": (5, 4), "gb": (5,)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "cw", "cb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "pool"),
        helper.make_node("Flatten", ["c"], ["d"], "flatten"),
        helper.make_node("Gemm", ["d", "gw", "gb"], ["y"], "gemm", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])],
        weights,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    proto.ir_version = 8
    onnx.checker.check_model(proto)
    data: bytes = proto.SerializeToString()
    return data


def small_feeds(rows: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(1)
    return {"x": rng.standard_normal((rows, 3, 4, 4)).astype(np.float32)}

"""Small networks in code for the transforms' tests, and how their answers are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from seqto.calibration import collect
from seqto.model import compare as model_compare
from seqto.model import files as model_files
from seqto.model import prepare as model_prepare
from seqto.model.prepare import Prepared

Array = NDArray[Any]


@dataclass
class Net:
    """Collects nodes and weights; every method returns the name of the tensor it makes."""

    seed: int = 0
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    def op(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: Any) -> str:
        self.weights[name] = np.asarray(values)
        return name

    def uneven(self, channels: int, *, spread: float = 100.0) -> Array:
        """Return channel scales that lie up to `spread` apart."""
        return np.exp(self.random.uniform(0.0, np.log(spread), channels)) / spread**0.5

    def conv(  # noqa: PLR0917
        self, x: str, name: str, inputs: int, outputs: int, kernel: int = 3, group: int = 1
    ) -> str:
        shape = (outputs, inputs // group, kernel, kernel)
        scale = self.uneven(outputs).reshape(-1, 1, 1, 1) / np.sqrt(np.prod(shape[1:]))
        weight = (self.random.normal(size=shape) * scale).astype(np.float32)
        bias = self.random.normal(size=outputs).astype(np.float32) * 0.1
        names = [x, self.constant(f"{name}_w", weight), self.constant(f"{name}_b", bias)]
        pad = kernel // 2
        return self.op("Conv", names, name, group=group, pads=[pad] * 4)

    def gemm(self, x: str, name: str, inputs: int, outputs: int, *, trans: int = 1) -> str:
        weight = self.random.normal(size=(outputs, inputs)) * self.uneven(outputs).reshape(-1, 1)
        weight = (weight if trans else weight.T).astype(np.float32)
        bias = self.random.normal(size=outputs).astype(np.float32)
        names = [x, self.constant(f"{name}_w", weight), self.constant(f"{name}_b", bias)]
        return self.op("Gemm", names, name, transB=trans)

    def clip(self, x: str, name: str, low: float = 0.0, high: float = 6.0) -> str:
        low_name = self.constant(f"{name}_low", np.float32(low))
        high_name = self.constant(f"{name}_high", np.float32(high))
        return self.op("Clip", [x, low_name, high_name], name)

    def prepare(self, outputs: str | Sequence[str], shape: Sequence[Any]) -> Prepared:
        names = [outputs] if isinstance(outputs, str) else list(outputs)
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *shape])],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names],
            [numpy_helper.from_array(v, k) for k, v in self.weights.items()],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        proto.ir_version = 8
        return model_prepare.prepare(onnx.shape_inference.infer_shapes(proto))


def samples(prepared: Prepared, *, count: int = 8, seed: int = 1) -> Array:
    shape = [d or 1 for d in prepared.inputs[0].shape[1:]]
    # uniform: unseen samples stay within the calibrated range, as pixels do
    return np.random.default_rng(seed).uniform(-1, 1, (count, *shape)).astype(np.float32)


def peaks(prepared: Prepared) -> dict[str, NDArray[np.float32]]:
    feeds = {"x": samples(prepared)}
    found = dict(collect.calibrate(prepared, lambda: [feeds]).peaks)
    x = feeds["x"]
    found["x"] = np.ones(x.shape[1] if x.ndim == 4 else x.shape[-1], np.float32)
    return found


def difference(prepared: Prepared, proto: Any, *, seed: int = 2) -> float:
    """On samples that calibration has not seen."""
    feeds = {"x": samples(prepared, seed=seed)}
    return model_compare.same_answers(
        model_files.to_bytes(prepared.proto), model_files.to_bytes(proto), feeds
    )


def weight_of(prepared: Prepared, proto: Any, layer: str) -> Array:
    name = prepared.layer(layer).weight
    return next(numpy_helper.to_array(t) for t in proto.graph.initializer if t.name == name)


def spread(values: Array, *, axis: int) -> float:
    """Return how many times the widest channel's range exceeds the narrowest's."""
    ranges = np.abs(values).max(axis=tuple(i for i in range(values.ndim) if i != axis))
    return float(ranges.max() / ranges.min())


def reasons(skipped: Sequence[tuple[str, str]]) -> dict[str, str]:
    return dict(skipped)

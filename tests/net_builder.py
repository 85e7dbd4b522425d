"""Builds small ONNX models node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

IR_OF_OPSET = {7: 3, 8: 3, 9: 4, 10: 5, 11: 6, 12: 7, 13: 7}


class Net:
    """Collects nodes and weights; each call returns the name of its result."""

    def __init__(self, *, opset: int = 13, seed: int = 0, named: bool = True) -> None:
        self.opset, self.named = opset, named
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int, scale: float | NDArray[Any] = 1.0) -> str:
        fan_in = int(np.prod(shape[1:])) or 1
        values = self.rng.standard_normal(shape) / np.sqrt(fan_in) * scale
        return self.constant(values.astype(np.float32))

    def constant(self, values: NDArray[Any]) -> str:
        name = f"const_{len(self.weights)}_with_a_long_name"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def add(self, op: str, inputs: Sequence[str], *, output: str = "", **attributes: Any) -> str:
        position = len(self.nodes)
        result = output or f"{op.lower()}_{position}_result"
        name = f"/net/{op}_{position}" if self.named else ""
        self.nodes.append(helper.make_node(op, list(inputs), [result], name=name, **attributes))
        return result

    def conv(
        self,
        x: str,
        channels: tuple[int, int],
        *,
        kernel: int = 3,
        group: int = 1,
        bias: bool = True,
        scale: float | NDArray[Any] = 1.0,
        **attributes: Any,
    ) -> str:
        cin, cout = channels
        inputs = [x, self.weight(cout, cin // group, kernel, kernel, scale=scale)]
        if bias:
            inputs.append(self.constant(self.rng.standard_normal(cout).astype(np.float32) * 0.3))
        pad = kernel // 2
        shape = {"kernel_shape": [kernel, kernel], "pads": [pad] * 4, "group": group}
        return self.add("Conv", inputs, **{**shape, **attributes})

    def gemm(self, x: str, sizes: tuple[int, int], *, output: str = "", trans: int = 1) -> str:
        fan_in, fan_out = sizes
        shape = (fan_out, fan_in) if trans else (fan_in, fan_out)
        w = self.constant((self.rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))
        b = self.constant(self.rng.standard_normal(fan_out).astype(np.float32) * 0.1)
        return self.add("Gemm", [x, w, b], output=output, transB=trans)

    def clip(self, x: str, low: float, high: float) -> str:
        if self.opset < 11:
            return self.add("Clip", [x], min=low, max=high)
        bounds = [self.constant(np.array(v, dtype=np.float32)) for v in (low, high)]
        return self.add("Clip", [x, *bounds])

    def pad(self, x: str, pads: list[int]) -> str:
        if self.opset < 11:
            return self.add("Pad", [x], pads=pads, mode="constant")
        return self.add("Pad", [x, self.constant(np.array(pads, dtype=np.int64))])

    def batch_norm(self, x: str, channels: int) -> str:
        rng = self.rng
        parts = [
            rng.uniform(0.5, 1.5, channels),
            rng.standard_normal(channels),
            rng.standard_normal(channels),
            rng.uniform(0.5, 2.0, channels),
        ]
        inputs = [x, *(self.constant(p.astype(np.float32)) for p in parts)]
        return self.add("BatchNormalization", inputs)

    def model(
        self,
        inputs: Mapping[str, Sequence[int | str]],
        outputs: Mapping[str, Sequence[int | str]],
        *,
        check: bool = True,
    ) -> Any:
        def value(name: str, shape: Sequence[int | str]) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))

        given = [value(n, s) for n, s in inputs.items()]
        if self.opset < 9:  # IR 3: initializers are inputs too
            given += [value(t.name, t.dims) for t in self.weights if t.data_type == 1]
            given += [
                helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
                for t in self.weights
                if t.data_type != 1
            ]
        graph = helper.make_graph(
            self.nodes, "net", given, [value(n, s) for n, s in outputs.items()], self.weights
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        proto.ir_version = IR_OF_OPSET.get(self.opset, 10)
        if check:
            onnx.checker.check_model(proto, full_check=True)
        return proto

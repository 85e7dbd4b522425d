"""What onnxruntime.quantization writes for the same float model, samples and settings."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime import quantization as stock
from onnxruntime.quantization import QuantFormat, QuantType

TYPES = {"s8": QuantType.QInt8, "s7": QuantType.QInt8, "u8": QuantType.QUInt8}


class Reader(stock.CalibrationDataReader):  # type: ignore[misc]
    """Calibration samples one by one."""

    def __init__(self, feeds: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        self._left = iter([dict(f) for f in feeds])

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._left, None)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """It warns about models that are not preprocessed; ours are prepared."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def static(
    proto: Any,
    folder: Path,
    feeds: Sequence[Mapping[str, NDArray[Any]]],
    *,
    weight: str,
    activation: str,
    per_channel: bool,
    exclude: Sequence[str] = (),
) -> Any:
    source, target = folder / "stock-in.onnx", folder / "stock-out.onnx"
    onnx.save_model(proto, str(source))
    with quiet():
        stock.quantize_static(
            str(source),
            str(target),
            Reader(feeds),
            quant_format=QuantFormat.QDQ,
            per_channel=per_channel,
            reduce_range=weight == "s7",
            activation_type=TYPES[activation],
            weight_type=TYPES[weight],
            nodes_to_exclude=list(exclude),
        )
    return onnx.load(str(target))


def dynamic(
    proto: Any, folder: Path, *, weight: str, per_channel: bool, exclude: Sequence[str] = ()
) -> Any:
    source, target = folder / "stock-in.onnx", folder / "stock-out.onnx"
    onnx.save_model(proto, str(source))
    with quiet():
        stock.quantize_dynamic(
            str(source),
            str(target),
            op_types_to_quantize=["MatMul", "Gemm", "Conv"],
            per_channel=per_channel,
            reduce_range=weight == "s7",
            weight_type=TYPES[weight],
            nodes_to_exclude=list(exclude),
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
    return onnx.load(str(target))


class Graph:
    """Looks up constants and producers of a model."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
        self.producer = {o: n for n in proto.graph.node for o in n.output}
        self.node = {n.name: n for n in proto.graph.node}

    def dequantized(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Integers, scale and zero point behind a constant; None when it is a plain float."""
        node = self.producer.get(name)
        if node is None or node.op_type != "DequantizeLinear":
            return None
        data = self.constants[node.input[0]]
        zero = (
            self.constants[node.input[2]]
            if len(node.input) > 2
            else np.zeros(self.constants[node.input[1]].shape, data.dtype)
        )
        # a zero point that is 0 for all channels may be left out, or be one or many
        return {"data": data, "scale": self.constants[node.input[1]], "zero": zero}

    def read_through(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Scale and zero point with which an activation is read; None when it is read as float."""
        node = self.producer.get(name)
        if node is None or node.op_type != "DequantizeLinear" or node.input[0] in self.constants:
            return None
        return {"scale": self.constants[node.input[1]], "zero": self.constants[node.input[2]]}

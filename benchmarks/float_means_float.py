"""Does a node that is excluded from quantization run in float?

    python benchmarks/float_means_float.py                       a small net made here
    python benchmarks/float_means_float.py model.onnx            every third Conv and Gemm excluded
    python benchmarks/float_means_float.py model.onnx --exclude Conv_787

ONNX Runtime's optimizer WeightBiasQuantization makes the weights of what is float between quantized
neighbours int8 when a session loads. This quantizes a model with onnxruntime's `quantize_static`
(QDQ, u8 × s8, per channel, `nodes_to_exclude`) and with seqto, the same nodes excluded, the same
random inputs, and counts for a session with default options and one without that optimizer:

excluded    nodes that were to stay float
int8 again  those of them whose weights the loaded graph reads through a DequantizeLinear
integer     integer kernels of products (QLinearConv, QGemm, QLinearMatMul) in the loaded graph
error       ‖y − float‖ / ‖float‖ of the first output
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as stock

from seqto.assembly.assembler import Assembler
from seqto.assembly.plan import Plan
from seqto.calibration.collect import calibrate
from seqto.model.files import load
from seqto.model.prepare import Prepared, prepare
from seqto.schemes.types import S8, U8
from seqto.search.choices import default_schemes, resolve

OPTIMIZER = "WeightBiasQuantization"
PRODUCTS = ("Conv", "ConvTranspose", "Gemm")
INTEGER = ("QLinearConv", "QGemm", "QLinearMatMul")
Feeds = Mapping[str, Any]


def small_net(*, channels: int = 32, layers: int = 6) -> Any:
    """Convs in a row; the third has large weights for a channel that the second leaves empty.

    In float they do nothing. With one int8 scale for the whole tensor they leave few steps to all
    other weights.
    """
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(layers):
        w = rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)
        b = rng.standard_normal(channels) * 0.1
        if i == 1:
            w[0], b[0] = 0.0, 0.0
        if i == 2:
            w[:, 0] *= 50.0
        weights += [numpy_helper.from_array(w.astype(np.float32), f"w{i}")]
        weights += [numpy_helper.from_array(b.astype(np.float32), f"b{i}")]
        y = "y" if i == layers - 1 else f"c{i}"
        inputs = [x, f"w{i}", f"b{i}"]
        nodes.append(helper.make_node("Conv", inputs, [y], name=f"Conv_{i}", pads=[1] * 4))
        x = y
    shape = [1, channels, 14, 14]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    return proto


class Reader(stock.CalibrationDataReader):  # type: ignore[misc]
    """Calibration samples one by one."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._left = iter(feeds)

    def get_next(self) -> dict[str, Any] | None:
        feeds = next(self._left, None)
        return None if feeds is None else dict(feeds)


def stock_model(prepared: Prepared, feeds: Sequence[Feeds], layers: Sequence[str]) -> bytes:
    nodes = [n for x in prepared.layers if x.name in layers for n in x.nodes]
    logging.getLogger().setLevel(logging.ERROR)  # it advises to preprocess, which is done
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        onnx.save_model(prepared.proto, str(source))
        stock.quantize_static(
            str(source),
            str(target),
            Reader(feeds),
            quant_format=stock.QuantFormat.QDQ,
            per_channel=True,
            activation_type=stock.QuantType.QUInt8,
            weight_type=stock.QuantType.QInt8,
            nodes_to_exclude=nodes,
        )
        return target.read_bytes()


def our_model(prepared: Prepared, feeds: Sequence[Feeds], layers: Sequence[str]) -> bytes:
    schemes = default_schemes(
        prepared.layers, mode="static", weight=S8, activation=U8, per_channel=True
    )
    plan = Plan.of({k: v for k, v in schemes.items() if k not in layers})
    found = calibrate(prepared, lambda: list(feeds))
    return Assembler(prepared, found.statistics).assemble(plan).data


def loaded(data: bytes, *, disabled: Sequence[str], level: str) -> tuple[Any, Any]:
    """Return a session and the graph that it runs."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder, "loaded.onnx"))
        session = ort.InferenceSession(
            data,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=list(disabled),
        )
        return session, onnx.load(options.optimized_model_filepath).graph


def row(data: bytes, layers: Sequence[str], feeds: Feeds, want: Any, *, off: bool) -> str:
    disabled = [OPTIMIZER] if off else []
    # nodes keep their names at the basic level; kernels are fused above it
    _, basic = loaded(data, disabled=disabled, level="ORT_ENABLE_BASIC")
    session, graph = loaded(data, disabled=disabled, level="ORT_ENABLE_ALL")
    makes = {o: n.op_type for n in basic.node for o in n.output}
    again = [
        n.name
        for n in basic.node
        if n.name in layers and makes.get(n.input[1]) == "DequantizeLinear"
    ]
    integer = sum(n.op_type in INTEGER for n in graph.node)
    got = session.run(None, dict(feeds))[0]
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    return f"{len(layers):>8} {len(again):>10} {integer:>7} {100 * error:>8.2f} %"


def random_feeds(prepared: Prepared, count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(1)
    return [
        {
            spec.name: rng.standard_normal([d or 1 for d in spec.shape]).astype(np.float32)
            for spec in prepared.inputs
        }
        for _ in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path, help="an ONNX file with float inputs")
    parser.add_argument("--exclude", nargs="+", default=[], help="names of nodes to keep float")
    parser.add_argument("--samples", type=int, default=8, help="random inputs to calibrate with")
    options = parser.parse_args()
    prepared = prepare(load(options.model) if options.model else small_net())
    products = [x.name for x in prepared.layers if x.op_type in PRODUCTS and x.weight]
    layers = resolve(prepared.layers, options.exclude) or products[2:-1:3]
    feeds = random_feeds(prepared, options.samples)
    session = ort.InferenceSession(
        prepared.proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    want = session.run(None, dict(feeds[0]))[0]
    print(f"onnxruntime {ort.__version__}, {len(products)} products, excluded: {', '.join(layers)}")
    print(f"{'':<10}{'session':<12}{'excluded':>8} {'int8 again':>10} {'integer':>7} {'error':>10}")
    for name, make in (("stock", stock_model), ("seqto", our_model)):
        data = make(prepared, feeds, layers)
        for label, off in (("default", False), ("without it", True)):
            print(f"{name:<10}{label:<12}{row(data, layers, feeds[0], want, off=off)}")


if __name__ == "__main__":
    main()

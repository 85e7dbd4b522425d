"""Small nets, built in code, and samples for them.

residual    x ─ Conv ─ Relu ─┬─ Conv(depthwise) ─ Clip ─ Conv ─┬─ Add ─ pool ─ Flatten ─ Gemm ─ y
                             └─────────────────────────────────┘
branches    x ─ Conv ─ Relu ─┬─ Conv ─ Relu ─┐
                             └─ MaxPool ─────┴─ Concat ─ AveragePool ─ Conv ─ pool ─ Flatten ─ y
dense       x ─ MatMul ─ Add ─ Relu ─ Gemm ─ y
two_inputs  a ─ Conv ─ Relu ─ pool ─ Flatten ─┬─ Concat ─ Gemm ─ y
            b ─ Gemm ─ Relu ──────────────────┘
reshaped    x ─ Conv ─┬─ Shape ─ Gather ─ Mul(4) ─ Concat ─┐
                      └──────────────────────────────────┴─ Reshape ─ MatMul ─ y
transposed  x ─ Conv ─ Relu ─ ConvTranspose ─ Sigmoid ─ MaxPool ─ Transpose ─ y
sequence    x ─ Conv1D ─ Relu ─ Conv1D(depthwise) ─ Clip ─ Conv1D ─ pool ─ Flatten ─ Gemm ─ y
decoder     x ─ Conv ─ Relu ─ ConvTranspose ─ Relu ─ ConvTranspose ─ pool ─ Flatten ─ y
scaled      x ─ Gemm(alpha, beta, transB) ─ Relu ─ Gemm(alpha, beta) ─ y
conditional x ─ Conv ─ Relu ─ pool ─ Flatten ─┬─ ReduceMean ─ Greater ─ If(Gemm | Gemm) ─ y
                                              └──────────────────────────┘
(pool: GlobalAveragePool)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from net_builder import Net

SIDE = 10
CLASSES = 5
LENGTH = 14


def residual(
    *,
    opset: int = 13,
    batch: int | str = "N",
    named: bool = True,
    batch_norm: bool = False,
    padded: bool = False,
    uneven: bool = False,
    seed: int = 0,
) -> Any:
    """uneven: the depthwise channels' weights differ by factors, so that one scale hurts."""
    net = Net(opset=opset, seed=seed, named=named)
    x = net.pad("x", [0, 0, 1, 1, 0, 0, 1, 1]) if padded else "x"
    pads = [0] * 4 if padded else [1] * 4
    x = net.conv(x, (3, 8), bias=not batch_norm, pads=pads)
    x = net.batch_norm(x, 8) if batch_norm else x
    short = net.add("Relu", [x])
    scale = np.geomspace(0.05, 20.0, 8).reshape(8, 1, 1, 1) if uneven else 1.0
    x = net.conv(short, (8, 8), group=8, bias=not batch_norm, scale=scale)
    x = net.batch_norm(x, 8) if batch_norm else x
    x = net.clip(x, 0.0, 6.0)
    x = net.conv(x, (8, 8), kernel=1)
    x = net.add("Add", [x, short])
    x = net.add("GlobalAveragePool", [x])
    x = net.add("Flatten", [x])
    net.gemm(x, (8, CLASSES), output="y")
    return net.model({"x": [batch, 3, SIDE, SIDE]}, {"y": [batch, CLASSES]})


def branches(*, opset: int = 13, seed: int = 1) -> Any:
    net = Net(opset=opset, seed=seed)
    trunk = net.add("Relu", [net.conv("x", (3, 6))])
    left = net.add("Relu", [net.conv(trunk, (6, 6), kernel=1)])
    right = net.add("MaxPool", [trunk], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    x = net.add("Concat", [left, right], axis=1)
    x = net.add("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = net.conv(x, (12, CLASSES), kernel=1)
    x = net.add("GlobalAveragePool", [x])
    net.add("Flatten", [x], output="y")
    return net.model({"x": ["N", 3, SIDE, SIDE]}, {"y": ["N", CLASSES]})


def dense(*, opset: int = 13, seed: int = 2) -> Any:
    net = Net(opset=opset, seed=seed)
    x = net.add("MatMul", ["x", net.weight(12, 16)])
    x = net.add("Add", [x, net.constant(net.rng.standard_normal(16).astype(np.float32))])
    x = net.add("Relu", [x])
    net.gemm(x, (16, CLASSES), output="y")
    return net.model({"x": ["N", 12]}, {"y": ["N", CLASSES]})


def two_inputs(*, seed: int = 3) -> Any:
    net = Net(seed=seed)
    a = net.add("Relu", [net.conv("a", (3, 4))])
    a = net.add("Flatten", [net.add("GlobalAveragePool", [a])])
    b = net.add("Relu", [net.gemm("b", (6, 4), trans=0)])
    x = net.add("Concat", [a, b], axis=1)
    net.gemm(x, (8, CLASSES), output="y")
    return net.model({"a": ["N", 3, SIDE, SIDE], "b": ["N", 6]}, {"y": ["N", CLASSES]})


def reshaped(*, seed: int = 4) -> Any:
    net = Net(seed=seed)
    x = net.conv("x", (3, 4))
    shape = net.add("Shape", [x])
    first = net.add("Gather", [shape, net.constant(np.array([0], dtype=np.int64))], axis=0)
    height = net.add("Gather", [shape, net.constant(np.array([2], dtype=np.int64))], axis=0)
    rows = net.add("Mul", [first, net.constant(np.array([4], dtype=np.int64))])
    rest = net.constant(np.array([SIDE], dtype=np.int64))
    target = net.add("Concat", [rows, height, rest], axis=0)
    x = net.add("Reshape", [x, target])
    net.add("MatMul", [x, net.weight(SIDE, CLASSES)], output="y")
    return net.model({"x": ["N", 3, "H", SIDE]}, {"y": ["M", "H", CLASSES]})


def transposed(*, seed: int = 5) -> Any:
    net = Net(seed=seed)
    x = net.add("Relu", [net.conv("x", (3, 4))])
    bias = net.constant(net.rng.standard_normal(6).astype(np.float32))
    x = net.add("ConvTranspose", [x, net.weight(4, 6, 2, 2), bias], strides=[2, 2])
    x = net.add("Sigmoid", [x])
    x = net.add("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    net.add("Transpose", [x], perm=[0, 2, 3, 1], output="y")
    return net.model({"x": ["N", 3, SIDE, SIDE]}, {"y": ["N", SIDE, SIDE, 6]})


def sequence(*, seed: int = 6) -> Any:
    net = Net(seed=seed)

    def conv(x: str, channels: tuple[int, int], *, group: int = 1, kernel: int = 3) -> str:
        w = net.weight(channels[1], channels[0] // group, kernel)
        b = net.constant(net.rng.standard_normal(channels[1]).astype(np.float32) * 0.3)
        pads = [kernel // 2] * 2
        return net.add("Conv", [x, w, b], kernel_shape=[kernel], pads=pads, group=group)

    x = net.add("Relu", [conv("x", (3, 8))])
    x = net.clip(conv(x, (8, 8), group=8), 0.0, 6.0)
    x = conv(x, (8, 6), kernel=1)
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    net.gemm(x, (6, CLASSES), output="y")
    return net.model({"x": ["N", 3, LENGTH]}, {"y": ["N", CLASSES]})


def decoder(*, group: int = 1, seed: int = 7) -> Any:
    net = Net(seed=seed)

    def widened(x: str, channels: tuple[int, int], *, group: int, **attributes: Any) -> str:
        w = net.weight(channels[0], channels[1] // group, 3, 3)
        b = net.constant(net.rng.standard_normal(channels[1]).astype(np.float32) * 0.3)
        shape = {"kernel_shape": [3, 3], "pads": [1] * 4, "group": group}
        return net.add("ConvTranspose", [x, w, b], **shape, **attributes)

    x = net.add("Relu", [net.conv("x", (3, 4))])
    x = net.add("Relu", [widened(x, (4, 6), group=group, strides=[2, 2], output_padding=[1, 1])])
    x = widened(x, (6, CLASSES if group == 1 else 6), group=group)
    net.add("Flatten", [net.add("GlobalAveragePool", [x])], output="y")
    return net.model({"x": ["N", 3, SIDE, SIDE]}, {"y": ["N", CLASSES if group == 1 else 6]})


def scaled(*, alpha: float = 0.25, beta: float = 2.0, seed: int = 8) -> Any:
    net = Net(seed=seed)

    def gemm(x: str, sizes: tuple[int, int], *, trans: int, output: str = "") -> str:
        shape = sizes[::-1] if trans else sizes
        w = net.constant(net.rng.standard_normal(shape).astype(np.float32))
        b = net.constant(net.rng.standard_normal(sizes[1]).astype(np.float32) * 0.3)
        factors = {"alpha": alpha, "beta": beta}
        return net.add("Gemm", [x, w, b], output=output, transB=trans, **factors)

    x = net.add("Relu", [gemm("x", (12, 16), trans=1)])
    gemm(x, (16, CLASSES), trans=0, output="y")
    return net.model({"x": ["N", 12]}, {"y": ["N", CLASSES]})


def conditional(*, seed: int = 9) -> Any:
    """Return a net whose second layer has its weights inside the branches of an If."""
    net = Net(seed=seed)
    x = net.add("Relu", [net.conv("x", (3, 8))])
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    mean = net.add("ReduceMean", [x], keepdims=0)
    large = net.add("Greater", [mean, net.constant(np.array(0.5, dtype=np.float32))])

    def branch(name: str) -> Any:
        inner = Net(seed=seed + len(name))
        inner.gemm(x, (8, CLASSES), output=name)
        shape = helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", CLASSES])
        for tensor in inner.weights:
            renamed = f"{name}_{tensor.name}"
            for node in inner.nodes:
                node.input[:] = [renamed if i == tensor.name else i for i in node.input]
            tensor.name = renamed
        return helper.make_graph(inner.nodes, name, [], [shape], inner.weights)

    branches_of = {"then_branch": branch("yes"), "else_branch": branch("not")}
    net.add("If", [large], output="y", **branches_of)
    return net.model({"x": ["N", 3, SIDE, SIDE]}, {"y": ["N", CLASSES]})


def pictures(count: int, *, seed: int = 0) -> NDArray[np.float32]:
    """Return blobs of different colours: smooth, so that pooling does not average them away."""
    rng = np.random.default_rng(seed)
    tint = rng.standard_normal((count, 3, 1, 1)) * 1.5
    noise = rng.standard_normal((count, 3, SIDE, SIDE)) * 0.7
    return (tint + noise).astype(np.float32)


def run(
    model: Any,
    feeds: Mapping[str, NDArray[Any]],
    *,
    exact: bool = False,
    disabled: Sequence[str] = (),
) -> list[NDArray[Any]]:
    """Return outputs of a proto or of bytes; exact: no graph optimization, quantization in float.

    `disabled` are names of optimizers that the session leaves out.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if exact:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model if isinstance(model, bytes) else model.SerializeToString()
    session = ort.InferenceSession(
        data,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=list(disabled),
    )
    return [np.asarray(o) for o in session.run(None, dict(feeds))]


def save(model: Any, path: Path) -> Path:
    onnx.save_model(model, str(path))
    return path


def save_with_external_data(model: Any, path: Path) -> Path:
    """Write the weights into a file beside the model, as large exporters do it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save_model(
        copy, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    assert (path.parent / "weights.bin").stat().st_size > 0
    return path


def samples_for(model: Any, count: int, *, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Random samples for every input of a model, and labels: its own answers, a few of them wrong.

    A fixed first dimension is the batch: samples are asked for in whole batches.
    """
    rng = np.random.default_rng(seed)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input
    }
    arrays: dict[str, NDArray[Any]] = {
        name: (
            rng.standard_normal((count, *shape[1:]))
            + rng.standard_normal((count, *[1] * (len(shape) - 1)))
        ).astype(np.float32)
        for name, shape in shapes.items()
    }
    batch = max(1, *(shape[0] for shape in shapes.values())) if shapes else 1
    answers = np.concatenate(
        [
            run(model, {n: a[i : i + batch] for n, a in arrays.items()})[0]
            for i in range(0, count, batch)
        ]
    )
    labels = answers.reshape(count, -1).argmax(axis=1)
    labels[::10] = (labels[::10] + 1) % answers.shape[-1]
    return {**arrays, "labels": labels.astype(np.int64)}


def save_samples(path: Path, count: int, *, model: Any | None = None, seed: int = 0) -> Path:
    """Return an .npz of pictures; labels are the model's own answers with every tenth one wrong."""
    x = pictures(count, seed=seed)
    arrays: dict[str, NDArray[Any]] = {"x": x}
    if model is not None:
        labels = run(model, {"x": x})[0].argmax(axis=1)
        labels[::10] = (labels[::10] + 1) % CLASSES
        arrays["labels"] = labels.astype(np.int64)
    np.savez(path, **arrays)
    return path

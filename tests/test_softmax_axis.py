"""Softmax over an early axis is prepared as one over two axes, with the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from net_builder import Net
from seqto.model.files import to_bytes
from seqto.model.prepare import prepare


def net_with_softmax(op: str, shape: tuple[int | str, ...], **attributes: Any) -> Any:
    """x ─ Conv ─ Reshape ─ Softmax ─▶ y."""
    net = Net(opset=17)
    y = net.conv("x", (4, 12), kernel=1)
    y = net.add("Reshape", [y, net.constant(np.array([0, 3, 4, -1, 6], np.int64))])
    net.add(op, [y], output="y", **attributes)
    return net.model({"x": shape}, {"y": (shape[0], 3, 4, "depth", 6)})


def answers(proto: Any, x: Any) -> Any:
    session = ort.InferenceSession(to_bytes(proto), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


def ops_of(proto: Any) -> list[str]:
    return [n.op_type for n in proto.graph.node]


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [1, 2, -4])
@pytest.mark.parametrize("shape", [(2, 4, 5, 6), ("n", 4, 5, 6), (2, 4, "h", 6)])
def test_axes_behind_are_joined_and_answers_are_the_same(
    op: str, axis: int, shape: tuple[Any, ...]
) -> None:
    original = net_with_softmax(op, shape, axis=axis)
    prepared = prepare(original).proto
    node = next(n for n in prepared.graph.node if n.op_type == op)
    assert ops_of(prepared).count("Reshape") == 3
    assert next(a.i for a in node.attribute) == axis % 5
    x = np.random.default_rng(0).standard_normal((2, 4, 5, 6)).astype(np.float32)
    assert np.array_equal(answers(original, x), answers(prepared, x))


@pytest.mark.parametrize("attributes", [{}, {"axis": -1}, {"axis": 3}, {"axis": -2}])
def test_the_last_two_axes_are_left_as_they_are(attributes: dict[str, int]) -> None:
    prepared = prepare(net_with_softmax("Softmax", (2, 4, 5, 6), **attributes)).proto
    assert ops_of(prepared).count("Reshape") == 1


def test_two_sizes_that_are_not_known_are_left_as_they_are() -> None:
    net = Net(opset=17)
    net.add("Softmax", [net.conv("x", (4, 5), kernel=1)], output="y", axis=1)
    proto = net.model({"x": (1, 4, "h", "w")}, {"y": (1, 5, "h", "w")})
    assert "Reshape" not in ops_of(prepare(proto).proto)


def test_a_class_for_each_picture_has_nothing_behind_its_axis_to_join() -> None:
    net = Net(opset=17)
    pooled = net.add("GlobalAveragePool", [net.conv("x", (4, 5), kernel=1)])
    net.add("Softmax", [pooled], output="y", axis=1)
    proto = net.model({"x": (1, 4, 6, 6)}, {"y": (1, 5, 1, 1)})
    assert "Reshape" not in ops_of(prepare(proto).proto)


def test_a_model_is_prepared_alike_each_time() -> None:
    original = net_with_softmax("Softmax", (2, 4, 5, 6), axis=1)
    assert prepare(original).sha256 == prepare(original).sha256


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("shape", [("n", 3, "length", 6), (2, 3, 5, 6), (2, 3, "length", "length")])
@pytest.mark.parametrize("axis", [3, -1])
def test_an_old_softmax_over_the_last_axis_stays_one_node(
    op: str, shape: tuple[Any, ...], axis: int
) -> None:
    """Below opset 13 it flattens what lies before its axis, which a converter writes out."""
    proto = attention_scores(op, shape, opset=11, axis=axis)
    prepared = prepare(proto).proto
    assert "Flatten" not in ops_of(prepared)
    size = (2, 3, 5, 5 if shape[-1] == "length" else 6)
    x = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    assert np.allclose(answers(proto, x), answers(prepared, x), rtol=0, atol=1e-6)


def test_an_old_softmax_over_several_axes_keeps_its_flatten() -> None:
    proto = attention_scores("Softmax", ("n", 3, "length", 6), opset=11, axis=2)
    prepared = prepare(proto).proto
    assert "Flatten" in ops_of(prepared)
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6)).astype(np.float32)
    assert np.allclose(answers(proto, x), answers(prepared, x), rtol=0, atol=1e-6)


def attention_scores(op: str, shape: tuple[Any, ...], *, opset: int, axis: int) -> Any:
    """x ─ Reshape ─ Softmax ─ Mul ─ MatMul ─▶ y, to a shape that is computed from that of x.

    What a converter sees of it has no rank; when constants are folded it has one.
    """
    net = Net(opset=opset)
    shape_of_x = net.add("Shape", ["x"])
    sizes = []
    for i in range(4):
        size = net.add("Gather", [shape_of_x, net.constant(np.array(i, np.int64))])
        sizes.append(net.add("Unsqueeze", [size], axes=[0]))
    scores = net.add("Reshape", ["x", net.add("Concat", sizes, axis=0)])
    scores = net.add(op, [scores], axis=axis)
    squared = net.add("Mul", [scores, scores])
    y = net.add("ReduceMean", [squared], axes=[2, 3], keepdims=0)
    net.add("MatMul", [y, net.weight(3, 4)], output="y")
    return net.model({"x": shape}, {"y": (shape[0], 4)})

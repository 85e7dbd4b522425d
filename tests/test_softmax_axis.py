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

"""Small nets for tasks on pictures: detectors and a segmenter.

detector    x ─ Conv ─ Relu ─ Conv ─ Relu ─┬─ Conv ─ Sigmoid ─ Mul(32) ─┬─ Concat ─ Reshape ─ y
                                           └─ Conv ─ Sigmoid ───────────┘
segmenter   x ─ Conv ─ Relu ─ Conv ─ Relu ─ Conv ─ Sigmoid ─ y
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from net_builder import Net

BOX_SIDE = 32  # of the detector's and the segmenter's input
BOX_CELLS = 64


def detector(*, classes: int = 3, batch: int | str = "N", seed: int = 10) -> Any:
    """YOLOv8-shaped: boxes in pixels and scores of 0 to 1 in one tensor, 4 + classes × cells."""
    net = Net(seed=seed)
    x = net.add("Relu", [net.conv("x", (3, 8), strides=[2, 2])])
    x = net.add("Relu", [net.conv(x, (8, 8), strides=[2, 2])])
    boxes = net.add("Sigmoid", [net.conv(x, (8, 4), kernel=1, scale=2.0)])
    boxes = net.add("Mul", [boxes, net.constant(np.array(BOX_SIDE, np.float32))])
    scores = net.add("Sigmoid", [net.conv(x, (8, classes), kernel=1, scale=4.0)])
    both = net.add("Concat", [boxes, scores], axis=1)
    shape = net.constant(np.array([0, 4 + classes, BOX_CELLS], np.int64))
    net.add("Reshape", [both, shape], output="output0")
    side = [batch, 3, BOX_SIDE, BOX_SIDE]
    return net.model({"x": side}, {"output0": [batch, 4 + classes, BOX_CELLS]})


def suppressed(*, classes: int = 3, seed: int = 14) -> Any:
    """A detector with NonMaxSuppression in the graph: as many boxes, scores, labels as are left."""
    net = Net(seed=seed)
    x = net.add("Relu", [net.conv("x", (3, 8), strides=[2, 2])])
    x = net.add("Relu", [net.conv(x, (8, 8), strides=[2, 2])])
    corner = net.add("Sigmoid", [net.conv(x, (8, 2), kernel=1, scale=2.0)])
    side = net.add("Sigmoid", [net.conv(x, (8, 2), kernel=1, scale=2.0)])
    boxes = net.add("Concat", [corner, net.add("Add", [corner, side])], axis=1)
    boxes = net.add("Mul", [boxes, net.constant(np.array(BOX_SIDE / 2, np.float32))])
    shape = net.constant(np.array([1, 4, BOX_CELLS], np.int64))
    boxes = net.add("Transpose", [net.add("Reshape", [boxes, shape])], perm=[0, 2, 1])
    scores = net.add("Sigmoid", [net.conv(x, (8, classes), kernel=1, scale=4.0)])
    shape = net.constant(np.array([1, classes, BOX_CELLS], np.int64))
    scores = net.add("Reshape", [scores, shape])
    limits = [net.constant(np.array([20], np.int64))]
    limits += [net.constant(np.array([value], np.float32)) for value in (0.45, 0.5)]
    kept = net.add("NonMaxSuppression", [boxes, scores, *limits])  # rows: sample, class, cell
    columns = [net.constant(np.array(i, np.int64)) for i in (1, 2)]
    label, cell = (net.add("Gather", [kept, column], axis=1) for column in columns)
    one = net.constant(np.array([0], np.int64))
    net.add("Gather", [net.add("Squeeze", [boxes, one]), cell], axis=0, output="boxes")
    place = net.add("Unsqueeze", [label, net.constant(np.array([1], np.int64))])
    rest = net.add("Unsqueeze", [cell, net.constant(np.array([1], np.int64))])
    both = net.add("Concat", [place, rest], axis=1)
    net.add("GatherND", [net.add("Squeeze", [scores, one]), both], output="scores")
    net.add("Identity", [label], output="labels")
    outputs = {"boxes": ["m", 4], "scores": ["m"], "labels": ["m"]}
    model = net.model({"x": [1, 3, BOX_SIDE, BOX_SIDE]}, outputs, check=False)
    model.graph.output[2].type.tensor_type.elem_type = onnx.TensorProto.INT64
    onnx.checker.check_model(model, full_check=True)
    return model


def segmenter(*, output: str = "mask", seed: int = 11) -> Any:
    """Return a soft map of one object."""
    net = Net(seed=seed)
    x = net.add("Relu", [net.conv("x", (3, 8))])
    x = net.add("Relu", [net.conv(x, (8, 8))])
    net.add("Sigmoid", [net.conv(x, (8, 1), scale=3.0)], output=output)
    side = [BOX_SIDE, BOX_SIDE]
    return net.model({"x": ["N", 3, *side]}, {output: ["N", 1, *side]})

"""Bias correction: rounded weights move a layer's mean output; its bias takes that back.

The mean of what is lost is the lost weights times the mean input (Nagel et al., "Data-free
quantization through weight equalization and bias correction", 2019). Borders, where a convolution
reads padding, are taken for inner positions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from seqto.errors import PlanError
from seqto.model.graph import attribute, attribute_ints, input_channels
from seqto.schemes.integers import Floats


def corrected(node: Any, bias: Floats, *, lost: Floats, mean: Floats) -> Floats:
    """Return the bias with the mean output that `lost` (float less rounded weights) stands for."""
    expected = input_channels(node, lost.shape)
    if mean.size != expected:
        raise PlanError(
            f"layer {node.name!r} has {expected} input channels and calibration knows the means of "
            f"{mean.size}: an older version has calibrated this run, use a new --out folder"
        )
    beta = attribute(node, "beta", 1.0) if node.op_type == "Gemm" else 1.0
    if beta == 0.0:  # the node does not read its bias
        return bias
    moved: Floats = (bias + mean_output(node, lost, mean.reshape(-1)) / beta).astype(np.float32)
    return moved


def mean_output(node: Any, weights: Floats, mean: Floats) -> Floats:
    """Return the node's mean output for these weights by channel, without its bias."""
    if node.op_type == "Conv":
        taps = weights.reshape(*weights.shape[:2], -1).sum(axis=2)
        per_group = mean.reshape(-1, weights.shape[1])
        rows = np.repeat(per_group, len(taps) // len(per_group), axis=0)
        total: Floats = (taps * rows).sum(axis=1)
        return total
    if node.op_type == "ConvTranspose":
        groups = int(attribute(node, "group", 1))
        taps = weights.reshape(groups, len(weights) // groups, weights.shape[1], -1).sum(axis=3)
        sums: Floats = np.einsum("gio,gi->go", taps, mean.reshape(groups, -1)).reshape(-1)
        # an input goes to as many outputs as there are weights, and there are as many outputs for
        # an input as the strides say
        return sums / np.float32(int(np.prod(attribute_ints(node, "strides"))))
    matrix = weights if node.op_type == "Gemm" and attribute(node, "transB") else weights.T
    alpha = attribute(node, "alpha", 1.0) if node.op_type == "Gemm" else 1.0
    product: Floats = np.float32(alpha) * (matrix @ mean)
    return product

"""Integer weights that x86 kernels without VNNI multiply and add in 16 bits, and if they fit.

`vpmaddubsw` adds the products of two neighbours, u8 activations by s8 weights, in 16 bits. Two
weights fit, whatever the activations, if they add up to at most 128: 255 · 128 < 2¹⁵ (ADR 7). Two
of unlike signs always fit.

Neighbours are two numbers in a row of what a kernel sums up: of a matrix along its inputs, of a
convolution along its channels, then along the positions of the kernel. With an odd number of
channels the count goes on at the next position. tests/schemes/test_pairs.py holds the device to it.

ARM kernels without SDOT move activations to -128 … 127 and add two products, eight places apart, in
16 bits: only two weights of -128 by two activations of -128 do not fit (measured under qemu-user,
docs/fleet.md). Which places meet depends on the packing, so that two such weights in a row count.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.model.graph import attribute
from seqto.schemes.integers import PAIR_LIMIT

LOWEST = -128


def may_saturate(node: Any, weight: NDArray[Any]) -> bool:
    """Return whether two neighbouring products of a static layer may exceed 16 bits.

    `node` is the float layer's, `weight` its integers in the node's own layout.
    """
    if node.op_type == "Conv":
        if _is_depthwise(node, weight):
            return False  # its kernel adds no pairs
        rows = np.moveaxis(weight, 1, -1).reshape(len(weight), -1)
    elif node.op_type == "Gemm":
        rows = weight if attribute(node, "transB") else weight.T
    elif node.op_type == "MatMul":
        rows = summed_last(weight)
    else:
        return False  # ConvTranspose has no integer kernel
    return rows_may_saturate(rows)


def rows_may_saturate(rows: NDArray[Any]) -> bool:
    """Return whether two neighbours along the last axis add up to more than fits."""
    if rows.dtype != np.int8:
        return False  # the kernels of unsigned weights widen them first
    even = rows.shape[-1] // 2 * 2
    left, right = (rows[..., start:even:2].astype(np.int16) for start in (0, 1))
    # numbers of unlike signs add up to less than the larger of them: no case of their own
    if (np.abs(left + right) > PAIR_LIMIT).any():
        return True
    return bool(((rows == LOWEST).sum(axis=-1) > 1).any())


def summed_last(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return a MatMul's weights, or a stack of them, with the axis that is summed up last."""
    return matrix.T if matrix.ndim < 3 else np.swapaxes(matrix, -1, -2)


def _is_depthwise(node: Any, weight: NDArray[Any]) -> bool:
    """Return whether a group has one input and one output: others run as products of matrices."""
    group = int(attribute(node, "group", 1))
    return group > 1 and weight.shape[1] == 1 and len(weight) == group

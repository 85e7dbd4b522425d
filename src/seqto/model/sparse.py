"""Sparse constants become ordinary ones: plans need the numbers, and kernels take no others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from seqto.errors import ModelError

MOST_ELEMENTS = 1 << 29  # 2 GB of floats, which a model file cannot hold


def make_dense(proto: Any, *, name: str) -> None:
    """Replace sparse initializers by ordinary ones."""
    import onnx

    for sparse in proto.graph.sparse_initializer:
        tensor = sparse.values.name
        try:
            dense = _dense(sparse)
        except (ValueError, IndexError, TypeError) as error:
            raise ModelError(
                f"{name}: the sparse constant {tensor!r} is damaged: {error}"
            ) from error
        proto.graph.initializer.append(onnx.numpy_helper.from_array(dense, tensor))
    del proto.graph.sparse_initializer[:]


def _dense(sparse: Any) -> Any:
    import onnx

    shape = tuple(sparse.dims)
    if any(side < 0 for side in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise ValueError(f"its shape is {list(shape)}")
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    places: Any = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, shape)
    dense = np.zeros(shape, values.dtype)
    dense[places] = values
    return dense

"""Models with sparse constants are prepared as those with ordinary ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import nets
import seqto
from seqto.errors import ModelError
from seqto.model.prepare import prepare


def sparse_weights(model: Any, *, linear: bool = True) -> Any:
    """Return a model whose weights are sparse: every third number is left."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in list(made.graph.initializer):
        values = numpy_helper.to_array(tensor).copy()
        if values.dtype != np.float32 or values.ndim < 2:
            continue
        values.reshape(-1)[np.arange(values.size) % 3 > 0] = 0
        places = np.argwhere(values) if not linear else np.flatnonzero(values)
        left = numpy_helper.from_array(values[values != 0], tensor.name)
        indices = numpy_helper.from_array(places.astype(np.int64), f"{tensor.name}/places")
        made.graph.sparse_initializer.append(helper.make_sparse_tensor(left, indices, values.shape))
        made.graph.initializer.remove(tensor)
    assert made.graph.sparse_initializer
    return made


def dense_weights(model: Any) -> Any:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        values = numpy_helper.to_array(tensor).copy()
        if values.dtype == np.float32 and values.ndim >= 2:
            values.reshape(-1)[np.arange(values.size) % 3 > 0] = 0
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return made


@pytest.mark.parametrize("linear", [True, False])
def test_sparse_constants_are_prepared_as_ordinary_ones(linear: bool) -> None:
    net = nets.dense()
    sparse = prepare(sparse_weights(net, linear=linear))
    ordinary = prepare(dense_weights(net))
    assert not sparse.proto.graph.sparse_initializer
    names = [[(x.name, x.parameters, x.weight_shape) for x in p.layers] for p in (sparse, ordinary)]
    assert names[0] == names[1]
    found, wanted = (
        sorted(numpy_helper.to_array(t).tobytes() for t in p.proto.graph.initializer)
        for p in (sparse, ordinary)
    )
    assert found == wanted


def test_a_model_with_sparse_constants_is_quantized(tmp_path: Path) -> None:
    nets.save(sparse_weights(nets.dense()), tmp_path / "net.onnx")
    saved = seqto.quantize(tmp_path / "net.onnx", tmp_path / "q.onnx", quantize__mode="weight")
    assert saved.layers > 0


def test_a_sparse_constant_that_is_damaged_is_named() -> None:
    net = sparse_weights(nets.dense())
    sparse = net.graph.sparse_initializer[0]
    far = numpy_helper.to_array(sparse.indices) + 10**6
    sparse.indices.CopyFrom(numpy_helper.from_array(far, sparse.indices.name))
    with pytest.raises(ModelError, match=f"sparse constant '{sparse.values.name}' is damaged"):
        prepare(net)
    sparse.dims[0] = 2**40
    with pytest.raises(ModelError, match="its shape is"):
        prepare(net)

"""A model's graph without the data of its weights, for what reads the nodes alone.

onnx's version converter holds three copies of a model at a time, and the raised graph would be one
more float model in memory for every opset.
"""

from __future__ import annotations

from typing import Any

LARGE_BYTES = 4096  # smaller constants (axes, shapes, scales of a Resize) are read by converters


def is_large(tensor: Any) -> bool:
    """Return whether a constant is float weights, whose values no converter reads."""
    import onnx

    return tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.raw_data) > LARGE_BYTES


def without_weights(proto: Any) -> Any:
    """Return a copy of a model whose large float constants have name, type and shape alone."""
    import onnx

    bare = onnx.ModelProto(ir_version=proto.ir_version, producer_name=proto.producer_name)
    bare.opset_import.extend(proto.opset_import)
    graph = bare.graph
    graph.name = proto.graph.name
    graph.node.extend(proto.graph.node)
    graph.input.extend(proto.graph.input)
    graph.output.extend(proto.graph.output)
    for tensor in proto.graph.initializer:
        copy = graph.initializer.add()
        if is_large(tensor):
            copy.name, copy.data_type = tensor.name, tensor.data_type
            copy.dims.extend(tensor.dims)
        else:
            copy.CopyFrom(tensor)
    return bare

"""A model written weight by weight, with its weights in a file beside it.

`onnx.save_model` takes the weights out of the model that it is given, and to serialize a model
takes its size once more. ONNX Runtime maps what lies beside a model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqto.model.files import DATA_SUFFIX, to_bytes
from seqto.model.layers import is_large, without_weights


def write_streamed(proto: Any, path: Path, *, outputs: tuple[str, ...] = ()) -> None:
    """Write a model, which stays as it is; `outputs`: inner tensors that it also puts out."""
    light = without_weights(proto)
    for name in outputs:
        light.graph.output.add().name = name
    data = path.with_name(path.name + DATA_SUFFIX)
    with data.open("wb") as stream:
        for tensor, written in zip(proto.graph.initializer, light.graph.initializer, strict=True):
            if not is_large(tensor):
                continue
            if not tensor.HasField("raw_data"):
                written.CopyFrom(tensor)
                continue
            _point_to(written, data.name, stream.tell(), stream.write(tensor.raw_data))
    path.write_bytes(to_bytes(light))


def _point_to(tensor: Any, name: str, offset: int, length: int) -> None:
    import onnx

    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", name), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))

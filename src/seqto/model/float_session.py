"""ONNX Runtime sessions on the CPU that look into a model: inner tensors among the outputs.

They serve calibration and analysis of the float model. Candidates run on the user's device
(devices/), which may be another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from seqto.errors import ModelError
from seqto.files import temporary_folder
from seqto.model.batch import without_filling
from seqto.model.files import LARGE_MODEL_BYTES, constant_bytes
from seqto.model.ort_session import open_session
from seqto.model.prepare import Prepared
from seqto.model.streamed import write_streamed


def runtime_version() -> str:
    """Return the version of the onnxruntime that is installed, whatever its package is called."""
    import onnxruntime

    return str(onnxruntime.__version__)


def with_outputs(proto: Any, names: Sequence[str]) -> Any:
    """Return a copy of a model that also puts out the inner tensors named."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(proto)
    for name in inner_tensors(proto, names):
        model.graph.output.add().name = name
    return model


def inner_tensors(proto: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that are no inputs and no outputs of a model, each once."""
    public = {o.name for o in proto.graph.output} | {i.name for i in proto.graph.input}
    return tuple(name for name in dict.fromkeys(names) if name not in public)


def tensors_of(prepared: Prepared) -> list[str]:
    """Return the names of all tensors that a plan might quantize."""
    names: dict[str, None] = {}
    for layer in prepared.layers:
        for name in (*layer.inputs, layer.output):
            names[name] = None
    return list(names)


def session_with_outputs(prepared: Prepared, names: Sequence[str], *, exact: bool) -> Any:
    """Open the float model with inner tensors among its outputs; exact: no kernel is fused.

    Exact is how onnxruntime's own calibrators run it: fused kernels move ranges by the last bit.
    Otherwise it is one of several workers that do the same, and takes one thread.
    """
    proto, threads = prepared.proto, None if exact else 1
    try:
        if constant_bytes(proto) < LARGE_MODEL_BYTES:
            model = with_outputs(proto, names).SerializeToString()
            return open_session(model, threads=threads, optimize=not exact)
        with temporary_folder("seqto-outputs-") as folder:
            write_streamed(proto, folder / "model.onnx", outputs=inner_tensors(proto, names))
            return open_session(folder / "model.onnx", threads=threads, optimize=not exact)
    except Exception as error:  # ORT raises many types without a root
        raise ModelError(f"the model does not load for calibration: {error}") from error


def run_for(
    session: Any, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return tensor → value, inputs of the model among them."""
    asked = [n for n in names if n not in feeds]
    values: dict[str, NDArray[Any]] = {}
    if asked:
        try:
            found = session.run(asked, dict(feeds))
        except Exception as error:  # ORT raises many types without a root
            raise ModelError(f"the model does not run for calibration: {error}") from error
        values = dict(zip(asked, found, strict=True))
    values.update({n: feeds[n] for n in names if n in feeds})
    return {n: without_filling(value, feeds) for n, value in values.items()}


def element_counts(prepared: Prepared, feeds: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Count the numbers that each tensor between layers holds for one sample."""
    names = tensors_of(prepared)
    session = session_with_outputs(prepared, names, exact=True)
    rows = len(next(iter(feeds.values())))
    return {n: int(v.size) // rows for n, v in run_for(session, names, feeds).items()}

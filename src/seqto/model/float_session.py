"""ONNX Runtime sessions of the float model with inner tensors among the outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from seqto.data.store import without_filling
from seqto.errors import ModelError
from seqto.model.ort_session import open_session
from seqto.model.prepare import Prepared


def tensors_of(prepared: Prepared) -> list[str]:
    """Every tensor that a plan might quantize."""
    names: dict[str, None] = {}
    for layer in prepared.layers:
        for name in (*layer.inputs, layer.output):
            names[name] = None
    return list(names)


def session_with_outputs(prepared: Prepared, names: Sequence[str], *, exact: bool) -> Any:
    """The float model with inner tensors among its outputs; exact: no kernel is fused."""
    import onnx

    model = onnx.ModelProto()
    model.CopyFrom(prepared.proto)
    public = {o.name for o in model.graph.output} | {i.name for i in model.graph.input}
    for name in names:
        if name not in public:
            model.graph.output.add().name = name
    # exact: as onnxruntime's own calibrators run it, since fused kernels move ranges by the last
    # bit; else it is one of several workers that do the same
    threads = None if exact else 1
    try:
        return open_session(model.SerializeToString(), threads=threads, optimize=not exact)
    except Exception as error:  # ORT raises many types without a root
        raise ModelError(f"the model does not load for calibration: {error}") from error


def run_for(
    session: Any, names: Sequence[str], feeds: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Tensor → value, inputs of the model among them."""
    asked = [n for n in names if n not in feeds]
    values: dict[str, NDArray[Any]] = {}
    if asked:
        values = dict(zip(asked, session.run(asked, dict(feeds)), strict=True))
    values.update({n: feeds[n] for n in names if n in feeds})
    return {n: without_filling(value, feeds) for n, value in values.items()}


def element_counts(prepared: Prepared, feeds: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """How many numbers each tensor between layers holds for one sample."""
    names = tensors_of(prepared)
    session = session_with_outputs(prepared, names, exact=True)
    rows = len(next(iter(feeds.values())))
    return {n: int(v.size) // rows for n, v in run_for(session, names, feeds).items()}

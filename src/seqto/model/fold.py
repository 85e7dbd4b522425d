"""Folding: what follows from constants alone is computed once, and simple nodes are fused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from seqto.errors import ModelError
from seqto.files import temporary_folder
from seqto.model.constant_nodes import may_take_long
from seqto.model.files import PROTOBUF_LIMIT_BYTES, save


class Optimize(Protocol):
    """Writes the model that ONNX Runtime's basic optimizer makes of a model file."""

    def __call__(self, source: Path, target: Path, *, large: bool) -> None: ...


def fold(proto: Any, *, name: str, optimize: Optimize | None = None) -> Any:
    """Fold constants and pads and fuse BatchNorm with ONNX Runtime's basic optimizer."""
    import onnx

    make_initializers_private(proto)
    domains = {n.domain for n in proto.graph.node}
    with temporary_folder("seqto-fold-") as folder:
        source, target = folder / "in.onnx", folder / "out.onnx"
        save(proto, source)
        run = optimize if optimize is not None and may_take_long(proto) else optimize_here
        try:
            run(source, target, large=proto.ByteSize() > PROTOBUF_LIMIT_BYTES // 2)
        except Exception as error:  # ORT raises many types without a root
            first = str(error).strip().splitlines()[0]
            raise ModelError(f"{name} does not load in ONNX Runtime: {first}") from error
        folded = onnx.load(str(target))
    if not {n.domain for n in folded.graph.node} <= domains | {"", "ai.onnx"}:
        folded = proto  # a fused op of ORT's own would tie the result to ORT
    used = {n.domain for n in folded.graph.node} | {""}
    imports = [
        o for o in folded.opset_import if ("" if o.domain == "ai.onnx" else o.domain) in used
    ]
    fresh = onnx.helper.make_model(folded.graph, opset_imports=imports)
    fresh.ir_version = max(proto.ir_version, 8)
    fresh.producer_name = "seqto"
    strip_notes(fresh)
    return fresh


def optimize_here(source: Path, target: Path, *, large: bool) -> None:
    """Write the optimized model in this process; large: with its constants in a file beside it."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    if large:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", "out.data"
        )
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def make_initializers_private(proto: Any) -> None:
    """Take initializers off the inputs, where IR 3 had them: runtimes do not fold those."""
    constants = {t.name for t in proto.graph.initializer}
    kept = [i for i in proto.graph.input if i.name not in constants]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    proto.ir_version = max(proto.ir_version, 4)


def strip_notes(proto: Any) -> None:
    """Remove exporters' notes, which cost bytes in every variant and say nothing to a runtime."""
    proto.doc_string = ""
    proto.graph.doc_string = ""
    del proto.metadata_props[:]
    del proto.graph.metadata_props[:]
    del proto.graph.value_info[:]
    for node in proto.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    for tensor in proto.graph.initializer:
        tensor.doc_string = ""

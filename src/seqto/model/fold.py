"""Folding: what follows from constants alone is computed once, and simple nodes are fused.

ONNX Runtime's basic optimizer does it, from a file to a file. Weights of a large model lie in a
second file, which it maps: as one file it holds three copies of them while it loads.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any, Protocol

from seqto.errors import ModelError


class Optimize(Protocol):
    """Writes the model that ONNX Runtime's basic optimizer makes of a model file."""

    def __call__(self, source: Path, target: Path, *, large: bool) -> None: ...


def fold(
    source: Path,
    *,
    name: str,
    domains: Set[str],
    ir_version: int,
    external: bool,
    optimize: Optimize | None = None,
) -> Any:
    """Fold constants and pads and fuse BatchNorm; `domains`: of the operators in the file.

    external: constants go to a file beside the model. optimize: None: this process does it.
    """
    import onnx

    target = source.with_name("out.onnx")
    try:
        (optimize or optimize_here)(source, target, large=external)
    except Exception as error:  # ORT raises many types without a root
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{name} does not load in ONNX Runtime: {first}") from error
    folded = onnx.load(str(target))
    if not {n.domain for n in folded.graph.node} <= domains | {"", "ai.onnx"}:
        folded = onnx.load(str(source))  # a fused op of ORT's own would tie the result to ORT
    _leave_the_graph(folded, ir_version=ir_version)
    strip_notes(folded)
    return folded


def optimize_here(source: Path, target: Path, *, large: bool) -> None:
    """Write the optimized model in this process; large: with its constants in a file beside it."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    if large:
        entry = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(entry, "out.data")
    ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def _leave_the_graph(proto: Any, *, ir_version: int) -> None:
    """Clear what a model says beside its graph. A new model would be one more copy of it."""
    import onnx

    used = {n.domain for n in proto.graph.node} | {""}
    imports = onnx.ModelProto()  # copies: whether an empty domain is written is part of the bytes
    imports.opset_import.extend(
        o for o in proto.opset_import if ("" if o.domain == "ai.onnx" else o.domain) in used
    )
    for field in onnx.ModelProto.DESCRIPTOR.fields:
        if field.name != "graph":
            proto.ClearField(field.name)
    proto.opset_import.extend(imports.opset_import)
    proto.ir_version = max(ir_version, 8)
    proto.producer_name = "seqto"
    for tensor in proto.graph.initializer:
        tensor.ClearField("data_location")  # of weights that lay beside the model


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

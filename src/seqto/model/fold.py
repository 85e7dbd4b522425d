"""Folding by ONNX Runtime's basic optimizer, from a file to a model.

Weights of a large model lie in a second file, which ONNX Runtime maps: as one file it holds three
copies of them while it loads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqto.errors import ModelError


def fold(source: Path, *, name: str, domains: set[str], ir_version: int, external: bool) -> Any:
    """Fold constants and pads and fuse BatchNorm; `domains`: of the operators in the file."""
    import onnx
    import onnxruntime as ort

    target = source.with_name("out.onnx")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    if external:
        entry = "session.optimized_model_external_initializers_file_name"
        options.add_session_config_entry(entry, "out.data")
    try:
        ort.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ORT raises many types without a root
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{name} does not load in ONNX Runtime: {first}") from error
    folded = onnx.load(str(target))
    if not {n.domain for n in folded.graph.node} <= domains | {"", "ai.onnx"}:
        folded = onnx.load(str(source))  # a fused op of ORT's own would tie the result to ORT
    _leave_the_graph(folded, ir_version=ir_version)
    return folded


def _leave_the_graph(proto: Any, *, ir_version: int) -> None:
    """Clear what a model says beside its graph. A new model would be one more copy of it."""
    import onnx

    used = {n.domain for n in proto.graph.node} | {""}
    imports = [
        onnx.helper.make_opsetid(o.domain, o.version)
        for o in proto.opset_import
        if ("" if o.domain == "ai.onnx" else o.domain) in used
    ]
    for field in onnx.ModelProto.DESCRIPTOR.fields:
        if field.name != "graph":
            proto.ClearField(field.name)
    proto.opset_import.extend(imports)
    proto.ir_version = max(ir_version, 8)
    proto.producer_name = "seqto"
    for tensor in proto.graph.initializer:
        tensor.ClearField("data_location")  # of weights that lay beside the model

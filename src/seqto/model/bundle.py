"""Several models that are tuned as one: merged into one graph, and taken apart again.

A bundle (an encoder and a decoder, say) is one model file for everything that plans: its components
are disjoint graphs whose names begin with the component's name and a slash (`encoder/…`,
`decoder/…`). Where it runs, and where it is written for the user, it is taken apart into one model
per component, with the names that the user's files have. The names of the components are in the
merged model's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from seqto.errors import ModelError
from seqto.model.files import opset_of, to_bytes

COMPONENTS_KEY = "seqto.bundle"  # of a merged model's metadata: the names of its components
COMPONENT_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def merge(components: Mapping[str, Any]) -> Any:
    """Return one model that holds the graphs of all components, side by side."""
    import onnx

    for name in components:
        if not COMPONENT_NAME.fullmatch(name):
            raise ModelError(
                f"component {name!r} of a bundle: use letters, digits, '_', '-' and '.'"
            )
    opset = max(opset_of(proto) for proto in components.values())
    graph = onnx.GraphProto(name="bundle")
    imports: dict[str, int] = {}
    ir_version = 8
    for name, proto in components.items():
        component = _prefixed(_at_opset(proto, opset, name=name), name)
        for field in ("node", "input", "output", "initializer", "sparse_initializer"):
            getattr(graph, field).extend(getattr(component.graph, field))
        graph.value_info.extend(component.graph.value_info)
        ir_version = max(ir_version, component.ir_version)
        _add_imports(imports, component, name=name)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in imports.items()]
    merged = onnx.helper.make_model(graph, opset_imports=opsets)
    merged.ir_version = ir_version
    set_components(merged, components)
    return merged


def _at_opset(proto: Any, opset: int, *, name: str) -> Any:
    """Return a model at the opset of the others."""
    import onnx

    if opset_of(proto) == opset:
        return proto
    try:
        return onnx.version_converter.convert_version(proto, opset)
    except Exception as error:  # the converter raises bare RuntimeErrors
        raise ModelError(
            f"component {name!r} has opset {opset_of(proto)} and cannot be raised to {opset}, "
            f"which another component has: {error}; export all components with one opset"
        ) from error


def _add_imports(imports: dict[str, int], component: Any, *, name: str) -> None:
    for entry in component.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        if imports.setdefault(domain, entry.version) != entry.version:
            raise ModelError(
                f"component {name!r} uses version {entry.version} of {domain!r}, another component "
                f"{imports[domain]}: export all components with the same version"
            )


def _prefixed(proto: Any, name: str) -> Any:
    """Return a copy whose names, also those of open sizes, begin with the component's name."""
    import onnx

    component = onnx.inliner.inline_local_functions(proto) if proto.functions else onnx.ModelProto()
    if not proto.functions:
        component.CopyFrom(proto)
    constants = {t.name for t in component.graph.initializer}
    inputs = [i for i in component.graph.input if i.name not in constants]
    del component.graph.input[:]
    component.graph.input.extend(inputs)
    _rename(component.graph, lambda old: f"{name}/{old}")
    return component


def set_components(proto: Any, names: Iterable[str]) -> None:
    """Note the names of a merged model's components in its metadata; no names: it is no bundle."""
    other_properties = [(p.key, p.value) for p in proto.metadata_props if p.key != COMPONENTS_KEY]
    del proto.metadata_props[:]
    joined = " ".join(names)
    for key, value in [*other_properties, *([(COMPONENTS_KEY, joined)] if joined else [])]:
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, value


def components_of(proto: Any) -> tuple[str, ...]:
    """Return the names of a merged model's components; () where it is an ordinary model."""
    listed = next((p.value for p in proto.metadata_props if p.key == COMPONENTS_KEY), "")
    return tuple(listed.split())


def split(proto: Any) -> dict[str, Any]:
    """Return the components of a merged model, each a model with the names that its file had."""
    return {name: _component(proto, name) for name in components_of(proto)}


def split_bytes(data: bytes) -> dict[str, bytes]:
    """Return the components of a serialized merged model; {} where it is an ordinary one."""
    import onnx

    return {
        name: to_bytes(component) for name, component in split(onnx.load_from_string(data)).items()
    }


def files_of(path: Path, data: bytes) -> dict[Path, bytes]:
    """Return the files that a model is written to: m.onnx, or m-encoder.onnx and m-decoder.onnx."""
    components = split_bytes(data)
    named = {
        path.with_name(f"{path.stem}-{name}{path.suffix}"): x for name, x in components.items()
    }
    return named or {path: data}


def _component(proto: Any, name: str) -> Any:
    """Collect what one component's outputs depend on: components share constants at most."""
    import onnx

    prefix = f"{name}/"
    graph = proto.graph
    makers = {o: node for node in graph.node for o in node.output if o}
    outputs = [o for o in graph.output if o.name.startswith(prefix)]
    needed: set[str] = set()
    waiting = [o.name for o in outputs]
    while waiting:
        tensor = waiting.pop()
        if tensor and tensor not in needed:
            needed.add(tensor)
            if tensor in makers:
                waiting += _read_by(makers[tensor])
    own = onnx.GraphProto(name=name)
    own.node.extend(n for n in graph.node if any(o in needed for o in n.output))
    own.input.extend(i for i in graph.input if i.name.startswith(prefix))
    own.output.extend(outputs)
    own.initializer.extend(t for t in graph.initializer if t.name in needed)
    own.sparse_initializer.extend(t for t in graph.sparse_initializer if t.values.name in needed)
    _rename(own, lambda old: old.removeprefix(prefix))
    component = onnx.ModelProto()
    component.CopyFrom(proto)
    component.graph.CopyFrom(own)
    set_components(component, ())
    return component


def _read_by(node: Any) -> list[str]:
    """Return the tensors that a node reads, also inside of its branches."""
    names = list(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                names += _read_by(inner)
            names += [o.name for o in graph.output]
    return names


def _rename(graph: Any, rename: Callable[[str], str]) -> None:
    """Rename everything in a graph and in those inside of its nodes; what has no name keeps none.

    onnx.compose.add_prefix misses initializers that inner graphs read.
    """
    values = (*graph.input, *graph.output, *graph.value_info)
    for value in (*values, *graph.initializer):
        value.name = rename(value.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = rename(sparse.values.name)
    for value in values:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = rename(dim.dim_param)
    for node in graph.node:
        node.name = node.name and rename(node.name)
        node.input[:] = [x and rename(x) for x in node.input]
        node.output[:] = [x and rename(x) for x in node.output]
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _rename(inner, rename)

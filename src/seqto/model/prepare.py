"""Preparation of a model: folded, named, checked, ready for plans.

A prepared model gives the float model's answers, has named nodes, folded constants, short
tensor names and at least opset 13 (per-channel quantization begins there). All plans are
assembled from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqto.errors import ModelError
from seqto.files import temporary_folder
from seqto.model.bundle import components_of, set_components
from seqto.model.constant_nodes import may_take_long
from seqto.model.files import (
    LARGE_MODEL_BYTES,
    constant_bytes,
    external_files,
    load,
    opset_of,
    sha256_of_file,
    to_bytes,
    write_outside,
)
from seqto.model.fold import Optimize, fold, make_initializers_private, strip_notes
from seqto.model.graph import name_nodes
from seqto.model.half import widen_half
from seqto.model.inputs import input_specs
from seqto.model.layers import WEIGHTED_OPS, list_layers, without_weights
from seqto.model.products import write_products
from seqto.model.softmax_axis import join_axes_behind, remove_flattening
from seqto.model.sparse import make_dense
from seqto.records import InputSpec, Layer

QUANTIZED_OPS = frozenset(
    (
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "QLinearConv",
        "QLinearMatMul",
        "QLinearAdd",
        "QGemm",
        "ConvInteger",
        "MatMulInteger",
        "MatMulNBits",
        "DynamicQuantizeMatMul",
    )
)


LOWEST_OPSET = 13
# version of the preparation, in `producer_version`: what is assembled from a model that an earlier
# version has prepared keeps the form that it was measured in. 2: products are joined
PREPARATION = 2


@dataclass(frozen=True, slots=True)
class Prepared:
    """A float model that plans can be built on."""

    proto: Any  # onnx.ModelProto, never changed after preparation
    layers: tuple[Layer, ...]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    opset: int
    sha256: str

    @property
    def preparation(self) -> int:
        """The version of the preparation that made it; 1 where none is noted."""
        noted = self.proto.producer_version
        return int(noted) if noted.isdigit() else 1

    def layer(self, name: str) -> Layer:
        return next(x for x in self.layers if x.name == name)


# -------------------------------------------------------------------------------------- preparation


def prepare(
    original: Any,
    *,
    name: str = "model",
    max_opset: int | None = None,
    optimize: Optimize | None = None,
) -> Prepared:
    """Name, upgrade, fold, fuse, shorten. Does not change its argument.

    optimize: what folds constants where that may take long; None: this process does it.
    """
    return prepare_loaded(
        lambda: _copy_of(original), name=name, max_opset=max_opset, optimize=optimize
    )


def prepare_loaded(
    load_model: Callable[[], Any],
    *,
    name: str = "model",
    max_opset: int | None = None,
    optimize: Optimize | None = None,
) -> Prepared:
    """Prepare the model that is loaded here: nobody else holds it, so that it goes early."""
    with temporary_folder("seqto-fold-") as folder:
        source = folder / "in.onnx"
        written = _write_upgraded(load_model, source, name=name, max_opset=max_opset)
        proto = fold(
            source,
            name=name,
            domains=written.domains,
            ir_version=written.ir_version,
            external=written.external,
            optimize=optimize if written.may_take_long else None,
        )
    name_nodes(proto)
    fold_constant_nodes(proto)
    write_products(proto)
    remove_flattening(proto)
    join_axes_behind(proto)
    unshare_weights(proto)
    shorten_tensor_names(proto)
    set_components(proto, written.components)
    proto.producer_version = str(PREPARATION)
    inputs = input_specs(proto)
    layers = tuple(list_layers(proto))
    if not any(layer.weight for layer in layers):
        raise ModelError(f"{name}: {_why_nothing(proto)}")
    digest = _digest_of(proto, large=written.external)
    outputs = tuple(o.name for o in proto.graph.output)
    return Prepared(proto, layers, inputs, outputs, opset_of(proto), digest)


def _copy_of(original: Any) -> Any:
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(original)
    return proto


@dataclass(frozen=True, slots=True)
class _Upgraded:
    """What is kept of a model that was written for folding."""

    components: Any
    domains: set[str]
    ir_version: int
    external: bool
    may_take_long: bool


def _write_upgraded(
    load_model: Callable[[], Any], path: Path, *, name: str, max_opset: int | None
) -> _Upgraded:
    """Write a model with names, float32 weights and the lowest opset that will do."""
    proto = load_model()
    refuse_quantized(proto, name=name)
    components = components_of(proto)
    strip_notes(proto)
    make_dense(proto, name=name)
    name_nodes(proto)
    widen_half(proto)
    proto = upgrade(proto, LOWEST_OPSET, name=name, max_opset=max_opset)
    make_initializers_private(proto)
    external = constant_bytes(proto) >= LARGE_MODEL_BYTES
    slow = may_take_long(proto)
    write_outside(proto, path, from_bytes=LARGE_MODEL_BYTES)
    domains = {n.domain for n in proto.graph.node}
    return _Upgraded(components, domains, proto.ir_version, external, slow)


def open_prepared(path: str | Path) -> Prepared:
    """Read back what `save(prepared.proto)` wrote."""
    proto = load(path, ours=True)
    return Prepared(
        proto,
        tuple(list_layers(proto)),
        input_specs(proto),
        tuple(o.name for o in proto.graph.output),
        opset_of(proto),
        _digest(Path(path)),
    )


def _digest_of(proto: Any, *, large: bool) -> str:
    """Return the hash of a model's bytes; of a large one in pieces, without a second copy."""
    digest = hashlib.sha256(to_bytes(without_weights(proto) if large else proto))
    for tensor in proto.graph.initializer if large else ():
        digest.update(tensor.raw_data)
    return digest.hexdigest()


def _digest(path: Path) -> str:
    """Return the hash of a saved model's bytes; where weights lie beside it, of all hashes.

    To serialize a model again would take twice its size in memory.
    """
    own, beside = sha256_of_file(path), external_files(path)
    if not beside:
        return own
    return hashlib.sha256("".join([own, *map(sha256_of_file, beside)]).encode()).hexdigest()


def refuse_quantized(proto: Any, *, name: str) -> None:
    quantized = [n for n in proto.graph.node if n.op_type in QUANTIZED_OPS]
    if quantized:
        raise ModelError(
            f"{name} is quantized already ({len(quantized)} such nodes, the first is a "
            f"{quantized[0].op_type}): start from the float model"
        )


def upgrade(proto: Any, opset: int, *, name: str, max_opset: int | None = None) -> Any:
    """Return the model at `opset` or higher; old graphs pass onnx's version converter."""
    import onnx

    now = opset_of(proto)
    if max_opset is not None and max(now, opset) > max_opset:
        raise ModelError(
            f"{name} has opset {now} and quantization needs at least {opset}, "
            f"but max_opset is {max_opset}: raise it"
        )
    if now >= opset:
        return proto
    if now < 9:
        make_initializers_private(proto)
    try:
        return onnx.version_converter.convert_version(proto, opset)
    except Exception as error:  # the converter raises bare RuntimeErrors
        raise ModelError(f"{name}: cannot go from opset {now} to {opset}: {error}") from error


def fold_constant_nodes(proto: Any) -> None:
    """Make Constant nodes initializers, so that a weight is one wherever it came from."""
    other_nodes = []
    for node in proto.graph.node:
        value = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type == "Constant" and value is not None:
            tensor = proto.graph.initializer.add()
            tensor.CopyFrom(value)
            tensor.name = node.output[0]
        else:
            other_nodes.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(other_nodes)


def unshare_weights(proto: Any) -> None:
    """Give each weighted node constants of its own: layers are decided apart.

    ONNX Runtime merges equal constants (three zero biases become one), which two schemes
    could not share.
    """
    taken: set[str] = set()
    constants = {t.name: t for t in proto.graph.initializer}
    for node in proto.graph.node:
        own = range(1, len(node.input)) if node.op_type in WEIGHTED_OPS else range(0)
        for position in own:
            name = node.input[position]
            if name in constants and name in taken:
                copy = proto.graph.initializer.add()
                copy.CopyFrom(constants[name])
                copy.name = node.input[position] = f"{name}/{node.name}/{position}"
        taken.update(x for x in node.input if x in constants)


def shorten_tensor_names(proto: Any) -> None:
    """Give internal tensors short names (they are repeated in every inserted node)."""
    graph = proto.graph
    public = {i.name for i in graph.input} | {o.name for o in graph.output}
    renamed: dict[str, str] = {"": ""}
    for prefix, tensors in (
        ("w", [t.name for t in graph.initializer]),
        ("t", [o for n in graph.node for o in n.output]),
    ):
        for position, tensor in enumerate(x for x in tensors if x and x not in public):
            short = f"{prefix}{position}"
            renamed[tensor] = short if short not in public else short + "_"
    if any(a.type in (5, 10) for n in graph.node for a in n.attribute):
        return  # sub-graphs capture outer names: leave models with If or Loop as they are
    for tensor in graph.initializer:
        tensor.name = renamed.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [renamed.get(x, x) for x in node.input]
        node.output[:] = [renamed.get(x, x) for x in node.output]


def _why_nothing(proto: Any) -> str:
    """Return why no layer can be quantized."""
    import onnx

    kinds = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    nested = [n.op_type for n in proto.graph.node if any(a.type in kinds for a in n.attribute)]
    if nested:
        return (
            f"no layer with weights lies outside of {', '.join(sorted(set(nested)))}: what lies in "
            "branches and loops is not quantized; export the model without them"
        )
    return "no Conv, Gemm or MatMul with constant weights: nothing to do"

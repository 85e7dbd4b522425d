"""Plan → model, from parts that are made once per (layer, scheme).

One walk over the prepared graph. A layer that is kept static reads its inputs through
QuantizeLinear → DequantizeLinear and hands its output on the same way; float layers read the
untouched float tensor wherever there is one, and stay float where ONNX Runtime would quantize
them (kept_float.py). Only standard operators are written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly import rounded_weights
from seqto.assembly.kept_float import keep_float
from seqto.assembly.plan import BIAS_CORRECTION, Plan
from seqto.calibration.statistics import Statistics, load_statistics
from seqto.errors import PlanError, nearest
from seqto.model.files import to_bytes
from seqto.model.layers import (
    FOLLOWING_ACTIVATIONS,
    OUTPUT_OP,
    SAME_SCALE_OPS,
    inferred_values,
    weight_axis,
)
from seqto.model.prepare import Prepared, open_prepared, upgrade
from seqto.records import Json, Layer
from seqto.schemes import dynamic_int, integers
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.limits import opset_needed, unfit
from seqto.schemes.part import INT4_OPSET, Part, make_part, tensor
from seqto.schemes.scheme import FP32, Scheme
from seqto.transforms.variants import MODEL_FILE, STATISTICS_FILE, is_complete


@dataclass(frozen=True, slots=True)
class Assembled:
    """A model in memory and what identifies it."""

    data: bytes
    size_bytes: int
    sha256: str
    content: str  # sha256 without the metadata: what two plans with the same effect share
    opset: int
    saturated_biases: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Read:
    """How a static consumer reads a tensor: its dequantized name and its parameters."""

    name: str
    scale: str
    zero: str
    scale_value: float


class Assembler:
    """Keeps the prepared model's constants and every part made so far."""

    def __init__(
        self,
        prepared: Prepared,
        statistics: Statistics,
        *,
        rounded: Mapping[tuple[str, str], Quantized] | None = None,
        max_opset: int | None = None,
    ) -> None:
        self.prepared = prepared
        self.statistics = statistics
        self.rounded = dict(rounded or {})  # (layer, weight type) → integers made before
        self.max_opset = max_opset
        self._layer_of = {n: layer for layer in prepared.layers for n in layer.nodes}
        self._by_name = {layer.name: layer for layer in prepared.layers}
        self._given = {t.name: t for t in prepared.proto.graph.initializer}
        self._nodes = {n.name: n for n in prepared.proto.graph.node}
        self._parts: dict[tuple[str, str, float, bool], Part] = {}
        self._bases: dict[int, Any] = {prepared.opset: prepared.proto}
        self._shapes: dict[str, tuple[int, ...]] | None = None  # inferred when first asked for

    # ------------------------------------------------------------------ what parts are made of

    def weight(self, layer: Layer) -> Floats:
        return self._array(layer.weight or "")

    def bias(self, layer: Layer) -> Floats | None:
        return self._array(layer.bias) if layer.bias else None

    def given(self, name: str) -> Any:
        return self._given[name]

    def _array(self, name: str) -> Floats:
        """Read again for every part: kept, the arrays would be a second float model."""
        import onnx

        values: Floats = onnx.numpy_helper.to_array(self._given[name])
        return values

    def input_mean(self, layer: Layer) -> Floats | None:
        return self.statistics.means.get(layer.inputs[0])

    def rounded_for_output(self, layer: Layer, kind: str) -> Quantized | None:
        """Integers with small output error, where calibration has made them."""
        return self.rounded.get((layer.name, kind))

    def channel_axis(self, layer: Layer) -> int:
        return weight_axis(self.node(layer), len(self._given[layer.weight or ""].dims))

    def node(self, layer: Layer) -> Any:
        return self._nodes[layer.nodes[0]]

    def part(self, layer: Layer, scheme: Scheme, *, input_scale: float, bias_fix: bool) -> Part:
        fix = bias_fix and layer.bias is not None and not scheme.is_float
        key = (layer.name, str(scheme), input_scale if scheme.kind == "static" else 0.0, fix)
        if key not in self._parts:
            self._parts[key] = make_part(layer, scheme, self, input_scale=input_scale, bias_fix=fix)
        return self._parts[key]

    def bytes_of(self, layer: Layer, scheme: Scheme) -> int:
        """What the layer's constants take in the file under this scheme."""
        if layer.weight is None:
            return 0
        if scheme.kind == "dynamic":
            return dynamic_int.size_of(layer, scheme, self)
        scale = 1.0
        if scheme.kind == "static":
            scale = float(self._parameters(layer.inputs[0], scheme.activation, "minmax")[0])
        return self.part(layer, scheme, input_scale=scale, bias_fix=False).size_bytes

    def _parameters(
        self, name: str, activation: str, method: str
    ) -> tuple[Floats, NDArray[np.generic]]:
        low, high = self.statistics.range_of(name, method)
        return integers.affine(np.float32(low), np.float32(high), activation, symmetric=False)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Of a constant or a tensor of the float model: () unknown, 0 for an unknown dimension."""
        if name in self._given:
            return tuple(int(d) for d in self._given[name].dims)
        if self._shapes is None:
            values = inferred_values(self.prepared.proto)
            found = {v.name: v.type.tensor_type.shape.dim for v in values}
            self._shapes = {n: tuple(int(d.dim_value) for d in dims) for n, dims in found.items()}
        return self._shapes.get(name, ())

    # --------------------------------------------------------------------------------- assembly

    def check(self, plan: Plan) -> dict[str, Scheme]:
        """The plan's schemes by layer; what it cannot mean is a PlanError."""
        schemes = plan.as_dict()
        for name, scheme in schemes.items():
            layer = self._by_name.get(name)
            if layer is None:
                raise PlanError(f"no layer {name!r}{nearest(name, list(self._by_name))}")
            reason = unfit(layer, scheme, max_opset=self.max_opset)
            if reason:
                raise PlanError(f"layer {name!r} ({layer.op_type}) cannot be {scheme}: {reason}")
        return schemes

    def opset_for(self, schemes: Mapping[str, Scheme]) -> int:
        return max([self.prepared.opset, *(opset_needed(s) for s in schemes.values())])

    def assemble(self, plan: Plan) -> Assembled:
        schemes = self.check(plan)
        opset = self.opset_for(schemes)
        if opset not in self._bases:
            self._bases[opset] = upgrade(self.prepared.proto, opset, name="the prepared model")
        walk = _Walk(self, self._bases[opset], schemes, bias_fix=BIAS_CORRECTION in plan.transforms)
        proto = walk.build()
        content = hashlib.sha256(to_bytes(proto)).hexdigest()
        entry = proto.metadata_props.add()
        entry.key, entry.value = "seqto", self._compact_plan(plan)
        data = to_bytes(proto)
        digest = hashlib.sha256(data).hexdigest()
        return Assembled(data, len(data), digest, content, opset, walk.saturated)

    def _compact_plan(self, plan: Plan) -> str:
        """The plan in few bytes: scheme code → positions of its layers in graph order."""
        position = {layer.name: i for i, layer in enumerate(self.prepared.layers)}
        groups: dict[str, list[int]] = {}
        for name, code in plan.schemes:
            groups.setdefault(code, []).append(position[name])
        words = [f"{code}:{_spans(sorted(found))}" for code, found in sorted(groups.items())]
        return " ".join([*words, *(f"+{t}" for t in plan.transforms)])


def _spans(numbers: list[int]) -> str:
    """[0,1,2,5] → "0-2,5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


class _Walk:
    """One assembly: emits nodes in graph order and remembers how each tensor can be read."""

    def __init__(
        self, made: Assembler, base: Any, schemes: Mapping[str, Scheme], *, bias_fix: bool
    ) -> None:
        import onnx

        self.made, self.base, self.schemes, self.bias_fix = made, base, schemes, bias_fix
        self.node = onnx.helper.make_node
        self.layer_of = made._layer_of
        self.public = set(made.prepared.outputs)
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.reads: dict[tuple[str, str, str], Read] = {}  # (tensor, type, method) → how to read
        self.float_name: dict[str, str] = {}  # tensor → what float readers read
        self.producer_method: dict[str, str] = {}
        self.pending: dict[str, Read] = {}  # layer → how its inner tensors are quantized
        self.saturated: dict[str, int] = {}
        self.left_float: set[str] = set()  # static by plan, but nothing static feeds them
        self.taken = {i.name for i in base.graph.input} | self.public
        self.taken |= {o for n in base.graph.node for o in n.output}
        self.stems: set[str] = set()
        self.float_outputs = {
            layer.inputs[0]
            for layer in made.prepared.layers
            if layer.op_type == OUTPUT_OP and schemes.get(layer.name, FP32).is_float
        }

    def build(self) -> Any:
        import onnx

        for node in self.base.graph.node:
            layer = self.layer_of.get(node.name)
            scheme = self.schemes.get(layer.name, FP32) if layer else FP32
            if layer is None or (scheme.is_float or scheme.kind == "weight"):
                self._emit_float(node, layer, scheme)
            elif scheme.kind == "dynamic":
                self._emit_dynamic(node, layer, scheme)
            else:
                self._emit_static(node, layer, scheme)
        self._quantize_lone_outputs()
        self._keep_used_constants()
        self.nodes, self.initializers = keep_float(
            self.nodes,
            self.initializers,
            shape_of=self._shape_of,
            taken={*self.public, *(i.name for i in self.base.graph.input)},
        )
        graph = onnx.helper.make_graph(self.nodes, "g", [], [])
        graph.input.extend(self.base.graph.input)
        graph.output.extend(self.base.graph.output)
        graph.initializer.extend(self.initializers.values())
        proto = onnx.helper.make_model(graph, opset_imports=self.base.opset_import)
        proto.ir_version = max(self.base.ir_version, 10 if self._is_new() else 0)
        proto.producer_name = "seqto"
        return proto

    def _shape_of(self, name: str) -> tuple[int, ...]:
        """Of a weight or of a tensor as static layers read it; 0 for an unknown dimension."""
        origins = {read.name: key[0] for key, read in self.reads.items()}
        return self.made.shape_of(origins.get(name, name))

    def _is_new(self) -> bool:
        return any(o.version >= INT4_OPSET for o in self.base.opset_import if not o.domain)

    # --------------------------------------------------------------------------------- float

    def _emit_float(self, node: Any, layer: Layer | None, scheme: Scheme) -> None:
        copy = self._copy(node, {x: self.float_name.get(x, x) for x in node.input})
        if layer is not None and layer.weight is not None and node.name == layer.nodes[0]:
            self._use_part(copy, layer, scheme, input_scale=1.0)
        self.nodes.append(copy)

    def _use_part(self, node: Any, layer: Layer, scheme: Scheme, *, input_scale: float) -> None:
        part = self.made.part(layer, scheme, input_scale=input_scale, bias_fix=self.bias_fix)
        for item in part.initializers:
            self.initializers[item.name] = item
        self.nodes.extend(part.nodes)
        node.input[1] = part.weight
        if len(node.input) > 2:
            node.input[2] = part.bias
        if part.saturated_biases:
            self.saturated[layer.name] = part.saturated_biases

    def _copy(self, node: Any, inputs: Mapping[str, str]) -> Any:
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [inputs.get(x, x) for x in node.input]
        return copy

    # --------------------------------------------------------------------------------- static

    def _emit_static(self, node: Any, layer: Layer, scheme: Scheme) -> None:
        if layer.name in self.left_float:
            self._emit_float(node, layer, FP32)
            return
        if node.name != layer.nodes[0]:
            self._emit_follower(node, layer, scheme)
            return
        if layer.op_type in SAME_SCALE_OPS and layer.inputs[0] not in self.producer_method:
            # what only moves floats gains nothing from being quantized: stock leaves it too
            self.left_float.add(layer.name)
            self._emit_float(node, layer, FP32)
            return
        reads = {x: self._read(x, scheme) for x in layer.inputs}
        copy = self._copy(node, {x: r.name for x, r in reads.items()})
        first = reads[layer.inputs[0]]
        if layer.weight is not None:
            self._use_part(copy, layer, scheme, input_scale=first.scale_value)
        self.nodes.append(copy)
        if layer.op_type in SAME_SCALE_OPS:
            self.pending[layer.name] = first
        self._hand_on(copy, node.output[0], layer, scheme, position=0)

    def _emit_follower(self, node: Any, layer: Layer, scheme: Scheme) -> None:
        """An activation is absorbed by the range; what moves data keeps the scale."""
        source = node.input[0]
        position = layer.nodes.index(node.name)
        absorbed = (
            node.op_type in FOLLOWING_ACTIVATIONS
            and layer.name not in self.pending
            and layer.output not in self.float_outputs
        )
        copy = self._copy(node, {source: self.float_name.get(source, source)})
        if absorbed:
            # the producer already wrote its result; only its name changes
            producer = self.nodes[-1]
            self._hand_on(producer, node.output[0], layer, scheme, position=position)
            return
        self.nodes.append(copy)
        self._hand_on(copy, node.output[0], layer, scheme, position=position)

    def _hand_on(
        self, node: Any, output: str, layer: Layer, scheme: Scheme, *, position: int
    ) -> None:
        """Quantize what a static layer's node produced, unless an absorbed node follows."""
        following = layer.nodes[position + 1 :]
        waits = False
        if following and layer.name not in self.pending:
            following_op = self.made._nodes[following[0]].op_type
            waits = following_op in FOLLOWING_ACTIVATIONS or following_op == "Add"
        if layer.output in self.float_outputs or waits:
            node.output[0] = output
            return
        shared = self.pending.get(layer.name)
        stem = self._stem(output)
        raw = stem + "r" if output in self.public else output
        node.output[0] = raw
        name = output if output in self.public else stem + "d"
        if shared is not None:
            read = self._pair(raw, stem, shared.scale, shared.zero, shared.scale_value, name=name)
        else:
            # an absorbed activation has narrowed the range: use that of the layer's result
            measured = layer.output if layer.output in self.made.statistics.ranges else output
            read = self._quantized(raw, measured, scheme, stem=stem, name=name)
            self.pending[layer.name] = read
        self.float_name[output] = read.name
        method = scheme.ranges or "minmax"
        self.producer_method[output] = method
        self.reads[(output, scheme.activation, method)] = read

    def _read(self, name: str, scheme: Scheme) -> Read:
        """A dequantized view of `name` in the reader's activation type."""
        method = self.producer_method.get(name, scheme.ranges or "minmax")
        key = (name, scheme.activation, method)
        if key not in self.reads:
            source = self.float_name.get(name, name)
            suffix = "" if scheme.activation == "u8" else scheme.activation
            stem = self._stem(name + suffix + ("" if method == "minmax" else method[0]))
            narrowed = Scheme("static", activation=scheme.activation, ranges=method)
            self.reads[key] = self._quantized(source, name, narrowed, stem=stem, name=stem + "d")
        return self.reads[key]

    def _stem(self, wanted: str) -> str:
        """A beginning for the names of one Q/DQ pair that nothing else has."""
        stem = wanted
        while stem in self.stems or any(stem + end in self.taken for end in "szqdr"):
            stem += "_"
        self.stems.add(stem)
        return stem

    def _quantized(
        self, source: str, measured: str, scheme: Scheme, *, stem: str, name: str
    ) -> Read:
        scale, zero = self.made._parameters(measured, scheme.activation, scheme.ranges)
        scale_name, zero_name = stem + "s", stem + "z"
        self.initializers[scale_name] = tensor(scale_name, np.asarray(scale))
        self.initializers[zero_name] = tensor(zero_name, np.asarray(zero))
        return self._pair(source, stem, scale_name, zero_name, float(scale), name=name)

    def _pair(
        self, source: str, stem: str, scale: str, zero: str, scale_value: float, *, name: str
    ) -> Read:
        self.nodes.append(self.node("QuantizeLinear", [source, scale, zero], [stem + "q"]))
        self.nodes.append(self.node("DequantizeLinear", [stem + "q", scale, zero], [name]))
        return Read(name, scale, zero, scale_value)

    def _quantize_lone_outputs(self) -> None:
        """An Output layer that is static behind a float producer quantizes the result alone."""
        for layer in self.made.prepared.layers:
            scheme = self.schemes.get(layer.name, FP32)
            name = layer.output
            if layer.op_type != OUTPUT_OP or scheme.is_float or name in self.float_name:
                continue
            stem = self._stem(name)
            for node in self.nodes:
                node.output[:] = [stem + "r" if x == name else x for x in node.output]
                node.input[:] = [stem + "r" if x == name else x for x in node.input]
            self._quantized(stem + "r", name, scheme, stem=stem, name=name)

    # ------------------------------------------------------------------------------- dynamic

    def _emit_dynamic(self, node: Any, layer: Layer, scheme: Scheme) -> None:
        if node.name != layer.nodes[0]:
            self._emit_float(node, None, FP32)
            return
        source = self.float_name.get(node.input[0], node.input[0])
        nodes, items = dynamic_int.emit(node, layer, scheme, self.made, source=source)
        made = {o for n in self.nodes for o in n.output}
        self.nodes.extend(n for n in nodes if not set(n.output) & made)
        for item in items:
            self.initializers[item.name] = item

    def _keep_used_constants(self) -> None:
        used = {x for n in self.nodes for x in n.input}
        used |= {o.name for o in self.base.graph.output}  # a constant may be one
        made = {x for n in self.nodes for x in n.output}
        for item in self.base.graph.initializer:
            if item.name in used and item.name not in made:
                self.initializers.setdefault(item.name, item)


def describe(assembled: Assembled) -> Json:
    return {
        "size_bytes": assembled.size_bytes,
        "sha256": assembled.sha256,
        "content": assembled.content,
        "opset": assembled.opset,
        "saturated_biases": dict(assembled.saturated_biases),
    }


def open_assembler(place: Path, *, max_opset: int | None = None) -> Assembler:
    """The assembler of a variant, with what has been rounded of it so far."""
    if not is_complete(place):
        raise PlanError(f"no such treatment of the float model: {place.name!r}")
    statistics = load_statistics(place / STATISTICS_FILE)
    return Assembler(
        open_prepared(place / MODEL_FILE),
        statistics,
        rounded=rounded_weights.load(place),
        max_opset=max_opset,
    )

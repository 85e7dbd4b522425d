"""One walk over the prepared graph that writes the model of a plan.

A layer that is kept static reads its inputs through QuantizeLinear → DequantizeLinear and gives its
output on the same way; float layers read the untouched float tensor wherever there is one, and stay
float where ONNX Runtime would quantize them (kept_float.py). Only standard operators are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.joined_products import JOINED_SINCE, join_products
from seqto.assembly.kept_float import keep_float
from seqto.model.layers import FOLLOWING_ACTIVATIONS, OUTPUT_OP, SAME_SCALE_OPS, is_large
from seqto.model.moved_data import passes_on, read_by
from seqto.model.prepare import Prepared
from seqto.records import Layer
from seqto.schemes.integers import Floats
from seqto.schemes.part import Constants, Part, PartScheme, TensorScheme, tensor
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import INT4_OPSET, MINMAX, S8, U8, IntType


@dataclass(frozen=True, slots=True)
class DequantizedTensor:
    """A tensor as a static consumer reads it: its dequantized name and its parameters."""

    name: str
    scale: str
    zero: str
    scale_value: float


class PartSource(Constants, Protocol):
    """The parts and ranges that a model is written from (assembler.py)."""

    def part(
        self, layer: Layer, scheme: PartScheme, *, input_scale: float, correct_bias: bool
    ) -> Part: ...

    def tensor_parameters(
        self, name: str, activation: IntType, ranges: str
    ) -> tuple[Floats, NDArray[np.generic]]: ...

    def has_range(self, name: str) -> bool: ...

    def shape_of(self, name: str) -> tuple[int, ...]: ...


class GraphWriter:
    """One assembly: writes nodes in graph order and keeps how each tensor can be read."""

    def __init__(
        self,
        prepared: Prepared,
        base: Any,
        *,
        schemes: Mapping[str, Scheme],
        parts: PartSource,
        correct_bias: bool,
        nodes: Sequence[Any] | None = None,
    ) -> None:
        """Prepare to write; `base`: the prepared model's proto at the opset that the schemes need.

        `nodes` stand in for its nodes.
        """
        self._given_nodes = list(base.graph.node) if nodes is None else nodes
        self.saturated: dict[str, int] = {}  # layer → int32 biases that saturate
        self.may_saturate: dict[str, None] = {}  # layers whose products may exceed 16 bits
        self._prepared, self._base, self._schemes = prepared, base, schemes
        self._parts, self._correct_bias = parts, correct_bias
        self._layer_of = {n: layer for layer in prepared.layers for n in layer.nodes}
        self._op_types = {n.name: n.op_type for n in prepared.proto.graph.node}
        self._public = set(prepared.outputs)
        self._nodes: list[Any] = []
        self._written_outputs: set[str] = set()  # of nodes that schemes have appended
        self._initializers: dict[str, Any] = {}
        self._unconverted: set[str] = set()  # constants of a raised graph that stayed behind
        # (tensor, type, range method) → how to read
        self._reads: dict[tuple[str, IntType, str], DequantizedTensor] = {}
        self._float_name: dict[str, str] = {}  # tensor → what float readers read
        self._producer_ranges: dict[str, str] = {}
        self._shared_scale: dict[str, DequantizedTensor] = {}  # layer → that of its inner tensors
        self._left_float: set[str] = set()  # static by plan, but nothing static feeds them
        self._taken = {i.name for i in base.graph.input} | self._public
        self._taken |= {o for n in base.graph.node for o in n.output}
        self._stems: set[str] = set()
        self._read_static = read_by(
            self._given_nodes,
            frozenset(
                tensor
                for layer in prepared.layers
                if isinstance(schemes.get(layer.name), StaticInt)
                for tensor in layer.inputs
            ),
        )
        self._float_outputs = {
            layer.inputs[0]
            for layer in prepared.layers
            if layer.op_type == OUTPUT_OP and schemes.get(layer.name, FP32).is_float
        }

    def build(self) -> Any:
        """Return the model of the plan, without metadata."""
        import onnx

        self._write_constants()
        for node in self._given_nodes:
            layer = self._layer_of.get(node.name)
            if layer is None:
                self.write_float(node, None, None)
                self._pass_on(node)
                continue
            scheme = self._schemes.get(layer.name, FP32)
            if layer.storage or node.name == layer.table_reader:
                scheme.write_rows(node, layer, self)
            else:
                scheme.write(node, layer, self)
        self._quantize_lone_outputs()
        self._keep_used_constants()
        nodes, initializers = keep_float(
            self._nodes,
            self._initializers,
            shape_of=self._shape_of,
            taken={*self._public, *(i.name for i in self._base.graph.input)},
        )
        if self._prepared.preparation >= JOINED_SINCE:
            nodes, initializers = join_products(nodes, initializers, public=frozenset(self._public))
        proto = onnx.ModelProto(producer_name="seqto")
        proto.ir_version = max(self._base.ir_version, 10 if self._is_new() else 0)
        proto.opset_import.extend(self._opsets(nodes))
        graph = proto.graph  # filled in place: make_model would copy all constants once more
        graph.name = "g"
        graph.node.extend(nodes)
        graph.input.extend(self._base.graph.input)
        graph.output.extend(self._base.graph.output)
        graph.initializer.extend(initializers.values())
        for item in graph.initializer:
            if item.name in self._unconverted:  # the version converter clears what it sees
                item.ClearField("doc_string")
        return proto

    def _opsets(self, nodes: list[Any]) -> list[Any]:
        import onnx

        opsets = list(self._base.opset_import)
        domains = {n.domain for n in nodes} - {
            "" if o.domain == "ai.onnx" else o.domain for o in opsets
        }
        return [*opsets, *(onnx.helper.make_opsetid(d, 1) for d in sorted(domains - {"ai.onnx"}))]

    def _write_constants(self) -> None:
        """Write constants that are layers without nodes: they have their own name again at load."""
        for layer in self._prepared.layers:
            scheme = self._schemes.get(layer.name, FP32)
            if layer.storage and not layer.nodes and scheme != FP32:
                self.use_part(layer, cast(PartScheme, scheme))

    def _shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a weight, or of a tensor as static layers read it.

        0: unknown dimension.
        """
        origins = {read.name: key[0] for key, read in self._reads.items()}
        return self._parts.shape_of(origins.get(name, name))

    def _is_new(self) -> bool:
        return any(o.version >= INT4_OPSET for o in self._base.opset_import if not o.domain)

    # ------------------------------------------------------------------- what schemes write with

    @property
    def constants(self) -> Constants:
        return self._parts

    def float_name(self, tensor: str) -> str:
        return self._float_name.get(tensor, tensor)

    def append(self, nodes: list[Any], initializers: list[Any]) -> None:
        """Add nodes, but for those whose output is there already, and initializers."""
        for node in nodes:
            if not self._written_outputs.intersection(node.output):
                self._nodes.append(node)
                self._written_outputs.update(node.output)
        for item in initializers:
            self._initializers[item.name] = item

    def use_part(self, layer: Layer, scheme: PartScheme) -> Part:
        """Add the layer's constants for float inputs, unless they are there already."""
        part = self._parts.part(layer, scheme, input_scale=1.0, correct_bias=self._correct_bias)
        self.append(list(part.nodes), list(part.initializers))
        if part.may_saturate:
            self.may_saturate[layer.name] = None
        return part

    def write_float(self, node: Any, layer: Layer | None, scheme: PartScheme | None) -> None:
        """Write a node that computes in float, with the constants that its scheme gives it."""
        copy = self._copy(node, {x: self.float_name(x) for x in node.input})
        weighted = layer is not None and layer.weight is not None and node.name == layer.nodes[0]
        if weighted and layer is not None and scheme is not None:
            self._use_part(copy, layer, scheme, input_scale=1.0)
        self._nodes.append(copy)

    def write_static(self, node: Any, layer: Layer, scheme: TensorScheme) -> None:
        """Write a node of a layer whose inputs and output are quantized."""
        if layer.name in self._left_float:
            self.write_float(node, layer, FP32)
            return
        if node.name != layer.nodes[0]:
            self._write_follower(node, layer, scheme)
            return
        if layer.op_type in SAME_SCALE_OPS and layer.inputs[0] not in self._producer_ranges:
            # data-movement ops on float input stay float, as in onnxruntime.quantization
            self._left_float.add(layer.name)
            self.write_float(node, layer, FP32)
            return
        reads = {x: self._read(x, scheme) for x in layer.inputs}
        copy = self._copy(node, {x: r.name for x, r in reads.items()})
        first = reads[layer.inputs[0]]
        if layer.weight is not None:
            self._use_part(copy, layer, scheme, input_scale=first.scale_value)
        elif layer.op_type == "MatMul" and scheme.activation is S8:
            self.may_saturate[layer.name] = None  # by the data: both factors are activations
        self._nodes.append(copy)
        if layer.op_type in SAME_SCALE_OPS:
            self._shared_scale[layer.name] = first
        self._emit_output(copy, node.output[0], layer, scheme, position=0)

    # ------------------------------------------------------------------------------ inner steps

    def _use_part(self, node: Any, layer: Layer, scheme: PartScheme, *, input_scale: float) -> None:
        part = self._parts.part(
            layer, scheme, input_scale=input_scale, correct_bias=self._correct_bias
        )
        self.append(list(part.nodes), list(part.initializers))
        node.input[1] = part.weight
        if len(node.input) > 2:
            node.input[2] = part.bias
        if part.saturated_biases:
            self.saturated[layer.name] = part.saturated_biases
        if part.may_saturate:
            self.may_saturate[layer.name] = None

    def _copy(self, node: Any, inputs: Mapping[str, str]) -> Any:
        import onnx

        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [inputs.get(x, x) for x in node.input]
        return copy

    def _write_follower(self, node: Any, layer: Layer, scheme: TensorScheme) -> None:
        """Write a follower: the range absorbs an activation; what moves data keeps the scale."""
        source = node.input[0]
        position = layer.nodes.index(node.name)
        absorbed = (
            node.op_type in FOLLOWING_ACTIVATIONS
            and layer.name not in self._shared_scale
            and layer.output not in self._float_outputs
        )
        copy = self._copy(node, {source: self.float_name(source)})
        if absorbed:
            # the producer already wrote its result; only its name changes
            producer = self._nodes[-1]
            self._emit_output(producer, node.output[0], layer, scheme, position=position)
            return
        self._nodes.append(copy)
        self._emit_output(copy, node.output[0], layer, scheme, position=position)

    def _emit_output(
        self, node: Any, output: str, layer: Layer, scheme: TensorScheme, *, position: int
    ) -> None:
        """Quantize what a static layer's node produced, unless an absorbed node follows."""
        following = layer.nodes[position + 1 :]
        waits = False
        if following and layer.name not in self._shared_scale:
            following_op = self._op_types[following[0]]
            waits = following_op in FOLLOWING_ACTIVATIONS or following_op == "Add"
        if layer.output in self._float_outputs or waits:
            node.output[0] = output
            return
        shared = self._shared_scale.get(layer.name)
        stem = self._stem(output)
        raw = stem + "r" if output in self._public else output
        node.output[0] = raw
        name = output if output in self._public else stem + "d"
        if shared is not None:
            read = self._pair(raw, stem, shared.scale, shared.zero, shared.scale_value, name=name)
        else:
            # an absorbed activation has narrowed the range: use that of the layer's result
            measured = layer.output if self._parts.has_range(layer.output) else output
            read = self._quantized(
                raw, measured, scheme.activation, scheme.ranges, stem=stem, name=name
            )
            self._shared_scale[layer.name] = read
        self._float_name[output] = read.name
        self._producer_ranges[output] = scheme.ranges
        self._reads[(output, scheme.activation, scheme.ranges)] = read

    def _pass_on(self, node: Any) -> None:
        """Quantize what a node only moves by the scale of what it reads, where static layers read.

        Its results are numbers of that grid, so that this changes none of them; ONNX Runtime runs
        the node in integers only if all of its results are quantized.
        """
        source = node.input[0] if node.input else ""
        ranges = self._producer_ranges.get(source)
        outputs = set(node.output)
        if ranges is None or not passes_on(node) or outputs & (self._public | {""}):
            return
        if not outputs & self._read_static:
            return
        for (name, activation, method), read in list(self._reads.items()):
            if (name, method) != (source, ranges) or read.name != self.float_name(source):
                continue
            constants = (read.scale, read.zero, read.scale_value)
            for output in node.output:
                stem = self._stem(output)
                moved = self._pair(output, stem, *constants, name=stem + "d")
                self._float_name[output] = moved.name
                self._producer_ranges[output] = ranges
                self._reads[(output, activation, ranges)] = moved

    def _read(self, name: str, scheme: TensorScheme) -> DequantizedTensor:
        """Return a dequantized view of `name` in the reader's activation type."""
        ranges = self._producer_ranges.get(name, scheme.ranges)
        key = (name, scheme.activation, ranges)
        if key not in self._reads:
            source = self.float_name(name)
            suffix = "" if scheme.activation is U8 else scheme.activation.name
            stem = self._stem(name + suffix + ("" if ranges == MINMAX else ranges[0]))
            self._reads[key] = self._quantized(
                source, name, scheme.activation, ranges, stem=stem, name=stem + "d"
            )
        return self._reads[key]

    def _stem(self, preferred: str) -> str:
        """Return a beginning for the names of one Q/DQ pair that nothing else has."""
        stem = preferred
        while stem in self._stems or any(stem + end in self._taken for end in "szqdr"):
            stem += "_"
        self._stems.add(stem)
        return stem

    def _quantized(
        self, source: str, measured: str, activation: IntType, ranges: str, *, stem: str, name: str
    ) -> DequantizedTensor:
        scale, zero = self._parts.tensor_parameters(measured, activation, ranges)
        scale_name, zero_name = stem + "s", stem + "z"
        self._initializers[scale_name] = tensor(scale_name, np.asarray(scale))
        self._initializers[zero_name] = tensor(zero_name, np.asarray(zero))
        return self._pair(source, stem, scale_name, zero_name, float(scale), name=name)

    def _pair(
        self, source: str, stem: str, scale: str, zero: str, scale_value: float, *, name: str
    ) -> DequantizedTensor:
        import onnx

        make = onnx.helper.make_node
        self._nodes.append(make("QuantizeLinear", [source, scale, zero], [stem + "q"]))
        self._nodes.append(make("DequantizeLinear", [stem + "q", scale, zero], [name]))
        return DequantizedTensor(name, scale, zero, scale_value)

    def _quantize_lone_outputs(self) -> None:
        """Quantize the result alone for static Output layers behind a float producer."""
        for layer in self._prepared.layers:
            scheme = self._schemes.get(layer.name, FP32)
            name = layer.output
            if layer.op_type != OUTPUT_OP or not isinstance(scheme, StaticInt):
                continue
            if name in self._float_name:
                continue
            stem = self._stem(name)
            for node in self._nodes:
                node.output[:] = [stem + "r" if x == name else x for x in node.output]
                node.input[:] = [stem + "r" if x == name else x for x in node.input]
            self._quantized(
                stem + "r", name, scheme.activation, scheme.ranges, stem=stem, name=name
            )

    def _keep_used_constants(self) -> None:
        used = {x for n in self._nodes for x in n.input}
        used |= {o.name for o in self._base.graph.output}  # a constant may be one
        node_outputs = {x for n in self._nodes for x in n.output}
        # of another opset the base has the graph alone
        prepared = self._prepared.proto
        raised = self._base is not prepared
        weights = {t.name: t for t in prepared.graph.initializer if raised and is_large(t)}
        for item in self._base.graph.initializer:
            known = item.name in node_outputs or item.name in self._initializers
            if item.name in used and not known:
                self._initializers[item.name] = weights.get(item.name, item)
                if item.name in weights:
                    self._unconverted.add(item.name)

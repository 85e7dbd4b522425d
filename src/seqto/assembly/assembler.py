"""Plan → model, from parts that are made once per (layer, scheme)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from seqto.assembly import bias_correction, rounded_weights
from seqto.assembly.graph_writer import GraphWriter
from seqto.assembly.inserted_factors import (
    UNSCALED,
    Factors,
    Unscaled,
    inserted_factors,
    needs_factors,
    without_factors,
)
from seqto.assembly.plan import Plan
from seqto.calibration.statistics import RowReads, Statistics, load_statistics
from seqto.errors import PlanError, nearest
from seqto.model.bundle import components_of, set_components, split
from seqto.model.files import constant_bytes, to_bytes
from seqto.model.graph import weight_axis
from seqto.model.layers import inferred_values, without_weights
from seqto.model.prepare import Prepared, open_prepared, upgrade
from seqto.model.shared_weights import equal_weights, store_equal_once
from seqto.records import Json, Layer
from seqto.schemes import integers
from seqto.schemes.block_rounding import BlockForm, Blocks
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.part import Part, PartScheme
from seqto.schemes.scheme import Scheme, opset_needed, unfit
from seqto.schemes.types import MINMAX, IntType
from seqto.transforms.variants import MODEL_FILE, STATISTICS_FILE, is_complete

# of parts that are kept at least; of a larger model, half of its bytes. All schemes of all layers
# together take two to three times the float model
LEAST_KEPT_BYTES = 500_000_000


@dataclass(frozen=True, slots=True)
class Assembled:
    """A model in memory and what identifies it."""

    data: bytes
    size_bytes: int
    sha256: str
    content: str  # sha256 without the metadata: what two plans with the same effect share
    opset: int
    saturated_biases: Mapping[str, int]
    may_saturate: tuple[str, ...] = ()  # layers whose products may exceed 16 bits (schemes/pairs)


class Assembler:
    """The prepared model's constants, and the parts of the models that were assembled.

    A part that is made for its size alone (`bytes_of`) is not kept: the main process prices every
    (layer, scheme), and the parts of all of them would take many times the model's memory.
    """

    def __init__(
        self,
        prepared: Prepared,
        statistics: Statistics,
        *,
        rounded: Mapping[tuple[str, str], Quantized | Blocks] | None = None,
        max_opset: int | None = None,
    ) -> None:
        self.prepared = prepared
        self.statistics = statistics
        self.rounded = dict(rounded or {})  # (layer, weight type) → integers made before
        self.max_opset = max_opset
        self._by_name = {layer.name: layer for layer in prepared.layers}
        self._initializers = {t.name: t for t in prepared.proto.graph.initializer}
        self._nodes = {n.name: n for n in prepared.proto.graph.node}
        self._parts: dict[tuple[str, str, float, bool], Part] = {}  # by layer, scheme, scale, bias
        self._kept_bytes = 0  # of these parts
        self._most_bytes = max(LEAST_KEPT_BYTES, constant_bytes(prepared.proto) // 2)
        self._bases: dict[int, Any] = {prepared.opset: prepared.proto}
        self._shapes: dict[str, tuple[int, ...]] | None = None  # inferred when first asked for
        self._factors = inserted_factors(prepared.proto, prepared.layers)
        self._sharing = {  # layer → how many layers have its weights
            name: len(group)
            for group in equal_weights(prepared.proto, prepared.layers)
            for name in group
        }

    # ------------------------------------------------------------------ what parts are made of

    def weight(self, layer: Layer) -> Floats:
        return self._array(layer.weight or "")

    def bias(self, layer: Layer) -> Floats | None:
        return self._array(layer.bias) if layer.bias else None

    def initializer(self, name: str) -> Any:
        return self._initializers[name]

    def _array(self, name: str) -> Floats:
        """Read a constant, again for every part: all in memory would be a second float model."""
        import onnx

        values: Floats = onnx.numpy_helper.to_array(self._initializers[name])
        return values

    def corrected_bias(self, layer: Layer, restored: Floats) -> Floats:
        """Return the bias that keeps the mean output what it is with the float weights."""
        bias = self.bias(layer)
        if bias is None:
            raise PlanError(f"layer {layer.name!r} has no bias to correct")
        mean = self.statistics.means.get(layer.inputs[0])
        if mean is None:
            return bias
        lost = self.weight(layer) - restored
        return bias_correction.corrected(self.node(layer), bias, lost=lost, mean=mean)

    def rounded_for_output(self, layer: Layer, weight: IntType) -> Quantized | None:
        """Return integers with small output error, where calibration has made them."""
        rounded = self.rounded.get((layer.name, weight.name))
        return rounded if isinstance(rounded, Quantized) else None

    def rounded_blocks(self, layer: Layer, form: BlockForm) -> Blocks | None:
        """Return blocks [outputs, inputs] with small output error, where calibration made them."""
        rounded = self.rounded.get((layer.name, form.name))
        return rounded if isinstance(rounded, Blocks) else None

    def row_reads(self, layer: Layer) -> RowReads | None:
        return self.statistics.row_reads.get(layer.weight or "")

    def channel_axis(self, layer: Layer) -> int:
        return weight_axis(self.node(layer), len(self._initializers[layer.weight or ""].dims))

    def node(self, layer: Layer) -> Any:
        return self._nodes[layer.nodes[0]]

    def part(
        self, layer: Layer, scheme: PartScheme, *, input_scale: float, correct_bias: bool
    ) -> Part:
        """Return the layer's part, made once. Where nothing flows in as integers, scale is 1."""
        key = (layer.name, scheme.code, input_scale, correct_bias)
        part = self._parts.pop(key, None)
        if part is None:
            factors = self._removable_factors().get(layer.name)
            plain = factors is not None and not needs_factors(cast(Scheme, scheme))
            part = scheme.part(
                layer,
                Unscaled(self, layer, factors, self.rounded) if plain and factors else self,
                input_scale=input_scale,
                correct_bias=correct_bias and layer.bias is not None,
            )
            self._kept_bytes += part.size_bytes
        self._parts[key] = part  # the last one used stands last
        while self._kept_bytes > self._most_bytes and len(self._parts) > 1:
            self._kept_bytes -= self._parts.pop(next(iter(self._parts))).size_bytes
        return part

    def _removable_factors(self) -> Mapping[str, Factors]:
        """Return factors that can be left out; variants rounded by an earlier version keep all."""
        known = any(kind.endswith(UNSCALED) for _, kind in self.rounded)
        return self._factors if known or not self.rounded else {}

    def bytes_of(self, layer: Layer, scheme: Scheme) -> int:
        """Return the bytes that the layer's constants take in the file under this scheme.

        Of weights that several layers share it is the layer's share: alike, they are stored once.
        """
        if layer.weight is None:
            return 0
        scale = 1.0
        if scheme.activation is not None:
            scale = float(self.tensor_parameters(layer.inputs[0], scheme.activation, MINMAX)[0])
        return scheme.size_bytes(layer, self, input_scale=scale) // self._sharing.get(layer.name, 1)

    def has_range(self, name: str) -> bool:
        return name in self.statistics.ranges

    def tensor_parameters(
        self, name: str, activation: IntType, ranges: str
    ) -> tuple[Floats, NDArray[np.generic]]:
        """Return scale and zero point of a tensor of activations."""
        low, high = self.statistics.range_of(name, ranges)
        return integers.affine(np.float32(low), np.float32(high), activation, symmetric=False)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Return the shape of a constant or tensor: () unknown, 0 for an unknown dimension."""
        if name in self._initializers:
            return tuple(int(d) for d in self._initializers[name].dims)
        if self._shapes is None:
            values = inferred_values(self.prepared.proto)
            dims_of = {v.name: v.type.tensor_type.shape.dim for v in values}
            self._shapes = {n: tuple(int(d.dim_value) for d in dims) for n, dims in dims_of.items()}
        return self._shapes.get(name, ())

    # --------------------------------------------------------------------------------- assembly

    def check(self, plan: Plan) -> dict[str, Scheme]:
        """Return the plan's schemes by layer; what it cannot mean is a PlanError."""
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
            self._bases[opset] = upgrade(
                without_weights(self.prepared.proto), opset, name="the prepared model"
            )
        base = self._bases[opset]
        nodes = None
        if factors := self._removable_factors():
            nodes = without_factors(base, self.prepared.layers, factors, schemes)
        writer = GraphWriter(
            self.prepared,
            base,
            schemes=schemes,
            parts=self,
            correct_bias=plan.correct_bias,
            nodes=nodes,
        )
        proto = writer.build()
        if self._sharing:
            store_equal_once(proto)
        set_components(proto, components_of(self.prepared.proto))
        content = hashlib.sha256(to_bytes(proto)).hexdigest()
        entry = proto.metadata_props.add()
        entry.key, entry.value = "seqto", self._compact_plan(plan)
        data = to_bytes(proto)
        digest = hashlib.sha256(data).hexdigest()
        # what the user gets of a bundle is one file a component
        size = sum(component.ByteSize() for component in split(proto).values()) or len(data)
        return Assembled(
            data, size, digest, content, opset, writer.saturated, tuple(writer.may_saturate)
        )

    def _compact_plan(self, plan: Plan) -> str:
        """Return the plan in few bytes: scheme code → positions of its layers in graph order."""
        position = {layer.name: i for i, layer in enumerate(self.prepared.layers)}
        groups: dict[str, list[int]] = {}
        for name, scheme in plan.schemes:
            groups.setdefault(str(scheme), []).append(position[name])
        words = [
            f"{code}:{_spans(sorted(positions))}" for code, positions in sorted(groups.items())
        ]
        return " ".join([*words, *(f"+{t}" for t in plan.transform_codes)])


def _spans(numbers: list[int]) -> str:
    """Return numbers as spans: [0,1,2,5] → "0-2,5"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def describe(assembled: Assembled) -> Json:
    return {
        "size_bytes": assembled.size_bytes,
        "sha256": assembled.sha256,
        "content": assembled.content,
        "opset": assembled.opset,
        "saturated_biases": dict(assembled.saturated_biases),
    }


def open_assembler(folder: Path, *, max_opset: int | None = None) -> Assembler:
    """Open the assembler of a variant, with what has been rounded of it so far."""
    if not is_complete(folder):
        raise PlanError(
            f"float model {folder.name!r}: {MODEL_FILE} or {STATISTICS_FILE} is missing; run the "
            "same tune command again to make them"
        )
    statistics = load_statistics(folder / STATISTICS_FILE)
    return Assembler(
        open_prepared(folder / MODEL_FILE),
        statistics,
        rounded=rounded_weights.load(folder),
        max_opset=max_opset,
    )

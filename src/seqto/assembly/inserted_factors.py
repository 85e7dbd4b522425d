"""Factors that a transform inserted in front of matrix products, taken out where nobody needs them.

A Mul in front of a product (transforms/insertion.py) makes the channels of its input alike, which
an input that is quantized with one range needs. The price is that the weights become less alike.
Where the input stays float, or gets a range for every row and block (n-bit), that price is paid for
nothing: such a layer reads what the Mul reads, with the weights that it had before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.calibration.statistics import RowReads
from seqto.errors import PlanError
from seqto.records import Layer
from seqto.schemes.block_rounding import BlockForm, Blocks
from seqto.schemes.integers import Floats, Quantized
from seqto.schemes.part import Constants, tensor
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.types import Arithmetic, IntType
from seqto.transforms.insertion import inserted_name

UNSCALED = "-unscaled"  # ends the names of integers that were rounded without the factors


@dataclass(frozen=True, slots=True)
class Factors:
    """A Mul in front of a layer: what it reads, and what it multiplies every channel by."""

    source: str
    values: Floats

    def without(self, weight: Floats, axis: int) -> Floats:
        """Return the weights as they were before the factors; `axis` is that of the outputs."""
        shape = (1, -1) if axis == 0 else (-1, 1)
        restored: Floats = (weight * self.values.reshape(shape)).astype(np.float32)
        return restored

    def gram(self, gram: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the Gram matrices of what the Mul reads, by those of what it gives."""
        back = np.where(self.values != 0, 1.0 / self.values.astype(np.float64), 0.0)
        scaled: NDArray[np.float64] = gram * back[:, None] * back[None, :]
        return scaled


def inserted_factors(proto: Any, layers: Sequence[Layer]) -> dict[str, Factors]:
    """Return layer → the factors in front of it, of matrix products with weights of their own."""
    import onnx

    constants = {t.name: t for t in proto.graph.initializer}
    makers = {o: n for n in proto.graph.node for o in n.output}
    nodes = {n.name: n for n in proto.graph.node}
    factors_of: dict[str, Factors] = {}
    for layer in layers:
        matrix = layer.op_type in ("MatMul", "Gemm") and len(layer.weight_shape) == 2
        if layer.weight is None or layer.table is not None or not matrix:
            continue
        mul = makers.get(nodes[layer.nodes[0]].input[0])
        if mul is None or mul.op_type != "Mul" or not inserted_name(mul.name):
            continue
        values = constants.get(mul.input[1])
        if values is not None and len(values.dims) == 1:
            factors_of[layer.name] = Factors(mul.input[0], onnx.numpy_helper.to_array(values))
    return factors_of


def needs_factors(scheme: Scheme) -> bool:
    """Return whether a scheme quantizes the whole input with one range."""
    return scheme.arithmetic in (Arithmetic.INTEGER, Arithmetic.DYNAMIC)


@dataclass(frozen=True, slots=True)
class Unscaled:
    """The constants of one layer as they are without its factors."""

    constants: Constants
    layer: Layer
    factors: Factors
    rounded: Mapping[tuple[str, str], Quantized | Blocks]

    def initializer(self, name: str) -> Any:
        if name != self.layer.weight:
            return self.constants.initializer(name)
        return tensor(name, self.weight(self.layer))

    def weight(self, layer: Layer) -> Floats:
        return self.factors.without(self.constants.weight(layer), self.channel_axis(layer))

    def bias(self, layer: Layer) -> Floats | None:
        return self.constants.bias(layer)

    def corrected_bias(self, layer: Layer, restored: Floats) -> Floats:
        # the same lost output, with the weights that the scaled input would have
        bias = self.constants.bias(layer)
        if bias is None:
            raise PlanError(f"layer {layer.name!r} has no bias to correct")
        back = Factors("", np.where(self.factors.values != 0, 1.0 / self.factors.values, 1.0))
        scaled = back.without(restored, self.channel_axis(layer))
        return self.constants.corrected_bias(layer, scaled)

    def rounded_for_output(self, layer: Layer, weight: IntType) -> Quantized | None:
        rounded = self.rounded.get((layer.name, weight.name + UNSCALED))
        return rounded if isinstance(rounded, Quantized) else None

    def rounded_blocks(self, layer: Layer, form: BlockForm) -> Blocks | None:
        rounded = self.rounded.get((layer.name, form.name + UNSCALED))
        return rounded if isinstance(rounded, Blocks) else None

    def row_reads(self, layer: Layer) -> RowReads | None:
        return self.constants.row_reads(layer)

    def channel_axis(self, layer: Layer) -> int:
        return self.constants.channel_axis(layer)

    def node(self, layer: Layer) -> Any:
        return self.constants.node(layer)


def without_factors(
    base: Any,
    layers: Sequence[Layer],
    factors: Mapping[str, Factors],
    schemes: Mapping[str, Scheme],
) -> list[Any]:
    """Return the graph's nodes: layers whose scheme needs no factors read past them.

    A Mul that nobody reads any more is gone.
    """
    import onnx

    by_node = {x.nodes[0]: x for x in layers if x.name in factors}
    nodes: list[Any] = []
    for node in base.graph.node:
        layer = by_node.get(node.name)
        if layer is None or needs_factors(schemes.get(layer.name, FP32)):
            nodes.append(node)
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[0] = factors[layer.name].source
        nodes.append(copy)
    read = {x for n in nodes for x in n.input} | {o.name for o in base.graph.output}
    return [n for n in nodes if not inserted_name(n.name) or any(o in read for o in n.output)]

"""A model of what a plan does, fitted to probes: output noise, bytes, milliseconds.

Quantization errors at different places are nearly independent, so their squares add up at the
model's output. A plan's noise is the sum of

    tensor noise   of every tensor that is quantized (once, however many layers touch it)
    weight noise   of every layer's rounded weights
    kernel excess  of every layer whose integer kernel is worse than exact arithmetic

Probes quantize one layer alone, so each is one equation over these. Seeing tensors apart from
layers is what finds regions: a float layer between two quantized ones saves nothing, since its
input and output stay quantized (squeezenet's first stretch shows it).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seqto.assembly.plan import Plan
from seqto.model.layers import OUTPUT_OP
from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import P8, S7, S8, U8, Arithmetic
from seqto.schemes.weight_only import WeightOnly
from seqto.search.space import Space, scheme_by_layer
from seqto.search.strategies.derived_noise import derived_noise, is_derived

PAIR_BYTES = 90  # Q and DQ nodes with their scale and zero point


Prices = tuple[float, float, float]  # noise, bytes, milliseconds


Schemes = dict[str, Scheme]  # layer → scheme, of every layer


class TensorPrice(NamedTuple):
    """The prices of a tensor, and the layers around it."""

    noise: float
    change_ms: float
    maker: str | None
    readers: tuple[str, ...]


class Choice(NamedTuple):
    """One choice of a layer: its prices, whatever the neighbours are."""

    scheme: Scheme
    prices: Prices
    static: bool


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Everything needed to price a plan without running it."""

    space: Space
    tensor: Mapping[str, float]
    weight: Mapping[tuple[str, Scheme], float]  # weight noise and kernel excess
    readers: Mapping[str, tuple[str, ...]]
    producer: Mapping[str, str]
    # tables of the above, since a search prices plans by the hundred thousand
    choices: Mapping[str, tuple[Choice, ...]] = field(init=False, repr=False, compare=False)
    tensors: Mapping[str, TensorPrice] = field(init=False, repr=False, compare=False)
    _own: dict[str, dict[Scheme, Prices]] = field(init=False, repr=False, compare=False)
    _known: dict[str, Prices] = field(init=False, repr=False, compare=False)  # by a plan's key

    def __post_init__(self) -> None:
        choices = {
            name: tuple(Choice(s, self._looked_up(name, s), is_static(s)) for s in menu)
            for name, menu in self.space.menu.items()
        }
        tensors = {
            name: TensorPrice(
                noise,
                self.space.boundary_ms.get(name, 0.0),
                self.producer.get(name),
                self.readers.get(name, ()),
            )
            for name, noise in self.tensor.items()
        }
        own = {name: {c.scheme: c.prices for c in menu} for name, menu in choices.items()}
        tables = {"choices": choices, "tensors": tensors, "_own": own, "_known": {}}
        for name, table in tables.items():
            object.__setattr__(self, name, table)

    def prices(self, plan: Mapping[str, Scheme]) -> Prices:
        """Return (noise, bytes, ms) of a whole plan."""
        noise = size = time = 0.0
        static: dict[str, bool] = {}
        for name, scheme in plan.items():
            own = self.own(name, scheme)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
            static[name] = is_static(scheme)
        for tensor in self.tensors.values():
            written = tensor.maker is not None and static[tensor.maker]
            reading = [static[reader] for reader in tensor.readers]
            if written or True in reading:
                changes = int(not written) + int(written and False in reading)
                noise, size = noise + tensor.noise, size + PAIR_BYTES
                time += tensor.change_ms * changes
        return noise, size, time

    def prices_of(self, plan: Plan) -> Prices:
        """Return the prices of a plan by which a model is made; they are kept."""
        known = self._known.get(plan.key)
        if known is None:
            known = self._known[plan.key] = self.prices(scheme_by_layer(self.space, plan))
        return known

    def swap(self, plan: Schemes, layer: Layer, scheme: Scheme) -> Prices:
        """Return how much noise, bytes and ms grow when one layer changes; the plan stays."""
        old = plan[layer.name]
        before = self._local(plan, layer)
        plan[layer.name] = scheme
        after = self._local(plan, layer)
        plan[layer.name] = old
        return after[0] - before[0], after[1] - before[1], after[2] - before[2]

    def _local(self, plan: Mapping[str, Scheme], layer: Layer) -> Prices:
        noise, size, time = self.own(layer.name, plan[layer.name])
        for tensor in dict.fromkeys((*layer.inputs, layer.output)):
            own = self.tensor_prices(tensor, plan)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        return noise, size, time

    def own(self, name: str, scheme: Scheme) -> Prices:
        """Return the prices of a scheme that do not depend on the layer's neighbours."""
        known = self._own.get(name, {}).get(scheme)
        return self._looked_up(name, scheme) if known is None else known

    def _looked_up(self, name: str, scheme: Scheme) -> Prices:
        return (
            self.weight.get((name, scheme), 0.0),
            float(self.space.bytes_of.get((name, scheme), 0)),
            self.space.latency_of.get((name, scheme), 0.0),
        )

    def tensor_prices(self, tensor: str, plan: Mapping[str, Scheme]) -> Prices:
        """Return the prices of one tensor under the schemes of the layers that touch it."""
        written_static, reading = self._touched(tensor, plan)
        if not written_static and True not in reading:
            return 0.0, 0.0, 0.0
        changes = int(not written_static) + int(written_static and False in reading)
        return self.tensor[tensor], PAIR_BYTES, self.space.boundary_ms.get(tensor, 0.0) * changes

    def changes(self, tensor: str, plan: Mapping[str, Scheme]) -> int:
        """Count conversions of a tensor from floats to integers or back."""
        written_static, reading = self._touched(tensor, plan)
        return int(not written_static and True in reading) + int(
            written_static and False in reading
        )

    def _touched(self, tensor: str, plan: Mapping[str, Scheme]) -> tuple[bool, list[bool]]:
        """Return whether a tensor is written as integers, and for each reader if it reads those."""
        maker = self.producer.get(tensor)
        written_static = maker is not None and is_static(plan[maker])
        return written_static, [is_static(plan[r]) for r in self.readers.get(tensor, ())]


def is_static(scheme: Scheme) -> bool:
    return scheme.arithmetic is Arithmetic.INTEGER


def fit(space: Space, damage: Mapping[tuple[str, Scheme], float]) -> NoiseModel:
    """Split probed damage into tensor noise, weight noise and kernel excess."""
    readers: dict[str, list[str]] = {}
    producer: dict[str, str] = {}
    for layer in space.layers:
        for tensor in layer.inputs:
            readers.setdefault(tensor, []).append(layer.name)
        if layer.op_type != OUTPUT_OP:
            producer[layer.output] = layer.name
    tensors = list(dict.fromkeys(t for x in space.layers for t in (*x.inputs, x.output)))
    index = {t: i for i, t in enumerate(tensors)}
    rounding = {x.name: _rounding_noise(x, space, damage) for x in space.layers}
    rows, right = [], []
    for layer in space.layers:
        probed = [damage[k] for k in damage if k[0] == layer.name and _is_plain_static(k[1])]
        if not probed:
            continue
        row = np.zeros(len(tensors))
        for tensor in {*layer.inputs, layer.output}:
            row[index[tensor]] = 1.0
        rows.append(row)
        right.append(max(0.0, min(probed) - rounding[layer.name]))
    noise = _non_negative(np.array(rows), np.array(right)) if rows else np.zeros(len(tensors))
    noise_of = {t: float(noise[i]) for t, i in index.items()}
    weight: dict[tuple[str, Scheme], float] = {}
    for (name, scheme), value in damage.items():
        layer = next(x for x in space.layers if x.name == name)
        share = value
        if is_static(scheme):
            share -= sum(noise_of[t] for t in {*layer.inputs, layer.output})
            share = max(share, 0.0 if _is_narrow(scheme) else rounding[name])
        weight[(name, scheme)] = max(0.0, share)
    for layer in space.layers:
        for scheme in space.menu[layer.name]:
            source = derived_from(scheme, exact=space.exact_products)
            known = None if source is None else weight.get((layer.name, source))
            if known is None and is_derived(space, layer.name, scheme):
                known = derived_noise(space, layer.name, scheme, weight)
            if known is not None:
                weight.setdefault((layer.name, scheme), known)
    return NoiseModel(space, noise_of, weight, {t: tuple(r) for t, r in readers.items()}, producer)


def derived_from(scheme: Scheme, *, exact: bool = False) -> Scheme | None:
    """Return the scheme whose weight noise this one shares, or None.

    Few bits are the same integers whether floats or integers flow in, and too small to saturate
    a kernel. Where products are added exactly, other eight-bit weights have nothing to win: u8 ones
    are about as fine as s8 ones, and those that cannot saturate no finer.
    """
    if not isinstance(scheme, StaticInt):
        return None
    if exact and scheme.weight in (U8, P8, S7):
        return dataclasses.replace(scheme, weight=S8)
    if scheme.weight is None or not _is_narrow(scheme):
        return None
    return WeightOnly(scheme.weight, per_channel=scheme.per_channel, rounding=scheme.rounding)


def _is_plain_static(scheme: Scheme) -> bool:
    return is_static(scheme) and not _is_narrow(scheme)


def _is_narrow(scheme: Scheme) -> bool:
    return scheme.weight is not None and scheme.weight.is_narrow


def _rounding_noise(
    layer: Layer, space: Space, damage: Mapping[tuple[str, Scheme], float]
) -> float:
    """Return the damage of eight-bit weights alone, from the weight-only probe."""
    for scheme in space.menu[layer.name]:
        eight_bits = isinstance(scheme, WeightOnly) and scheme.weight is S8
        if eight_bits and (layer.name, scheme) in damage:
            return damage[(layer.name, scheme)]
    return 0.0


def _non_negative(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve least squares with x ≥ 0 and a little ridge.

    Each equation is weighted by 1/size, since damage spans four decades.
    """
    from scipy.optimize import nnls

    scale = 1.0 / np.maximum(right, 1e-3 * max(float(right.max(initial=0.0)), 1e-12))
    ridge = 0.05 * float(np.median(scale)) * np.eye(matrix.shape[1])
    stacked = np.vstack([matrix * scale[:, None], ridge])
    solution, _ = nnls(stacked, np.concatenate([right * scale, np.zeros(matrix.shape[1])]))
    return np.asarray(solution)

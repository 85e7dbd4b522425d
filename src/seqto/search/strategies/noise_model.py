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
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqto.model.layers import OUTPUT_OP
from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import P8, S7, S8, U8, Arithmetic
from seqto.schemes.weight_only import WeightOnly
from seqto.search.space import Space
from seqto.search.strategies.derived_noise import derived_noise, is_derived

PAIR_BYTES = 90  # Q and DQ nodes with their scale and zero point


SWEEPS = 10  # of coordinate descent; it stands still long before


REGION = 24  # layers in the longest stretch that is flipped as a whole


Prices = tuple[float, float, float]  # noise, bytes, milliseconds


Schemes = dict[str, Scheme]  # layer → scheme, of every layer


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Everything needed to price a plan without running it."""

    space: Space
    tensor: Mapping[str, float]
    weight: Mapping[tuple[str, Scheme], float]  # weight noise and kernel excess
    readers: Mapping[str, tuple[str, ...]]
    producer: Mapping[str, str]

    def prices(self, plan: Mapping[str, Scheme]) -> Prices:
        """Return (noise, bytes, ms) of a whole plan."""
        noise = size = time = 0.0
        for name, scheme in plan.items():
            own = self.own(name, scheme)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        for tensor in self.tensor:
            own = self.tensor_prices(tensor, plan)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        return noise, size, time

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
        for tensor in {*layer.inputs, layer.output}:
            own = self.tensor_prices(tensor, plan)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        return noise, size, time

    def own(self, name: str, scheme: Scheme) -> Prices:
        """Return the prices of a scheme that do not depend on the layer's neighbours."""
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


class Descent:
    """Plans of least noise + byte_price·bytes + ms_price·ms, by layers and by regions.

    What a tensor costs depends on which layers around it are static, and on nothing else: a swap
    that leaves a layer static, or float, changes the layer's own cost alone.
    """

    def __init__(self, model: NoiseModel, byte_price: float, ms_price: float) -> None:
        self.model = model
        self.rates = (1.0, byte_price, ms_price)
        space = model.space
        self.has_static = any(is_static(s) for menu in space.menu.values() for s in menu)
        self.touches = {x.name: tuple({*x.inputs, x.output}) for x in space.layers}
        self.static = {s: is_static(s) for menu in space.menu.values() for s in menu}
        self.own = {
            (name, scheme): self._cost(model.own(name, scheme))
            for name, schemes in space.menu.items()
            for scheme in schemes
        }
        # of a tensor: what it costs as integers, what each change of its layout adds, who makes
        # it and who reads it
        self._tensors = {
            t: (
                noise + byte_price * PAIR_BYTES,
                ms_price * space.boundary_ms.get(t, 0.0),
                model.producer.get(t),
                model.readers.get(t, ()),
            )
            for t, noise in model.tensor.items()
        }

    def _cost(self, prices: Prices) -> float:
        return sum(rate * price for rate, price in zip(self.rates, prices, strict=True))

    def _around(self, name: str, flags: Mapping[str, bool]) -> float:
        """Return the cost of the tensors around a layer; `flags`: which layers are static."""
        total = 0.0
        for tensor in self.touches[name]:
            base, change, maker, readers = self._tensors[tensor]
            written_static = maker is not None and flags[maker]
            static = other = False
            for reader in readers:
                if flags[reader]:
                    static = True
                else:
                    other = True
            if written_static:
                total += base + change if other else base
            elif static:
                total += base + change
        return total

    def _flip(self, name: str, flags: dict[str, bool]) -> float:
        """Make a static layer float or the reverse; by how much the tensors' cost grew."""
        before = self._around(name, flags)
        flags[name] = not flags[name]
        return self._around(name, flags) - before

    def best_plan(self, start: Mapping[str, Scheme]) -> Schemes:
        plan = dict(start)
        for scheme in plan.values():
            self.static.setdefault(scheme, is_static(scheme))
        flags = {name: self.static[scheme] for name, scheme in plan.items()}
        for _ in range(SWEEPS):
            if not self._sweep(plan, flags) and not self._flip_region(plan, flags):
                break
        return plan

    def _sweep(self, plan: Schemes, flags: dict[str, bool]) -> bool:
        changed = False
        for name in self.touches:
            now, best, gain = plan[name], plan[name], -1e-15
            flipped: float | None = None  # what turning the layer costs around it
            for scheme in self.model.space.menu[name]:
                delta = self.own[name, scheme] - self._own(name, now)
                if self.static[scheme] != flags[name]:
                    if flipped is None:
                        flipped = self._flip(name, flags)
                        flags[name] = not flags[name]
                    delta += flipped
                if delta < gain:
                    best, gain = scheme, delta
            plan[name] = best
            flags[name] = self.static[best]
            changed = changed or best != now
        return changed

    def _own(self, name: str, scheme: Scheme) -> float:
        cost = self.own.get((name, scheme))
        return self._cost(self.model.own(name, scheme)) if cost is None else cost

    def _flip_region(self, plan: Schemes, flags: dict[str, bool]) -> bool:
        """Turn the contiguous stretch that gains most to float or to static, if any gains."""
        if not self.has_static:
            return False
        names = list(self.touches)
        best_gain, best_end = -1e-12, (0, 0, False)
        for static in (False, True):
            choice = {n: self._best_of_kind(n, static=static) for n in names}
            own = {
                n: 0.0 if s is None else self.own[n, s] - self._own(n, plan[n])
                for n, s in choice.items()
            }
            for first in range(len(names)):
                trial, total = dict(flags), 0.0
                for last in range(first, min(first + REGION, len(names))):
                    name = names[last]
                    if choice[name] is not None and trial[name] != static:
                        total += own[name] + self._flip(name, trial)
                    if total < best_gain:
                        best_gain, best_end = total, (first, last + 1, static)
        first, stop, static = best_end
        for name in names[first:stop]:
            scheme = self._best_of_kind(name, static=static)
            if scheme is not None and flags[name] != static:
                plan[name], flags[name] = scheme, static
        return stop > first

    def _best_of_kind(self, name: str, *, static: bool) -> Scheme | None:
        options = [s for s in self.model.space.menu[name] if self.static[s] == static]
        return min(options, key=lambda s: self.own[(name, s)], default=None)


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

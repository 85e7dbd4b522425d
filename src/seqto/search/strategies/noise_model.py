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

from seqto.records import Layer
from seqto.schemes.scheme import Scheme
from seqto.search.space import Space

PAIR_BYTES = 90  # Q and DQ nodes with their scale and zero point


SWEEPS = 10  # of coordinate descent; it stands still long before


REGION = 24  # layers in the longest stretch that is flipped as a whole


Prices = tuple[float, float, float]  # noise, bytes, milliseconds


@dataclass(frozen=True, slots=True)
class NoiseModel:
    """Everything needed to price a plan without running it."""

    space: Space
    tensor: Mapping[str, float]
    weight: Mapping[tuple[str, str], float]  # (layer, code) → weight noise and kernel excess
    readers: Mapping[str, tuple[str, ...]]
    producer: Mapping[str, str]

    def prices(self, plan: Mapping[str, str]) -> Prices:
        """(noise, bytes, ms) of a whole plan."""
        noise = size = time = 0.0
        for name, code in plan.items():
            own = self.own(name, code)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        for tensor in self.tensor:
            own = self.tensor_prices(tensor, plan)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        return noise, size, time

    def swap(self, plan: dict[str, str], layer: Layer, code: str) -> Prices:
        """By how much noise, bytes and ms grow when one layer changes; the plan is left as is."""
        old = plan[layer.name]
        before = self._local(plan, layer)
        plan[layer.name] = code
        after = self._local(plan, layer)
        plan[layer.name] = old
        return after[0] - before[0], after[1] - before[1], after[2] - before[2]

    def _local(self, plan: Mapping[str, str], layer: Layer) -> Prices:
        noise, size, time = self.own(layer.name, plan[layer.name])
        for tensor in {*layer.inputs, layer.output}:
            own = self.tensor_prices(tensor, plan)
            noise, size, time = noise + own[0], size + own[1], time + own[2]
        return noise, size, time

    def own(self, name: str, code: str) -> Prices:
        """What a layer's scheme costs whatever its neighbours are."""
        return (
            self.weight.get((name, code), 0.0),
            float(self.space.bytes_of.get((name, code), 0)),
            self.space.latency_of.get((name, code), 0.0),
        )

    def tensor_prices(self, tensor: str, plan: Mapping[str, str]) -> Prices:
        """What one tensor costs under the schemes of the layers that touch it."""
        made, reading = self._touched(tensor, plan)
        if not made and True not in reading:
            return 0.0, 0.0, 0.0
        changes = int(not made) + int(made and False in reading)
        return self.tensor[tensor], PAIR_BYTES, self.space.boundary_ms.get(tensor, 0.0) * changes

    def changes(self, tensor: str, plan: Mapping[str, str]) -> int:
        """How often a tensor is turned from floats to integers or back."""
        made, reading = self._touched(tensor, plan)
        return int(not made and True in reading) + int(made and False in reading)

    def _touched(self, tensor: str, plan: Mapping[str, str]) -> tuple[bool, list[bool]]:
        """Whether it is made as integers, and who reads it so."""
        maker = self.producer.get(tensor)
        made = maker is not None and is_static(plan[maker])
        return made, [is_static(plan[r]) for r in self.readers.get(tensor, ())]


class Descent:
    """Plans of least noise + byte_price·bytes + ms_price·ms, by layers and by regions."""

    def __init__(self, model: NoiseModel, byte_price: float, ms_price: float) -> None:
        self.model = model
        self.rates = (1.0, byte_price, ms_price)
        self.touches = {x.name: tuple({*x.inputs, x.output}) for x in model.space.layers}
        self.own = {
            (name, code): self._cost(model.own(name, code))
            for name, codes in model.space.menu.items()
            for code in codes
        }

    def _cost(self, prices: Prices) -> float:
        return sum(rate * price for rate, price in zip(self.rates, prices, strict=True))

    def _around(self, name: str, plan: Mapping[str, str]) -> float:
        return sum(self._cost(self.model.tensor_prices(t, plan)) for t in self.touches[name])

    def change(self, plan: dict[str, str], name: str, code: str) -> float:
        """Set one layer's scheme; returns by how much the cost grew."""
        before = self.own[(name, plan[name])] + self._around(name, plan)
        plan[name] = code
        return self.own[(name, code)] + self._around(name, plan) - before

    def best_plan(self, start: Mapping[str, str]) -> dict[str, str]:
        plan = dict(start)
        for _ in range(SWEEPS):
            if not self._sweep(plan) and not self._flip_region(plan):
                break
        return plan

    def _sweep(self, plan: dict[str, str]) -> bool:
        changed = False
        for name in self.touches:
            now, best, gain = plan[name], plan[name], -1e-15
            for code in self.model.space.menu[name]:
                delta = self.change(plan, name, code)
                if delta < gain:
                    best, gain = code, delta
                plan[name] = now
            plan[name] = best
            changed = changed or best != now
        return changed

    def _flip_region(self, plan: dict[str, str]) -> bool:
        """Turn the contiguous stretch that gains most to float or to static, if any gains."""
        names = list(self.touches)
        best_gain, best_end = -1e-12, (0, 0, False)
        for static in (False, True):
            choice = {n: self._best_of_kind(n, static=static) for n in names}
            for first in range(len(names)):
                trial, total = dict(plan), 0.0
                for last in range(first, min(first + REGION, len(names))):
                    code = choice[names[last]]
                    if code is not None and is_static(trial[names[last]]) != static:
                        total += self.change(trial, names[last], code)
                    if total < best_gain:
                        best_gain, best_end = total, (first, last + 1, static)
        first, stop, static = best_end
        for name in names[first:stop]:
            code = self._best_of_kind(name, static=static)
            if code is not None and is_static(plan[name]) != static:
                plan[name] = code
        return stop > first

    def _best_of_kind(self, name: str, *, static: bool) -> str | None:
        options = [c for c in self.model.space.menu[name] if is_static(c) == static]
        return min(options, key=lambda c: self.own[(name, c)], default=None)


def is_static(code: str) -> bool:
    return code.startswith("static")


def fit(space: Space, damage: Mapping[tuple[str, str], float]) -> NoiseModel:
    """Split probed damage into tensor noise, weight noise and kernel excess."""
    readers: dict[str, list[str]] = {}
    producer: dict[str, str] = {}
    for layer in space.layers:
        for tensor in layer.inputs:
            readers.setdefault(tensor, []).append(layer.name)
        if layer.op_type != "Output":
            producer[layer.output] = layer.name
    tensors = list(dict.fromkeys(t for x in space.layers for t in (*x.inputs, x.output)))
    index = {t: i for i, t in enumerate(tensors)}
    rounding = {x.name: _rounding_noise(x, space, damage) for x in space.layers}
    rows, right = [], []
    for layer in space.layers:
        seen = [damage[k] for k in damage if k[0] == layer.name and _is_plain_static(k[1])]
        if not seen:
            continue
        row = np.zeros(len(tensors))
        for tensor in {*layer.inputs, layer.output}:
            row[index[tensor]] = 1.0
        rows.append(row)
        right.append(max(0.0, min(seen) - rounding[layer.name]))
    noise = _non_negative(np.array(rows), np.array(right)) if rows else np.zeros(len(tensors))
    noise_of = {t: float(noise[i]) for t, i in index.items()}
    weight: dict[tuple[str, str], float] = {}
    for (name, code), value in damage.items():
        layer = next(x for x in space.layers if x.name == name)
        share = value
        if is_static(code):
            share -= sum(noise_of[t] for t in {*layer.inputs, layer.output})
            floor = rounding[name] if "s4" not in code else 0.0
            share = max(share, floor)
        weight[(name, code)] = max(0.0, share)
    for layer in space.layers:
        for code in space.menu[layer.name]:
            known = (layer.name, derived_from(code))
            if (layer.name, code) not in weight and known in weight:
                weight[(layer.name, code)] = weight[known]
    return NoiseModel(space, noise_of, weight, {t: tuple(r) for t, r in readers.items()}, producer)


def derived_from(code: str) -> str:
    """The scheme whose weight noise this one shares, or "": four bits are the same integers
    whether floats or integers flow in, and too small to saturate a kernel."""
    scheme = Scheme.parse(code)
    if scheme.kind != "static" or scheme.weight != "s4":
        return ""
    return str(dataclasses.replace(scheme, kind="weight", activation="", bias="", ranges=""))


def _is_plain_static(code: str) -> bool:
    return is_static(code) and Scheme.parse(code).weight != "s4"


def _rounding_noise(layer: Layer, space: Space, damage: Mapping[tuple[str, str], float]) -> float:
    """Damage of eight-bit weights alone, from the weight-only probe."""
    for code in space.menu[layer.name]:
        if code.startswith("weight-s8") and (layer.name, code) in damage:
            return damage[(layer.name, code)]
    return 0.0


def _non_negative(matrix: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Least squares with x ≥ 0 and a little ridge, relative to each equation's size.

    Damage spans four decades; unweighted, the large equations would drown the small ones.
    """
    from scipy.optimize import nnls

    scale = 1.0 / np.maximum(right, 1e-3 * max(float(right.max(initial=0.0)), 1e-12))
    ridge = 0.05 * float(np.median(scale)) * np.eye(matrix.shape[1])
    stacked = np.vstack([matrix * scale[:, None], ridge])
    solution, _ = nnls(stacked, np.concatenate([right * scale, np.zeros(matrix.shape[1])]))
    return np.asarray(solution)

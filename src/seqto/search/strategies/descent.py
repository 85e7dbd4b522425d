"""Coordinate descent over plans: least noise + bytes + time, by layers and by regions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from seqto.schemes.scheme import Scheme
from seqto.search.strategies.noise_model import PAIR_BYTES, NoiseModel, Prices, Schemes, is_static

SWEEPS = 10  # of coordinate descent; it stands still long before
REGION = 24  # layers in the longest stretch that is flipped as a whole


class _Choice(NamedTuple):
    """One choice of a layer: what it costs there, whatever its neighbours are."""

    scheme: Scheme
    cost: float
    static: bool


class _Tensor(NamedTuple):
    """A tensor between layers, which are named by their positions."""

    base: float  # what it costs as integers
    change: float  # what each change of its layout adds
    maker: int | None
    readers: tuple[int, ...]


class Descent:
    """Plans of least noise + byte_price·bytes + ms_price·ms, by layers and by regions.

    What a tensor costs depends on which layers around it are static, and on nothing else: a swap
    that leaves a layer static, or float, changes the layer's own cost alone.
    """

    def __init__(self, model: NoiseModel, byte_price: float, ms_price: float) -> None:
        self._model, self._byte_price, self._ms_price = model, byte_price, ms_price
        layers = model.space.layers
        self._names = [layer.name for layer in layers]
        self._menu = [
            [_Choice(c.scheme, self._cost(c.prices), c.static) for c in model.choices[name]]
            for name in self._names
        ]
        self._has_static = any(choice.static for menu in self._menu for choice in menu)
        # of each layer the best choice that is float, and the best that is static
        self._best = {
            static: [
                min((c for c in menu if c.static == static), key=_cost_of, default=None)
                for menu in self._menu
            ]
            for static in (False, True)
        }
        position = {name: i for i, name in enumerate(self._names)}
        tensors = {
            name: _Tensor(
                tensor.noise + byte_price * PAIR_BYTES,
                ms_price * tensor.change_ms,
                None if tensor.maker is None else position[tensor.maker],
                tuple([position[reader] for reader in tensor.readers]),
            )
            for name, tensor in model.tensors.items()
        }
        self._around = [
            [tensors[name] for name in dict.fromkeys((*layer.inputs, layer.output))]
            for layer in layers
        ]

    def _cost(self, prices: Prices) -> float:
        return prices[0] + self._byte_price * prices[1] + self._ms_price * prices[2]

    @cached_property
    def _near(self) -> list[list[int]]:
        """Return of each layer those before it that touch its tensors, the nearest first."""
        near = []
        for i, touched in enumerate(self._around):
            others = {j for tensor in touched for j in (tensor.maker, *tensor.readers)}
            near.append(sorted((j for j in others if j is not None and j < i), reverse=True))
        return near

    def best_plan(self, start: Mapping[str, Scheme]) -> Schemes:
        now = [self._choice(i, start[name]) for i, name in enumerate(self._names)]
        flags = [choice.static for choice in now]
        for _ in range(SWEEPS):
            if not self._sweep(now, flags) and not self._flip_region(now, flags):
                break
        changed = {name: choice.scheme for name, choice in zip(self._names, now, strict=True)}
        return {**start, **changed}

    def _choice(self, layer: int, scheme: Scheme) -> _Choice:
        """Return a scheme as a choice of a layer, also where it is not in its menu."""
        for choice in self._menu[layer]:
            if choice.scheme is scheme:
                return choice  # as in most plans: nothing needs to be priced
        cost = self._cost(self._model.own(self._names[layer], scheme))
        return _Choice(scheme, cost, is_static(scheme))

    def _sweep(self, now: list[_Choice], flags: list[bool]) -> bool:
        changed = False
        for i, menu in enumerate(self._menu):
            best, gain = now[i], -1e-15
            cost, flag = best.cost, flags[i]
            flipped: float | None = None  # what turning the layer costs around it
            for choice in menu:
                delta = choice.cost - cost
                if choice.static != flag:
                    if flipped is None:
                        flipped = self._flipped(i, flags)
                    delta += flipped
                if delta < gain:
                    best, gain = choice, delta
            changed = changed or best.scheme != now[i].scheme
            now[i], flags[i] = best, best.static
        return changed

    def _flip_region(self, now: list[_Choice], flags: list[bool]) -> bool:
        """Turn the contiguous stretch that gains most to float or to static, if any gains."""
        if not self._has_static:
            return False
        best_gain, best_end = -1e-12, (0, 0, False)
        for static in (False, True):
            steps = self._steps(now, flags, static=static)
            for first in range(len(steps)):
                total = 0.0
                for last in range(first, min(first + REGION, len(steps))):
                    step = steps[last]
                    if step:
                        total += step[last - first]
                        if total < best_gain:
                            best_gain, best_end = total, (first, last + 1, static)
        first, stop, static = best_end
        for i in range(first, stop):
            choice = self._best[static][i]
            if choice is not None and flags[i] != static:
                now[i], flags[i] = choice, static
        return stop > first

    def _steps(self, now: list[_Choice], flags: list[bool], *, static: bool) -> list[list[float]]:
        """Return of each layer what turning it adds when 0, 1, … layers before it are turned.

        Empty for a layer that does not turn. It depends on the turned ones among its neighbours:
        the cost is looked at again only where one more of them is among those before it.
        """
        flags = list(flags)
        turning = [
            choice is not None and flag != static
            for choice, flag in zip(self._best[static], flags, strict=True)
        ]
        steps: list[list[float]] = []
        for i, choice in enumerate(self._best[static]):
            if choice is None or not turning[i]:
                steps.append([])
                continue
            own, own_steps = choice.cost - now[i].cost, list[float]()
            near = [j for j in self._near[i] if turning[j] and i - j < REGION]
            for j in near:
                own_steps += [own + self._flipped(i, flags)] * (i - j - len(own_steps))
                flags[j] = static
            count = min(i + 1, REGION) - len(own_steps)
            steps.append([*own_steps, *[own + self._flipped(i, flags)] * count])
            for j in near:
                flags[j] = not static
        return steps

    def _flipped(self, layer: int, flags: list[bool]) -> float:
        """Return by how much the tensors' cost grows when a layer turns; the flags stay."""
        before = self._cost_around(layer, flags)
        flags[layer] = not flags[layer]
        after = self._cost_around(layer, flags)
        flags[layer] = not flags[layer]
        return after - before

    def _cost_around(self, layer: int, flags: list[bool]) -> float:
        """Return the cost of the tensors around a layer; `flags`: which layers are static."""
        total = 0.0
        for base, change, maker, readers in self._around[layer]:
            static = other = False
            for reader in readers:
                if flags[reader]:
                    static = True
                else:
                    other = True
            if maker is not None and flags[maker]:
                total += base + change if other else base
            elif static:
                total += base + change
        return total


def _cost_of(choice: _Choice) -> float:
    return choice.cost

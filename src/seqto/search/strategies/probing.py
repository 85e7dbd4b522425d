"""Damage of every (layer, scheme) quantized alone, from as few short runs as will do.

Each layer is quantized alone as the uniform plan has it, and with four bits where it may have them.
What rounds weights alone to eight bits hardly matters in most layers: there, groups of neighbours
are quantized together, and only groups that hurt are taken apart. With several hundred layers all
schemes are probed so. Errors of different layers add up as squares, so a group's damage is the sum
of its layers', up to tensors that two of them touch. A layer's damage is its own output's error
times how much of that reaches the model's output: the second is the same for all of its schemes, so
that in a group that is left whole layers share by what they did under the scheme probed first.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from seqto.assembly.plan import Plan
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import Arithmetic
from seqto.search.space import Space
from seqto.search.strategies.derived_noise import is_derived
from seqto.search.strategies.noise_model import derived_from, is_static
from seqto.search.strategies.targets import damage_of
from seqto.search.strategies.uniform_plans import good_uniform
from seqto.search.strategy import Answers, Ask

PROBE_BATCH = 64
MOST_SINGLE = 400  # probes: where it would take more, groups are probed
GROUP = 16  # layers in the largest group; each is taken apart into four
PARTS = 4
EIGHT = 8  # bits
SURPRISE = 3.0  # times what another scheme's damage lets expect: such a group is taken apart
RESOLUTION = 0.02  # of the uniform plan's damage: groups that do less are left whole

Damages = dict[tuple[str, Scheme], float]


def probe(
    space: Space,
    float_model: Plan,
    *,
    uniform_damage: float,
    known: Mapping[tuple[str, Scheme], float] = MappingProxyType({}),
) -> Generator[Ask, Answers, Damages]:
    """Return the damage of all (layer, scheme) from which others cannot be derived.

    `known` are those that an earlier run has probed.
    """
    families = _families_to_probe(space)
    damage_by_choice: Damages = {p: known[p] for f in families for p in f.items() if p in known}
    left = [{n: s for n, s in f.items() if (n, s) not in damage_by_choice} for f in families]
    few = sum(len(family) for family in left) <= MOST_SINGLE
    grouped = [f for f in left if f and (not few or _hardly_hurts(f))]
    single = [pair for f in left if f not in grouped for pair in f.items()]
    losses = yield from damages([float_model.with_schemes({n: s}) for n, s in single])
    damage_by_choice |= dict(zip(single, losses, strict=True))
    resolution = RESOLUTION * uniform_damage
    for family in grouped:
        first = {
            name: damage_by_choice[name, s]
            for name, s in families[0].items()
            if (name, s) in damage_by_choice
        }
        alone = yield from probe_groups(
            float_model,
            family,
            resolution=resolution,
            size=PARTS if few else GROUP,
            expected=first or None,
        )
        damage_by_choice |= {(name, family[name]): damage for name, damage in alone.items()}
    return damage_by_choice


def _hardly_hurts(family: Mapping[str, Scheme]) -> bool:
    """Return whether a family rounds weights alone, to eight bits; activations stay floats."""
    return all(
        s.arithmetic is Arithmetic.FLOAT and s.weight is not None and s.weight.bits >= EIGHT
        for s in family.values()
    )


def damages(plans: Sequence[Plan]) -> Generator[Ask, Answers, list[float]]:
    """Return the damage of plans on few samples."""
    measured: list[float] = []
    for start in range(0, len(plans), PROBE_BATCH):
        trials = yield Ask(tuple(plans[start : start + PROBE_BATCH]), probe=True)
        measured += [damage_of(trial) for trial in trials]
    return measured


def probe_groups(
    float_model: Plan,
    schemes: Mapping[str, Scheme],
    *,
    resolution: float,
    size: int = GROUP,
    expected: Mapping[str, float] | None = None,
) -> Generator[Ask, Answers, dict[str, float]]:
    """Return each layer's damage; those of a group that is left whole share it.

    A group that does no more than `resolution` is left whole. `expected`: the layers' damage under
    another scheme, which tells how much of a layer's error reaches the output. With it, layers
    share by that, and only groups are taken apart that do SURPRISE times what it lets expect.
    """
    names = list(schemes)
    groups = [names[i : i + size] for i in range(0, len(names), size)]
    shares = _Shares(expected or {})
    damage_by_layer: dict[str, float] = {}
    rate: float | None = None
    while groups:
        losses = yield from damages(
            [float_model.with_schemes({n: schemes[n] for n in group}) for group in groups]
        )
        if rate is None:
            rates = [loss / shares.whole(g) for g, loss in zip(groups, losses, strict=True)]
            rate = float(np.median(rates))
        hurting = []
        for group, damage in zip(groups, losses, strict=True):
            usual = SURPRISE * rate * shares.whole(group) if expected else 0.0
            if damage > max(resolution, usual) and len(group) > 1:
                hurting.append(group)
            else:
                damage_by_layer |= shares.split(group, damage)
        groups = [part for group in hurting for part in _parts(group)]
    return damage_by_layer


class _Shares:
    """Shares of a group's damage by layer: as is expected of them, else equal."""

    def __init__(self, expected: Mapping[str, float]) -> None:
        known = [x for x in expected.values() if x > 0]
        self._usual = float(np.median(known)) if known else 1.0
        self._expected = expected

    def of(self, name: str) -> float:
        # one that has done nothing may do something under another scheme
        return max(self._expected.get(name, self._usual), 1e-3 * self._usual)

    def whole(self, group: Sequence[str]) -> float:
        return sum(map(self.of, group))

    def split(self, group: Sequence[str], damage: float) -> dict[str, float]:
        whole = self.whole(group)
        return {name: damage * self.of(name) / whole for name in group}


def _parts(group: list[str]) -> list[list[str]]:
    size = -(-len(group) // PARTS)
    return [group[i : i + size] for i in range(0, len(group), size)]


def _families_to_probe(space: Space) -> list[dict[str, Scheme]]:
    """Return layer → scheme for each family of schemes to probe, the uniform plan's first.

    Half precision is exact enough not to be asked.
    """
    uniform = good_uniform(space)
    families: dict[Scheme | None, dict[str, Scheme]] = {None: {}}
    for layer in space.layers:
        menu = space.menu[layer.name]
        for scheme in menu:
            if scheme.is_float or derived_from(scheme, exact=space.exact_products) in menu:
                continue
            if is_derived(space, layer.name, scheme):
                continue
            first = scheme == uniform[layer.name] and is_static(scheme)
            family = None if first else scheme.without_output_rounding()
            families.setdefault(family, {})[layer.name] = scheme
    return [family for family in families.values() if family]

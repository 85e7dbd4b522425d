"""Damage of every (layer, scheme) quantized alone, from as few short runs as will do.

Models of some fifty layers are probed one (layer, scheme) at a time. With several hundred layers
that takes longer than all trials together, and most of it is spent on layers that hardly matter:
there, groups of neighbours are quantized together, and only groups that hurt are taken apart.
Errors of different layers add up as squares, so a group's damage is the sum of its layers', up to
tensors that two of them touch; in a group that is left whole each layer gets the same share of it.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType

from seqto.assembly.plan import Plan
from seqto.schemes.scheme import Scheme
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
    families = _wanted(space)
    found: Damages = {p: known[p] for f in families for p in f.items() if p in known}
    wanted = [{n: s for n, s in f.items() if (n, s) not in found} for f in families]
    if sum(len(family) for family in wanted) <= MOST_SINGLE:
        pairs = [pair for family in wanted for pair in family.items()]
        losses = yield from damages([float_model.with_schemes({n: s}) for n, s in pairs])
        return found | dict(zip(pairs, losses, strict=True))
    for family in wanted:
        alone = yield from probe_groups(float_model, family, resolution=RESOLUTION * uniform_damage)
        found |= {(name, family[name]): damage for name, damage in alone.items()}
    return found


def damages(plans: Sequence[Plan]) -> Generator[Ask, Answers, list[float]]:
    """Return the damage of plans on few samples."""
    found: list[float] = []
    for start in range(0, len(plans), PROBE_BATCH):
        trials = yield Ask(tuple(plans[start : start + PROBE_BATCH]), probe=True)
        found += [damage_of(trial) for trial in trials]
    return found


def probe_groups(
    float_model: Plan, schemes: Mapping[str, Scheme], *, resolution: float
) -> Generator[Ask, Answers, dict[str, float]]:
    """Return each layer's damage; those of a group that does no more than `resolution` share it."""
    names = list(schemes)
    groups = [names[i : i + GROUP] for i in range(0, len(names), GROUP)]
    found: dict[str, float] = {}
    while groups:
        losses = yield from damages(
            [float_model.with_schemes({n: schemes[n] for n in group}) for group in groups]
        )
        hurting = []
        for group, damage in zip(groups, losses, strict=True):
            if damage > resolution and len(group) > 1:
                hurting.append(group)
            else:
                found |= dict.fromkeys(group, damage / len(group))
        groups = [part for group in hurting for part in _parts(group)]
    return found


def _parts(group: list[str]) -> list[list[str]]:
    size = -(-len(group) // PARTS)
    return [group[i : i + size] for i in range(0, len(group), size)]


def _wanted(space: Space) -> list[dict[str, Scheme]]:
    """Layer → scheme for each family of schemes that must be probed, the uniform plan's first.

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

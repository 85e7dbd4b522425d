"""Plans with one scheme for all layers that can have it: the search's first trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from seqto.assembly.plan import Plan
from seqto.records import Layer
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.nbit import NBit
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import P8, S7, S8, U8, Arithmetic, IntType
from seqto.schemes.weight_only import WeightOnly
from seqto.search.space import Space
from seqto.search.strategies.noise_model import Schemes, is_static

WEIGHTLESS = StaticInt(None, U8)  # of layers without weights
LEAST_UNIFORM_BITS = 6  # with a scale a channel: fewer for all layers lose too much


def anchors(
    space: Space, float_model: Plan, *, timed: bool = False, kept_float: Collection[str] = ()
) -> list[tuple[Plan, str]]:
    """Return plans that anybody would try first: the search must not miss them.

    Layers of `kept_float` have no integers in any of them. With time among the objectives, one
    more tells what changing between floats and integers costs: every other layer is static.
    """
    free = [x for x in space.layers if x.name not in kept_float]

    def plan_of(schemes: Schemes) -> Plan:
        return float_model.with_schemes({x.name: schemes[x.name] for x in free})

    plans = [(plan_of(good_uniform(space)), "good uniform, rounded for the output")]
    # what only tables have is no uniform plan: all other layers would stay float
    menus = [space.menu[x.name] for x in space.layers if not (x.storage or x.table)]
    uniform = dict.fromkeys(s.without_output_rounding() for menu in menus for s in menu)
    for scheme in uniform:
        if scheme in (FP32, WEIGHTLESS) or not _is_anchor(scheme, space):
            continue
        if scheme.weight is S7 and with_weight(scheme, P8) in uniform:
            continue  # of few layers, which are in p8's uniform plan
        plan = {x.name: uniform_choice(space, x, scheme) for x in space.layers}
        plans.append((plan_of(plan), f"uniform {scheme}"))
    if timed and any(is_static(s) for s in uniform):
        plan = good_uniform(space)
        for layer in space.layers[::2]:
            plan[layer.name] = uniform_choice(space, layer, WeightOnly(S8))
        plans.append((plan_of(plan), "every other layer static"))
    return list({plan.key: (plan, note) for plan, note in plans}.values())


def _is_anchor(scheme: Scheme, space: Space) -> bool:
    """Return whether a uniform plan of a scheme may be of use: six bits or more, or blocks of four.

    Dynamic ones are where n-bit kernels are too: in models with attention.
    """
    nbit = any(isinstance(s, NBit) for menu in space.menu.values() for s in menu)
    if scheme.arithmetic is Arithmetic.DYNAMIC:
        return nbit and scheme.weight is not None and scheme.weight.bits >= LEAST_UNIFORM_BITS
    if scheme.weight is None or scheme.weight.bits >= LEAST_UNIFORM_BITS:
        return True
    return isinstance(scheme, NBit)


def with_weight(scheme: Scheme, weight: IntType) -> Scheme | None:
    """Return the scheme with another weight type, or None where there is no such scheme."""
    if not isinstance(scheme, StaticInt | WeightOnly) or scheme.weight is None:
        return None
    if weight.pair_limit is not None and not scheme.per_channel:
        return None
    return dataclasses.replace(scheme, weight=weight)


def uniform_choice(space: Space, layer: Layer, scheme: Scheme) -> Scheme:
    """Return the scheme, whatever its rounding, where the layer has it.

    Layers without weights follow a static plan.
    """
    menu = space.menu[layer.name]
    alternatives: list[Scheme | None] = [scheme]
    if scheme.weight is P8:
        # depthwise kernels sum no pairs: s8. Other layers without p8: s7, one bit less.
        alternatives.append(with_weight(scheme, S8 if layer.depthwise else S7))
    options = [s for one in alternatives for s in menu if s.without_output_rounding() == one]
    if not options and is_static(scheme):
        options = [s for s in menu if is_static(s)]
    if not options and (layer.storage or layer.table) and scheme.weight is not None:
        options = _stored_like(scheme, menu)
    return options[0] if options else menu[0]


def _stored_like(scheme: Scheme, menu: Sequence[Scheme]) -> list[Scheme]:
    """Return choices of a table with as many bits as a scheme's weights, then those with eight."""
    assert scheme.weight is not None
    return [
        s
        for bits in (scheme.weight.bits, 8)
        for s in menu
        if s.weight is not None and s.weight.bits == bits
    ]


def good_uniform(space: Space) -> Schemes:
    """Return a static plan that is exact on CPUs that saturate: u8, s8 for depthwise layers.

    Where products are added exactly: s8 weights, which have the faster kernels. Without
    static kernels to choose from: dynamic, n-bit or weight-only, eight bits.
    """
    plan = {}
    for layer in space.layers:
        menu = space.menu[layer.name]
        static = [s for s in menu if is_static(s)]
        options = [
            s
            for first in ((S8, U8) if layer.depthwise or space.exact_products else (U8, S8))
            for s in static
            if (s.weight or s.activation) is first
        ]
        options += static
        for kind, weight in (
            (DynamicInt, S8 if space.exact_products else P8),
            (NBit, S8),
            (WeightOnly, S8),
        ):
            options += [s for s in menu if isinstance(s, kind) and s.weight is weight]
        plan[layer.name] = options[0] if options else menu[-1]
    return plan


def plain_uniform(space: Space) -> Schemes:
    """Return the good uniform plan with weights rounded to the nearest."""
    return {name: s.without_output_rounding() for name, s in good_uniform(space).items()}


def has_bias(space: Space, schemes: Mapping[str, Scheme]) -> bool:
    """Return whether a plan quantizes a layer whose bias can be corrected."""
    quantized = {name for name, s in schemes.items() if not s.is_float}
    return any(x.bias is not None and x.name in quantized for x in space.layers)

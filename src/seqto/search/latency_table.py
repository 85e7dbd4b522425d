"""From a few profiled uniform plans to milliseconds of every (layer, scheme).

Schemes that run the same kernel share a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqto.assembly.plan import Plan
from seqto.records import Json, Layer
from seqto.schemes.scheme import Scheme


def profile_plans(layers: Sequence[Layer], menu: Mapping[str, tuple[str, ...]]) -> dict[str, Plan]:
    """Kernel family → a plan that runs as many layers as possible on it; and an alternating one."""
    families = dict.fromkeys(
        Scheme.parse(c).kernel for x in layers if x.weight for c in menu[x.name] if c != "fp32"
    )
    plans = {"float": Plan()}
    for family in families:
        if family == "float":
            continue
        chosen: dict[str, str] = {}
        for layer in layers:
            for code in menu[layer.name]:
                own = Scheme.parse(code)
                follows = own.kind == "static" and family.startswith("static")
                if own.kernel == family if layer.weight else follows:
                    chosen.setdefault(layer.name, code)
        plans[family] = Plan.of(chosen)
    static_plans = [p for f, p in plans.items() if f.startswith("static")]
    if static_plans:
        every_other = dict(static_plans[0].schemes)
        for layer in layers[::2]:
            every_other.pop(layer.name, None)
        plans["alternating"] = Plan.of(every_other)
    return plans


def integer_layers(plan: Plan) -> list[str]:
    """Layers that a plan runs on integer kernels."""
    return [name for name, scheme in plan.as_dict().items() if scheme.kernel != "float"]


def latency_table(
    layers: Sequence[Layer],
    menu: Mapping[str, tuple[str, ...]],
    profiles: Mapping[str, Json],
    elements: Mapping[str, int],
) -> dict[str, Any]:
    """{latency_of, boundary_ms} for a Space."""
    latency = {}
    for layer in layers:
        for code in menu[layer.name]:
            family = Scheme.parse(code).kernel
            if not layer.weight and family.startswith("static"):
                found = [f for f in profiles if f.startswith("static")]
                family = found[0] if found else "float"
            # a kernel whose profile failed is taken to be as fast as float's
            row = profiles.get(family, profiles.get("float", {})).get("layers_ms", {})
            latency[(layer.name, code)] = float(row.get(layer.name, 0.0))
    return {"latency_of": latency, "boundary_ms": _conversion_ms(layers, profiles, elements)}


def _conversion_ms(
    layers: Sequence[Layer], profiles: Mapping[str, Json], elements: Mapping[str, int]
) -> dict[str, float]:
    """What changing a tensor between float and integer costs, from the alternating plan.

    Half of it goes by the numbers changed and half by the changes: large tensors are slow to
    convert, and small ones pay for the calls.
    """
    row = profiles.get("alternating", {})
    static = {x.name for x in layers[1::2]}
    maker = {x.output: x.name for x in layers if x.op_type != "Output"}
    crossing = [
        elements.get(tensor, 0)
        for layer in layers
        for tensor in layer.inputs
        if (maker.get(tensor) in static) != (layer.name in static)
    ]
    half = float(row.get("conversion_ms", 0.0)) / 2
    per_element = half / max(1, sum(crossing))
    per_change = half / max(1, len(crossing))
    return {name: count * per_element + per_change for name, count in elements.items()}

"""From a few profiled uniform plans to milliseconds of every (layer, scheme).

Schemes that run the same kernel share a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqto.assembly.plan import Plan
from seqto.model.layers import OUTPUT_OP
from seqto.records import Json, Layer
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.types import FLOAT_KERNEL, Arithmetic, Kernel
from seqto.search.choices import Choices

ALTERNATING = "alternating"  # the profile of a plan whose every other layer is static


def profile_plans(layers: Sequence[Layer], choices: Choices) -> dict[str, Plan]:
    """Return name → plan: for each kernel one that runs as many layers as possible on it.

    The last one is alternating: it tells what changing between floats and integers costs.
    """
    schemes = (s for x in layers if x.weight for s in choices[x.name] if s != FP32)
    kernels = dict.fromkeys([FLOAT_KERNEL, *(s.kernel for s in schemes)])
    plans: dict[Kernel, Plan] = {}
    for kernel in kernels:
        chosen: dict[str, Scheme] = {}
        for layer in layers if kernel != FLOAT_KERNEL else ():
            for scheme in choices[layer.name]:
                if _runs_on(scheme, kernel, weighted=bool(layer.weight)):
                    chosen.setdefault(layer.name, scheme)
        plans[kernel] = Plan.of(chosen)
    named = {kernel.name: plan for kernel, plan in plans.items()}
    static = next((p for k, p in plans.items() if k.arithmetic is Arithmetic.INTEGER), None)
    if static is not None:
        every_other = static.as_dict()
        for layer in layers[::2]:
            every_other.pop(layer.name, None)
        named[ALTERNATING] = Plan.of(every_other)
    return named


def _runs_on(scheme: Scheme, kernel: Kernel, *, weighted: bool) -> bool:
    """Return whether a scheme runs on a kernel; layers without weights follow every static plan."""
    if weighted:
        return scheme.kernel == kernel
    return scheme.arithmetic is kernel.arithmetic is Arithmetic.INTEGER


def integer_layers(plan: Plan) -> list[str]:
    """Return the layers that a plan runs on integer kernels."""
    return [n for n, s in plan.schemes if s.arithmetic is not Arithmetic.FLOAT]


def latency_table(
    layers: Sequence[Layer],
    choices: Choices,
    profiles: Mapping[str, Json],
    elements: Mapping[str, int],
) -> dict[str, Any]:
    """Return {latency_of, boundary_ms} for a Space; `profiles` by the names of `profile_plans`."""
    kernels = [Kernel.named(name) for name in profiles]
    static = [k for k in kernels if k is not None and k.arithmetic is Arithmetic.INTEGER]
    latency: dict[tuple[str, Scheme], float] = {}
    for layer in layers:
        for scheme in choices[layer.name]:
            kernel = scheme.kernel
            if not layer.weight and kernel.arithmetic is Arithmetic.INTEGER:
                kernel = static[0] if static else FLOAT_KERNEL
            # a kernel whose profile failed is taken to be as fast as float's
            profile = profiles.get(kernel.name, profiles.get(FLOAT_KERNEL.name, {}))
            latency[(layer.name, scheme)] = float(profile.get("layers_ms", {}).get(layer.name, 0.0))
    return {"latency_of": latency, "boundary_ms": _conversion_ms(layers, profiles, elements)}


def _conversion_ms(
    layers: Sequence[Layer], profiles: Mapping[str, Json], elements: Mapping[str, int]
) -> dict[str, float]:
    """Return the time of conversions between float and integer, from the alternating plan.

    Half of it goes by the numbers changed and half by the changes: large tensors are slow to
    convert, and small ones pay for the calls.
    """
    row = profiles.get(ALTERNATING, {})
    static = {x.name for x in layers[1::2]}
    maker = {x.output: x.name for x in layers if x.op_type != OUTPUT_OP}
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

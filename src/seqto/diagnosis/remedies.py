"""Plans that cure one cause each: the same layers, kept in another way."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from seqto.assembly.plan import Plan
from seqto.schemes.scheme import Scheme


def changed(plan: Plan, *, only: Sequence[str] | None = None, **fields: str) -> Plan:
    """The plan with some fields of its layers' schemes set, where the field means something.

    A weight type is changed only where it is s8 and integers are multiplied: four bits cannot
    saturate, and weight-only layers compute in float.
    """
    made: dict[str, Scheme] = {}
    for name, scheme in plan.as_dict().items():
        integer = scheme.weight == "s8" and scheme.kind in ("static", "dynamic")
        means = {
            "weight": integer,
            "rounding": integer,
            "granularity": scheme.granularity == "tensor",
            "activation": scheme.kind == "static",
            "ranges": scheme.kind == "static",
            "bias": scheme.kind == "static" and bool(scheme.weight),
        }
        wanted = {k: v for k, v in fields.items() if means[k] and (only is None or name in only)}
        made[name] = dataclasses.replace(scheme, **wanted)
    return Plan.of(made, plan.transforms)


def without_saturation(plan: Plan) -> dict[str, Plan]:
    """Ways to keep 8-bit products from saturating in 16 bits: {name: plan}.

    u8 weights go with u8 activations (runtimes have no kernel for s8 × u8) and a float bias
    (their scales are not raised to hold an int32 one). p8 goes by channel.
    """
    return {
        "u8": changed(plan, weight="u8", activation="u8", bias="float", rounding=""),
        "p8": changed(plan, weight="p8", granularity="channel", rounding=""),
        "s7": changed(plan, weight="s7", rounding=""),
    }


def cures(plan: Plan) -> dict[str, Plan]:
    """Whole plans that cure one cause each; those that change nothing are left out."""
    per_channel = changed(plan, granularity="channel")
    found = {"channel": per_channel}
    if any(s.weight == "s8" and s.kind != "weight" for s in plan.as_dict().values()):
        found.update(without_saturation(per_channel))
    if any(s.kind == "static" for s in plan.as_dict().values()):
        found["mse"] = changed(plan, ranges="mse")
    return {name: made for name, made in found.items() if made != plan}

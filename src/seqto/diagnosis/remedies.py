"""Plans that cure one cause each: the same layers, kept in another way."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from seqto.assembly.plan import Plan
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import P8, S7, S8, U8, Arithmetic, Rounding
from seqto.schemes.weight_only import WeightOnly


def with_scheme_fields(plan: Plan, *, only: Sequence[str] | None = None, **fields: Any) -> Plan:
    """Return the plan with some fields of its layers' schemes set, where the field has a meaning.

    A weight type is changed only where it is s8 and integers are multiplied: four bits cannot
    saturate, and weight-only layers compute in float.
    """
    chosen = plan.as_dict() if only is None else {n: plan.scheme_of(n) for n in only}
    return plan.replace({name: _with_fields(scheme, fields) for name, scheme in chosen.items()})


def _with_fields(scheme: Scheme, fields: Mapping[str, Any]) -> Scheme:
    if not isinstance(scheme, StaticInt | DynamicInt | WeightOnly):
        return scheme
    static = isinstance(scheme, StaticInt)
    integer = scheme.weight is S8 and scheme.arithmetic is not Arithmetic.FLOAT
    applies = {
        "weight": integer,
        "rounding": integer and static,
        "per_channel": scheme.weight is not None and not scheme.per_channel,
        "activation": static,
        "ranges": static,
        "float_bias": static and scheme.weight is not None,
    }
    return dataclasses.replace(scheme, **{k: v for k, v in fields.items() if applies[k]})


def without_saturation(plan: Plan) -> dict[str, Plan]:
    """Return ways to keep 8-bit products from saturating in 16 bits: {name: plan}.

    u8 weights go with u8 activations (runtimes have no kernel for s8 × u8) and a float bias
    (their scales are not raised to hold an int32 one). p8 goes by channel.
    """
    return {
        "u8": with_scheme_fields(
            plan, weight=U8, activation=U8, float_bias=True, rounding=Rounding.NEAREST
        ),
        "p8": with_scheme_fields(plan, weight=P8, per_channel=True, rounding=Rounding.NEAREST),
        "s7": with_scheme_fields(plan, weight=S7, rounding=Rounding.NEAREST),
    }


def cures(plan: Plan) -> dict[str, Plan]:
    """Return whole plans that cure one cause each; those that change nothing are left out."""
    per_channel = with_scheme_fields(plan, per_channel=True)
    plans = {"channel": per_channel}
    schemes = plan.as_dict().values()
    if any(s.weight is S8 and s.arithmetic is not Arithmetic.FLOAT for s in schemes):
        plans.update(without_saturation(per_channel))
    if any(s.arithmetic is Arithmetic.INTEGER for s in schemes):
        plans["mse"] = with_scheme_fields(plan, ranges="mse")
    return {name: cured for name, cured in plans.items() if cured != plan}

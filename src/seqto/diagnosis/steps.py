"""Sources of the loss: damage at the output, given back cause by cause. Pure.

A chain of plans, each with one more cure than the one before, from the plan as it is down to
weights alone. The damage that a step gives back is what its cause costs, the causes before it being
cured; so the steps add up to the whole damage.

    kernels      the device's arithmetic → exact arithmetic
    ranges       one scale for a whole weight → one a channel
    bias         int32 biases → float ones
    clipping     ranges from the smallest to the largest value → ranges of least squared error
    sensitive    a few layers that do most of the damage → float
    activations  integer activations of the other layers → float
    weights      what is left: the integer weights of the other layers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqto.assembly.plan import Plan
from seqto.diagnosis.finding import finding
from seqto.diagnosis.remedies import with_scheme_fields
from seqto.errors import PlanError
from seqto.records import Json
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.scheme import Scheme
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import S8, Arithmetic
from seqto.schemes.weight_only import WeightOnly
from seqto.text import percent

CAUSE = "steps"
KERNELS, RANGES, BIAS, CLIPPING = "kernels", "ranges", "bias", "clipping"
SENSITIVE, ACTIVATIONS, WEIGHTS = "sensitive", "activations", "weights"

LABELS: Mapping[str, tuple[str, str]] = {  # step → (cause, cure)
    KERNELS: ("kernels that saturate", "u8, p8 or s7 weights"),
    RANGES: ("one scale for a whole weight", "per_channel = true"),
    BIAS: ("int32 biases", 'bias = "float"'),
    CLIPPING: ("activation ranges", 'ranges = "mse"'),
    SENSITIVE: ("a few sensitive layers", "keep them float"),
    ACTIVATIONS: ("activations of the other layers", "weight-only schemes"),
    WEIGHTS: ("weights of the other layers", "finer weight types"),
}


def chain(plan: Plan, sensitive: Sequence[str]) -> dict[str, Plan]:
    """Return the plans of the steps after the first; steps that change nothing are left out."""
    plans: dict[str, Plan] = {}
    last = plan
    for name, fields in (
        (RANGES, {"per_channel": True}),
        (BIAS, {"float_bias": True}),
        (CLIPPING, {"ranges": "mse"}),
    ):
        cured = with_scheme_fields(last, **fields)
        if cured != last:
            plans[name] = last = cured
    insensitive = {n: s for n, s in last.as_dict().items() if n not in sensitive}
    if sensitive and insensitive:
        plans[SENSITIVE] = last = last.with_schemes(insensitive)
    alone = last.with_schemes({n: w for n, s in insensitive.items() if (w := _weights_only(s))})
    if alone != last:
        plans[ACTIVATIONS] = alone
    return plans


def _weights_only(scheme: Scheme) -> Scheme | None:
    """Return the same weights in float arithmetic; None for a layer without weights."""
    if scheme.arithmetic is Arithmetic.FLOAT:
        return scheme
    if isinstance(scheme, StaticInt | DynamicInt) and scheme.weight is not None:
        try:
            return WeightOnly(scheme.weight, scheme.per_channel)
        except PlanError:  # weights without a sign: their next of kin
            return WeightOnly(S8, scheme.per_channel)
    return None


def steps_finding(
    planned: Mapping[str, float],
    after: Mapping[str, float],
    *,
    rows: Sequence[Json],
    damage: Mapping[str, float],
    sensitive: Sequence[str],
) -> Json:
    """Return the finding: what each cause costs, and the errors of every layer for the table.

    `planned`: damage on the device and exact; `after`: damage in exact arithmetic after each step.
    """
    start = level = planned["device"]
    steps: list[Json] = []
    for name, left in {KERNELS: planned["exact"], **after, WEIGHTS: 0.0}.items():
        steps.append({"step": name, "before": level, "after": left})
        level = left
    if abs(steps[0]["before"] - steps[0]["after"]) < 1e-9:
        steps = steps[1:]  # the kernels are exact
    errors = {
        row["layer"]: {
            "device_err": row["device_err"],
            "exact_err": row["exact_err"],
            "damage": damage.get(row["layer"]),
        }
        for row in rows
    }
    largest = sorted(steps, key=lambda s: s["after"] - s["before"])[:3]
    said = [
        f"{LABELS[s['step']][0]} {percent((s['before'] - s['after']) / start)}"
        for s in largest
        if start > 0 and s["before"] > s["after"]
    ]
    text = f"where the loss comes from: {', '.join(said) or 'nothing that could be measured'}"
    figures = {"start": start, "steps": steps, "sensitive": list(sensitive), "layers": errors}
    return finding(CAUSE, text, [], figures)


def sensitive_layers(findings: Sequence[Json]) -> list[str]:
    """Return the layers that the finding `sensitive` names; empty where none stands out."""
    return [n for f in findings if f["figures"]["cause"] == SENSITIVE for n in f["layers"]]

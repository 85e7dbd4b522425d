"""Findings on weights and their arithmetic: saturating kernels, ranges, biases. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqto.devices.saturation import SATURATES, UNKNOWN
from seqto.diagnosis.finding import (
    count_layers,
    finding,
    layer_name,
    number_of_layers,
    of_damage,
    picked,
    share_of_damage,
)
from seqto.diagnosis.measure_layers import OFF_SHARE
from seqto.records import Json
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import U8, Arithmetic
from seqto.text import percent

# One bit, three times. A layer is named for its ranges when a typical channel has lost a bit to
# the largest one, and when the layer's error halves with a scale for each channel.
SPREAD = 2.0
HALVED = 0.5

# A bias costs something when the layer's error is a tenth larger than with a float bias.
BIAS_COST = 1.1


def saturation(
    rows: Sequence[Json], whole: Mapping[str, Json], products: Json, *, flags: Sequence[str]
) -> Json:
    hit = [r for r in rows if r["off_share"] >= OFF_SHARE and not _overflows(r)]
    hit.sort(key=lambda r: r["exact_err"] ** 2 - r["device_err"] ** 2)
    names = [r["layer"] for r in hit]
    figures: Json = {
        "cpu_flags": list(flags),
        "int8_products": products.get("result", UNKNOWN),
        "layers": {
            r["layer"]: picked(
                r, "device_err exact_err off_share u8_device_err p8_device_err s7_device_err"
            )
            for r in hit
        },
        "damage": {k: v for k, v in whole.items() if k in ("planned", "u8", "p8", "s7")},
    }
    if not hit:
        text = "saturating kernels: 0 layers (device and exact arithmetic agree within a step)"
        return finding("saturation", text, [], figures)
    worst = hit[0]
    # proof of the cause: one bit less in the weights leaves room for the sum of two products,
    # and the difference is gone
    cured = [r for r in hit if r.get("s7_off_share", 1.0) < OFF_SHARE]
    proven = 2 * len(cured) > len(hit)
    figures["gone_with_s7"] = len(cured)
    where = "on this device"
    if products.get("result") == SATURATES:
        where = "on this device, which adds int8 products in 16 bits"
    what = f"saturating {_products(hit)} kernels {where}"
    if not proven:
        what = "this device's kernels differ from exact arithmetic"
    text = (
        f"{what}: {count_layers(hit)} (largest: {layer_name(worst)}, error "
        f"{percent(worst['exact_err'])} → {percent(worst['device_err'])} of its output)"
    )
    if proven:
        text += _saturation_cure(worst, len(cured), len(hit))
    return finding("saturation", text, names, figures)


def _saturation_cure(worst: Json, cured: int, hit: int) -> str:
    parts = [
        f"{kind} weights ({percent(worst[f'{kind}_device_err'])})"
        for kind in ("u8", "p8", "s7")
        if f"{kind}_device_err" in worst
    ]
    return (
        f"; with one bit less in the weights device and exact arithmetic agree in {cured} of "
        f"{hit}; cure: {', '.join(parts)}, or a CPU with VNNI or an ARM one"
    )


def _products(rows: Sequence[Json]) -> str:
    """Return 'u8×s8': the types that are multiplied, activation first."""
    products = []
    for row in rows:
        scheme = Scheme.parse(row["scheme"])
        if scheme.arithmetic is not Arithmetic.FLOAT and scheme.weight is not None:
            products.append(f"{scheme.activation or U8}×{scheme.weight}")
    return max(set(products), key=products.count) if products else "integer"


def ranges(rows: Sequence[Json], whole: Mapping[str, Json], damage: Mapping[str, float]) -> Json:
    tensorwise = [r for r in rows if "channel_err" in r]
    hit = [
        r
        for r in tensorwise
        if r["channel_spread"] >= SPREAD and r["channel_err"] < HALVED * r["exact_err"]
    ]
    hit.sort(key=lambda r: r["channel_err"] ** 2 - r["exact_err"] ** 2)
    names = [r["layer"] for r in hit]
    figures: Json = {
        "layers": {r["layer"]: picked(r, "channel_spread exact_err channel_err") for r in hit},
        "damage": {k: v for k, v in whole.items() if k in ("planned", "channel")},
        "share_of_damage": share_of_damage(names, damage),
    }
    if not tensorwise:
        text = "per-tensor weight ranges: 0 layers (every weight has a scale a channel)"
        return finding("ranges", text, [], figures)
    if not hit:
        text = "per-tensor weight ranges: 0 layers (a scale a channel would not halve any error)"
        return finding("ranges", text, [], figures)
    fold = max(r["channel_spread"] for r in hit)
    text = (
        f"per-tensor weight ranges differ {fold:.0f}-fold (largest channel against the median "
        f"one): {count_layers(hit)}{of_damage(figures)} (largest: {layer_name(hit[0])}, error "
        f"{percent(hit[0]['exact_err'])} → {percent(hit[0]['channel_err'])} with a scale a "
        "channel); cure: per_channel, or the equalize transform"
    )
    catch = [r["layer"] for r in tensorwise if r.get("channel_off_share", 0.0) >= OFF_SHARE]
    figures["saturating_per_channel"] = catch
    if catch:
        text += (
            f"; per channel {number_of_layers(len(catch))} would saturate on this device with s8 "
            "weights: take u8 or p8"
        )
    return finding("ranges", text, names, figures)


def bias(rows: Sequence[Json]) -> Json:
    troubled = [r for r in rows if "bias" in r]
    saturated = [r for r in troubled if r["bias"]["saturated"] or _overflows(r)]
    raised = [r for r in troubled if r["bias"]["raised_scales"]]
    costly = [r for r in raised if r["exact_err"] > BIAS_COST * r["bias_float_err"]]
    named = _unlike(saturated, costly)
    measured = "device_err exact_err bias_float_device_err bias_float_err bias_held_device_err"
    figures: Json = {
        "layers": {r["layer"]: {**r["bias"], **picked(r, measured)} for r in troubled},
        "saturated_values": sum(r["bias"]["saturated_without_adjustment"] for r in saturated),
        "overflowing_on_device": [r["layer"] for r in saturated if _overflows(r)],
        "raised_scales": sum(r["bias"]["raised_scales"] for r in raised),
        "tiny_weights": sum(r["bias"]["tiny_weights"] for r in named),
    }
    text = f"bias saturates: {count_layers(saturated)}"
    if saturated:
        count = figures["saturated_values"]
        text += f", {count} value{'' if count == 1 else 's'}"
    if any(r["bias"]["float"] for r in saturated):
        text += ", though it is float: this device makes it int32 when it loads the model"
    elif figures["overflowing_on_device"]:
        text += f", and on this device {len(figures['overflowing_on_device'])} of them overflow"
    if raised:
        cost = f"precision in {len(costly)}" if costly else "no precision"
        text += (
            f"; weight scales were raised to hold it in {count_layers(raised)}, which costs {cost}"
        )
    if named:
        text += _bias_cure(named, figures["tiny_weights"])
    return finding("bias", text, [r["layer"] for r in named], figures)


def _bias_cure(named: Sequence[Json], tiny: int) -> str:
    """Return only what was measured to help on this device: some make a float bias int32 again."""
    ways = {
        "bias_float_device_err": "a float bias",
        "bias_held_device_err": "s7 weights, whose scales are raised to hold it",
    }
    worst = max(named, key=lambda r: r["device_err"] ** 2 - min(r[w] for w in ways) ** 2)
    helping = [
        f"{what} ({percent(worst[way])})"
        for way, what in ways.items()
        if worst["device_err"] > BIAS_COST * worst[way]
    ]
    if tiny:
        helping.append(f"the denormals transform ({tiny:,} weights are below 1e-7)")
    cure = f"; cure: {', or '.join(helping)}" if helping else ""
    return f" (largest: {layer_name(worst)}, error {percent(worst['device_err'])}){cure}"


def _overflows(row: Json) -> bool:
    """Return whether scales raised to hold the bias end a gap between device and exact sums."""
    needs_room = row.get("bias", {}).get("saturated_without_adjustment", 0) > 0
    off = row["off_share"] >= OFF_SHARE
    return (
        bool(needs_room and off and row["bias_held_off_share"] < OFF_SHARE)
        and not (row["bias"]["raised_scales"])
    )


def _unlike(*groups: Sequence[Json]) -> list[Json]:
    """Return all rows once, in order."""
    by_layer = {r["layer"]: r for rows in groups for r in rows}
    return list(by_layer.values())

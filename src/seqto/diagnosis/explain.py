"""From figures to findings: which cause, how many layers, what helps. Pure.

    output       how far the model's output moves, on the device and in exact arithmetic
    saturation   the device's kernels give other results than exact arithmetic
    ranges       one scale for a whole weight whose channels have different ranges
    bias         int32 biases that saturate, or that cost the weights their precision
    joins        a Concat that puts tensors of unlike ranges on one scale; said where there is one
    outliers     few large activations take the range from all others
    sensitive    layers that do much damage though nothing is wrong with them
    slower       layers that are slower as integers than as floats

Models with attention have more causes (explain_attention.py).

A cause that was looked for and not found is said too ("bias saturates: 0 layers").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqto.devices.saturation import SATURATES, UNKNOWN
from seqto.diagnosis.explain_attention import attention_findings
from seqto.diagnosis.finding import finding
from seqto.diagnosis.measure_layers import OFF_SHARE
from seqto.records import Json
from seqto.schemes.scheme import Scheme
from seqto.schemes.types import FLOAT_KERNEL, U8, Arithmetic, Kernel
from seqto.tasks.task import RELATIVE_ERROR
from seqto.text import percent, shorten

# One bit, three times. A layer is named for its ranges when a typical channel has lost a bit to
# the largest one, and when the layer's error halves with a scale for each channel.
SPREAD = 2.0


HALVED = 0.5


# Clipping pays when it takes a quarter of the error: less is within what few samples can tell.
CLIPPING = 0.75


# A bias costs something when the layer's error is a tenth larger than with a float bias.
BIAS_COST = 1.1


# Layers stand out when few of them make half of the damage: a quarter of the layers at most.
HALF, FEW = 0.5, 0.25


# A layer counts as slower when it takes a tenth longer and a hundredth of the model's time.
SLOWER, WORTH = 1.1, 0.01


PLANNED = "planned"  # the profile of a plan with one scheme for all layers


HALF_AS_MUCH_AGAIN = 1.5  # nearer figures of few samples are not told apart


def findings(measured: Mapping[str, Json], *, profiles: Sequence[Json] = ()) -> list[Json]:
    """Pure: what the parts of measure.py have measured → finding events."""
    found: list[Json] = []
    whole = measured.get("whole", {}).get("whole", {})
    if whole:
        word, joins = measured["whole"].get("changed"), measured["whole"].get("joins")
        found.append(_output(whole, measured["whole"]["samples"], word))
        found += [_joins(joins, whole, word)] if joins else []
    damage: Mapping[str, float] = measured.get("damage", {}).get("damage", {})
    if "layers" in measured:
        rows = measured["layers"]["rows"]
        products = measured.get("int8_products", {})
        flags = measured["layers"]["cpu_flags"]
        found.append(_saturation(rows, whole, products, flags=flags))
        found.append(_ranges(rows, whole, damage))
        found.append(_bias(rows))
        found.append(_outliers(rows, whole))
        if damage:
            found.append(_sensitive(rows, damage, measured["damage"]["samples"]))
    found += attention_findings(measured.get("attention", {}))
    slower = _slower(profiles)
    return [*found, *([slower] if slower else [])]


def _output(whole: Mapping[str, Json], samples: int, word: str | None) -> Json:
    planned = whole["planned"]
    text = (
        f"output: quantized as planned, {_changed(planned, word)}its error is "
        f"{percent(planned['device'])} of the outputs' variance on this device and "
        f"{percent(planned['exact'])} in exact arithmetic "
        f"({samples} samples)"
    )
    better = [f"{_CURES[name]} {_both(row)}" for name, row in whole.items() if name in _CURES]
    if better:
        text += "; " + ", ".join(better)
    return finding("output", text, [], {"samples": samples, "damage": dict(whole)})


def _changed(row: Json, word: str | None) -> str:
    """'12 % of boxes change, ': the loss in the task's words, where the task was at hand."""
    if row.get("changed") is None:
        return ""
    what = RELATIVE_ERROR if word == RELATIVE_ERROR else f"of {word or 'answers'} change"
    return f"{percent(row['changed'])} {what}, "


def _joins(joins: Sequence[Json], whole: Mapping[str, Json], word: str | None) -> Json:
    """Layers that join unlike ranges, with the ranges, and what keeping them float gives."""
    worst = joins[0]
    inputs = " and ".join(f"{low:.3g} to {high:.3g}" for low, high in worst["ranges"][:4])
    steps = "less than one" if worst["steps"] < 1 else f"{worst['steps']:.0f}"
    count = "1 layer puts" if len(joins) == 1 else f"{len(joins)} layers put"
    text = (
        f"joins: {count} tensors of unlike ranges on one scale: "
        f"{shorten(worst['layer'], 60)} joins {inputs}, "
        f"the scale's step is {worst['step']:.2g}, and {steps} of its 256 steps "
        f"{'is' if worst['steps'] < 2 else 'are'} left for the narrowest"
    )
    cured = whole.get("joins", {})
    if "device" in cured:
        before = whole["planned"]["device"]
        text += (
            f"; kept float (quantize.exclude), {_changed(cured, word)}the output's error is "
            f"{percent(cured['device'])} instead of {percent(before)}"
        )
    names = [str(row["layer"]) for row in joins]
    return finding("joins", text, names, {"joins": list(joins), "cured": dict(cured)})


_CURES = {
    "channel": "per channel",
    "u8": "per channel with u8 weights",
    "p8": "per channel with p8 weights",
    "s7": "per channel with s7 weights",
    "mse": "with mse ranges",
}


def _both(row: Json) -> str:
    if "error" in row:
        return "cannot be run"
    if max(row["device"], row["exact"]) < HALF_AS_MUCH_AGAIN * min(row["device"], row["exact"]):
        return percent(row["device"])
    return f"{percent(row['device'])} ({percent(row['exact'])} exact)"


def _saturation(
    rows: Sequence[Json], whole: Mapping[str, Json], products: Json, *, flags: Sequence[str]
) -> Json:
    hit = [r for r in rows if r["off_share"] >= OFF_SHARE and not _overflows(r)]
    hit.sort(key=lambda r: r["exact_err"] ** 2 - r["device_err"] ** 2)
    names = [r["layer"] for r in hit]
    figures: Json = {
        "cpu_flags": list(flags),
        "int8_products": products.get("result", UNKNOWN),
        "layers": {
            r["layer"]: _picked(
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
        f"{what}: {_count(hit)} (largest: {_name(worst)}, error {percent(worst['exact_err'])} → "
        f"{percent(worst['device_err'])} of its output)"
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
    """'u8×s8': the types that are multiplied, activation first."""
    found = []
    for row in rows:
        scheme = Scheme.parse(row["scheme"])
        if scheme.arithmetic is not Arithmetic.FLOAT and scheme.weight is not None:
            found.append(f"{scheme.activation or U8}×{scheme.weight}")
    return max(set(found), key=found.count) if found else "integer"


def _ranges(rows: Sequence[Json], whole: Mapping[str, Json], damage: Mapping[str, float]) -> Json:
    tensorwise = [r for r in rows if "channel_err" in r]
    hit = [
        r
        for r in tensorwise
        if r["channel_spread"] >= SPREAD and r["channel_err"] < HALVED * r["exact_err"]
    ]
    hit.sort(key=lambda r: r["channel_err"] ** 2 - r["exact_err"] ** 2)
    names = [r["layer"] for r in hit]
    figures: Json = {
        "layers": {r["layer"]: _picked(r, "channel_spread exact_err channel_err") for r in hit},
        "damage": {k: v for k, v in whole.items() if k in ("planned", "channel")},
        "share_of_damage": _share(names, damage),
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
        f"one): {_count(hit)}{_of_damage(figures)} (largest: {_name(hit[0])}, error "
        f"{percent(hit[0]['exact_err'])} → {percent(hit[0]['channel_err'])} with a scale a "
        "channel); cure: per_channel, or the equalize transform"
    )
    catch = [r["layer"] for r in tensorwise if r.get("channel_off_share", 0.0) >= OFF_SHARE]
    figures["saturating_per_channel"] = catch
    if catch:
        text += (
            f"; per channel {_number(len(catch))} would saturate on this device with s8 weights: "
            "take u8 or p8"
        )
    return finding("ranges", text, names, figures)


def _bias(rows: Sequence[Json]) -> Json:
    troubled = [r for r in rows if "bias" in r]
    saturated = [r for r in troubled if r["bias"]["saturated"] or _overflows(r)]
    raised = [r for r in troubled if r["bias"]["raised_scales"]]
    costly = [r for r in raised if r["exact_err"] > BIAS_COST * r["bias_float_err"]]
    named = _unlike(saturated, costly)
    measured = "device_err exact_err bias_float_device_err bias_float_err bias_held_device_err"
    figures: Json = {
        "layers": {r["layer"]: {**r["bias"], **_picked(r, measured)} for r in troubled},
        "saturated_values": sum(r["bias"]["saturated_without_adjustment"] for r in saturated),
        "overflowing_on_device": [r["layer"] for r in saturated if _overflows(r)],
        "raised_scales": sum(r["bias"]["raised_scales"] for r in raised),
        "tiny_weights": sum(r["bias"]["tiny_weights"] for r in named),
    }
    text = f"bias saturates: {_count(saturated)}"
    if saturated:
        count = figures["saturated_values"]
        text += f", {count} value{'' if count == 1 else 's'}"
    if any(r["bias"]["float"] for r in saturated):
        text += ", though it is float: this device makes it int32 when it loads the model"
    elif figures["overflowing_on_device"]:
        text += f", and on this device {len(figures['overflowing_on_device'])} of them overflow"
    if raised:
        cost = f"precision in {len(costly)}" if costly else "no precision"
        text += f"; weight scales were raised to hold it in {_count(raised)}, which costs {cost}"
    if named:
        text += _bias_cure(named, figures["tiny_weights"])
    return finding("bias", text, [r["layer"] for r in named], figures)


def _bias_cure(named: Sequence[Json], tiny: int) -> str:
    """Only what was measured to help on this device: some make a float bias int32 again."""
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
    return f" (largest: {_name(worst)}, error {percent(worst['device_err'])}){cure}"


def _overflows(row: Json) -> bool:
    """Device and exact arithmetic differ, and no longer when scales are raised to hold the bias."""
    needs_room = row.get("bias", {}).get("saturated_without_adjustment", 0) > 0
    off = row["off_share"] >= OFF_SHARE
    return (
        bool(needs_room and off and row["bias_held_off_share"] < OFF_SHARE)
        and not (row["bias"]["raised_scales"])
    )


def _outliers(rows: Sequence[Json], whole: Mapping[str, Json]) -> Json:
    hit = sorted(
        (r for r in rows if "outlier_ratio" in r), key=lambda r: r["outlier_ratio"], reverse=True
    )
    helped = [r for r in hit if _clipped(r) < CLIPPING * r["exact_err"]]
    figures = {
        "layers": {
            r["layer"]: _picked(r, "outlier_ratio exact_err percentile_err mse_err") for r in hit
        },
        "helped_by_clipping": [r["layer"] for r in helped],
        "damage": {k: v for k, v in whole.items() if k in ("planned", "mse")},
    }
    text = f"activation outliers: {_count(hit)}"
    if hit:
        worst = hit[0]
        text += (
            f" (largest: {_name(worst)}, 0.01 % of the values take {worst['outlier_ratio']:.1f} "
            "times the range of the rest)"
        )
    if helped:
        best = min(helped, key=lambda r: _clipped(r) ** 2 - r["exact_err"] ** 2)
        by = "mse" if best["mse_err"] <= best["percentile_err"] else "percentile"
        text += (
            f"; clipping lowers the error of {len(helped)} (most: {_name(best)}, "
            f"{percent(best['exact_err'])} → {percent(_clipped(best))} with {by} ranges); "
            f"cure: ranges = {by}"
        )
    elif hit:
        text += "; clipping them costs as much as it brings; cure: the smooth transform"
    return finding("outliers", text, [r["layer"] for r in hit], figures)


def _clipped(row: Json) -> float:
    return float(min(row["mse_err"], row["percentile_err"]))


def _sensitive(rows: Sequence[Json], damage: Mapping[str, float], samples: int) -> Json:
    order = sorted(damage, key=lambda n: -damage[n])
    total = sum(damage.values())
    chosen: list[str] = []
    for name in order:
        if sum(damage[n] for n in chosen) >= HALF * total:
            break
        chosen.append(name)
    weights = {r["layer"]: r["parameters"] for r in rows}
    figures = {
        "samples": samples,
        "damage": {n: damage[n] for n in order},
        "parameters": sum(weights.get(n, 0) for n in chosen),
        "share_of_damage": _share(chosen, damage),
    }
    if not total or len(chosen) > max(1, FEW * len(order)):
        text = (
            "sensitive layers: 0 stand out (half of the damage comes from "
            f"{len(chosen)} of {len(order)} layers)"
        )
        return finding("sensitive", text, [], figures)
    verb = "makes" if len(chosen) == 1 else "make"
    text = (
        f"sensitive: {len(chosen)} of {len(order)} layers {verb} half of the damage at the output, "
        f"with {figures['parameters']:,} parameters (largest: {shorten(order[0], 60)}, alone "
        f"{percent(damage[order[0]])} of the outputs' variance, in exact arithmetic); cure: keep "
        "them float, or give them a finer scheme"
    )
    return finding("sensitive", text, chosen, figures)


def _is_integer_profile(name: str) -> bool:
    kernel = Kernel.named(name)
    return name == PLANNED or (kernel is not None and kernel != FLOAT_KERNEL)


def _slower(profiles: Sequence[Json]) -> Json | None:
    """Layers that take longer as integers, where kernel times are known for both.

    Only uniform plans tell: a float layer of a mixed trial may be slower for what is around it.
    """
    floats = next((p["layers_ms"] for p in profiles if p["scheme"] in ("float", "fp32")), None)
    others = [p for p in profiles if _is_integer_profile(p["scheme"])]
    if not floats or not others:
        return None
    total = sum(floats.values())
    slow: dict[str, Json] = {}
    for profile in others:
        for name, ms in profile["layers_ms"].items():
            was = floats.get(name, 0.0)
            if name not in profile.get("integer_layers", floats):
                continue  # float in this plan too
            if name and ms > SLOWER * was and ms - was >= WORTH * total:
                known = slow.get(name)
                if known is None or ms - was > known["ms"] - known["float_ms"]:
                    slow[name] = {"float_ms": was, "ms": ms, "scheme": profile["scheme"]}
    names = sorted(slow, key=lambda n: slow[n]["float_ms"] - slow[n]["ms"])
    text = f"slower as integers than as floats: {_number(len(names))}"
    if names:
        worst = slow[names[0]]
        text += (
            f" (largest: {shorten(names[0], 60)}, {worst['float_ms']:.2g} → {worst['ms']:.2g} ms "
            f"as {worst['scheme']}); cure: keep them float or weight-only"
        )
    return finding("slower", text, names, {"layers": slow, "float_ms": total})


# ------------------------------------------------------------------------------------- wording


def _count(rows: Sequence[Json]) -> str:
    return _number(len(rows))


def _number(count: int) -> str:
    return "1 layer" if count == 1 else f"{count} layers"


def _name(row: Json) -> str:
    return shorten(row["layer"], 60)  # a stranger's text


def _picked(row: Json, keys: str) -> Json:
    return {k: row[k] for k in keys.split() if k in row}


def _unlike(*groups: Sequence[Json]) -> list[Json]:
    """All rows once, in order."""
    by_layer = {r["layer"]: r for rows in groups for r in rows}
    return list(by_layer.values())


def _share(names: Sequence[str], damage: Mapping[str, float]) -> float | None:
    total = sum(damage.values())
    return sum(damage.get(n, 0.0) for n in names) / total if total else None


def _of_damage(figures: Json) -> str:
    share = figures["share_of_damage"]
    return "" if share is None else f" with {share * 100:.0f} % of the damage at the output"

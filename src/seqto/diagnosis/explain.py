"""From figures to findings: which cause, how many layers, what helps. Pure.

    output       how far the model's output moves, on the device and in exact arithmetic
    saturation   the device's kernels give other results than exact arithmetic
    ranges       one scale for a whole weight whose channels have different ranges
    bias         int32 biases that saturate, or that cost the weights their precision
    joins        a Concat that puts tensors of unlike ranges on one scale; said where there is one
    outliers     few large activations take the range from all others
    sensitive    layers that do much damage though nothing is wrong with them
    slower       layers that are slower as integers than as floats

Saturation, ranges and bias are explained in explain_weights.py, the causes of models with
attention in explain_attention.py.

A cause that was looked for and not found is said too ("bias saturates: 0 layers").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seqto.diagnosis.explain_attention import attention_findings
from seqto.diagnosis.explain_weights import bias, ranges, saturation
from seqto.diagnosis.finding import (
    count_layers,
    finding,
    layer_name,
    number_of_layers,
    picked,
    share_of_damage,
)
from seqto.records import Json
from seqto.schemes.types import FLOAT_KERNEL, Kernel
from seqto.tasks.task import RELATIVE_ERROR
from seqto.text import percent, shorten

# Clipping pays when it takes a quarter of the error: less is within what few samples can tell.
CLIPPING = 0.75
# Layers stand out when few of them make half of the damage: a quarter of the layers at most.
HALF, FEW = 0.5, 0.25


# A layer counts as slower when it takes a tenth longer and a hundredth of the model's time.
SLOWER, WORTH = 1.1, 0.01


PLANNED = "planned"  # the profile of a plan with one scheme for all layers
HALF_AS_MUCH_AGAIN = 1.5  # nearer figures of few samples are not told apart


def findings(measured: Mapping[str, Json], *, profiles: Sequence[Json] = ()) -> list[Json]:
    """Return finding events for what the parts of measure.py have measured; pure."""
    events: list[Json] = []
    whole = measured.get("whole", {}).get("whole", {})
    if whole:
        word, joins = measured["whole"].get("changed"), measured["whole"].get("joins")
        events.append(_output(whole, measured["whole"]["samples"], word))
        events += [_joins(joins, whole, word)] if joins else []
    damage: Mapping[str, float] = measured.get("damage", {}).get("damage", {})
    if "layers" in measured:
        rows = measured["layers"]["rows"]
        products = measured.get("int8_products", {})
        flags = measured["layers"]["cpu_flags"]
        events.append(saturation(rows, whole, products, flags=flags))
        events.append(ranges(rows, whole, damage))
        events.append(bias(rows))
        events.append(_outliers(rows, whole))
        if damage:
            events.append(_sensitive(rows, damage, measured["damage"]["samples"]))
    events += attention_findings(measured.get("attention", {}))
    slower = _slower(profiles)
    return [*events, *([slower] if slower else [])]


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
    """Return '12 % of boxes change, ': the loss in the task's words, where the task was at hand."""
    if row.get("changed") is None:
        return ""
    what = RELATIVE_ERROR if word == RELATIVE_ERROR else f"of {word or 'answers'} change"
    return f"{percent(row['changed'])} {what}, "


def _joins(joins: Sequence[Json], whole: Mapping[str, Json], word: str | None) -> Json:
    """Return layers that join unlike ranges, the ranges, and what keeping them float gives."""
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


def _outliers(rows: Sequence[Json], whole: Mapping[str, Json]) -> Json:
    hit = sorted(
        (r for r in rows if "outlier_ratio" in r), key=lambda r: r["outlier_ratio"], reverse=True
    )
    helped = [r for r in hit if _clipped(r) < CLIPPING * r["exact_err"]]
    figures = {
        "layers": {
            r["layer"]: picked(r, "outlier_ratio exact_err percentile_err mse_err") for r in hit
        },
        "helped_by_clipping": [r["layer"] for r in helped],
        "damage": {k: v for k, v in whole.items() if k in ("planned", "mse")},
    }
    text = f"activation outliers: {count_layers(hit)}"
    if hit:
        worst = hit[0]
        text += (
            f" (largest: {layer_name(worst)}, 0.01 % of the values take "
            f"{worst['outlier_ratio']:.1f} times the range of the rest)"
        )
    if helped:
        best = min(helped, key=lambda r: _clipped(r) ** 2 - r["exact_err"] ** 2)
        by = "mse" if best["mse_err"] <= best["percentile_err"] else "percentile"
        text += (
            f"; clipping lowers the error of {len(helped)} (most: {layer_name(best)}, "
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
        "share_of_damage": share_of_damage(chosen, damage),
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
    """Return the layers that take longer as integers, where kernel times are known for both.

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
    text = f"slower as integers than as floats: {number_of_layers(len(names))}"
    if names:
        worst = slow[names[0]]
        text += (
            f" (largest: {shorten(names[0], 60)}, {worst['float_ms']:.2g} → {worst['ms']:.2g} ms "
            f"as {worst['scheme']}); cure: keep them float or weight-only"
        )
    return finding("slower", text, names, {"layers": slow, "float_ms": total})

"""Which schemes each layer may have on this device, under these constraints, and why not others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqto.devices.device import Device
from seqto.errors import ConfigError, PlanError, nearest
from seqto.model.layers import OUTPUT_OP
from seqto.records import Json, Layer
from seqto.schemes.limits import unfit
from seqto.schemes.scheme import Scheme

# what `frontier` may choose from, by a layer's kind; a device and constraints narrow it
WEIGHTED = (
    "fp16",
    "weight-s8-channel-round-output",
    "weight-s8-channel",
    "static-u8-u8-channel-bias-float-round-output",
    "static-u8-u8-channel-bias-float",
    "static-s8-u8-channel-bias-float-round-output",
    "static-s8-u8-channel-bias-float",
    "static-p8-u8-channel-bias-float-round-output",
    "static-s7-u8-channel-bias-float",
    "static-s4-u8-channel-bias-float-round-output",
    "weight-s4-channel-round-output",
)


DENSE_ONLY = ("dynamic-s8-channel",)


WEIGHTLESS = ("static-u8",)


FOUR_BIT_SHARE = 0.002  # of the file: below this four bits save nothing worth a try


SKIPS = ("depthwise", "first", "last")


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the target can take, for targets that are not here."""

    integer_only: bool = False  # every layer that has weights must be static, bias int32
    per_channel: bool = True
    bits: tuple[int, ...] = (4, 8, 16, 32)
    ops: tuple[str, ...] = ()  # op types that may be quantized; empty = all
    max_opset: int | None = None

    def against(self, layer: Layer, scheme: Scheme) -> str | None:
        """Why the target cannot take this layer so."""
        if self.integer_only and layer.weight and scheme.kind != "static":
            return "the target is integer-only"
        if self.integer_only and scheme.bias == "float":
            return "the target is integer-only: the bias must be int32"
        if not self.per_channel and scheme.granularity not in ("", "tensor"):
            return "the target has no per-channel scales"
        if self.ops and not scheme.is_float and layer.op_type not in (*self.ops, OUTPUT_OP):
            return f"the target quantizes {', '.join(self.ops)} only"
        for bits in bits_of(scheme):
            if bits not in self.bits:
                allowed = ", ".join(str(b) for b in self.bits)
                return f"the target has no {bits}-bit numbers (it has {allowed})"
        return None


def bits_of(scheme: Scheme) -> tuple[int, ...]:
    by_type = {"s8": 8, "u8": 8, "s7": 8, "p8": 8, "s4": 4, "u16": 16, "s16": 16}
    if scheme.kind == "fp16":
        return (16,)
    found = [by_type[t] for t in (scheme.weight, scheme.activation) if t]
    return tuple(found)


def default_schemes(
    layers: Sequence[Layer],
    *,
    mode: str,
    weight: str,
    activation: str,
    granularity: str,
    bias: str = "s32",
    ranges: str = "minmax",
) -> dict[str, str]:
    """The scheme that `mode` gives each layer: the fully quantized model of the papers."""
    if mode not in ("static", "dynamic", "weight"):
        raise ConfigError(f"mode {mode!r} is none of static, dynamic, weight")
    chosen: dict[str, str] = {}
    for layer in layers:
        if mode == "static":
            scheme = Scheme(
                "static",
                weight if layer.weight else "",
                activation,
                granularity if layer.weight else "",
                bias if layer.weight else "",
                ranges,
            )
        else:
            scheme = Scheme(mode, weight, granularity=granularity)
            if unfit(layer, scheme):
                continue
        chosen[layer.name] = str(scheme)
    return chosen


def full_menu(
    layers: Sequence[Layer],
    device: Device,
    constraints: Constraints,
    *,
    weight_bytes: Mapping[str, int],
    extra: Sequence[str] = (),
    only: Sequence[str] = (),
    roundable: frozenset[str] = frozenset(),
    timed: bool = True,
) -> tuple[dict[str, tuple[str, ...]], list[Json]]:
    """Layer → codes it may have, and for each refusal {code, reason, layers}.

    Where nobody asks for time (`timed`), integer kernels are left out: what is only stored as
    integers takes the same bytes and does less damage. A menu that is asked for stays as it is.
    """
    total = max(1, sum(weight_bytes.values()))
    menu: dict[str, tuple[str, ...]] = {}
    refusals: dict[tuple[str, str], list[str]] = {}
    for layer in layers:
        codes = _candidates(layer, constraints, extra=extra, only=only)
        kept = ["fp32"]
        for code in codes:
            scheme = Scheme.parse(code)
            reason = (
                unfit(layer, scheme, max_opset=constraints.max_opset)
                or constraints.against(layer, scheme)
                or device.refuses(layer, scheme)
            )
            if reason:
                refusals.setdefault((code, reason), []).append(layer.name)
                continue
            saved = weight_bytes.get(layer.name, 0) / 8 / total
            tiny = scheme.weight == "s4" and (saved < FOUR_BIT_SHARE or layer.depthwise)
            unknown = scheme.rounding == "output" and layer.name not in roundable
            # rounding for the output falls back to the nearest where it does not help on held-out
            # samples: it leaves no room for the plain sibling; nor p8, as fast and finer, for s7
            finer = {f"{c}-round-output" for c in (code, code.replace("-s7-", "-p8-"))}
            if not tiny and not unknown and not finer & set(kept):
                kept.append(code)
        if constraints.integer_only and layer.weight and len(kept) > 1:
            kept.remove("fp32")
        menu[layer.name] = tuple(kept)
    rows = [
        {"code": code, "reason": reason, "layers": names}
        for (code, reason), names in refusals.items()
    ]
    if not timed and not only:
        smaller = _stored_only(layers, menu)
        gone = [x.name for x in layers if smaller[x.name] != menu[x.name]]
        if gone:
            reason = "time is no objective, and weight-only schemes take no more bytes"
            rows.append({"code": "an integer kernel", "reason": reason, "layers": gone})
        menu = smaller
    return menu, rows


def _stored_only(
    layers: Sequence[Layer], menu: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The menu without static and dynamic schemes, where weight-only ones are on it."""
    kept: dict[str, tuple[str, ...]] = {}
    for layer in layers:
        codes = menu[layer.name]
        if any(c.startswith("weight-s8") for c in codes):
            codes = tuple(c for c in codes if not c.startswith(("static", "dynamic")))
        kept[layer.name] = codes
    if any(c.startswith("static") for x in layers if x.weight for c in kept[x.name]):
        return kept
    return {
        x.name: kept[x.name] if x.weight else tuple(c for c in kept[x.name] if c == "fp32")
        for x in layers
    }


def _candidates(
    layer: Layer, constraints: Constraints, *, extra: Sequence[str], only: Sequence[str]
) -> list[str]:
    fits_kind = [c for c in (*extra, *only) if bool(Scheme.parse(c).weight) == bool(layer.weight)]
    if only:
        return fits_kind if layer.weight else [*fits_kind, *WEIGHTLESS]
    if not layer.weight:
        return list(dict.fromkeys([*WEIGHTLESS, *fits_kind]))
    codes = [*WEIGHTED, *fits_kind]
    if layer.op_type in ("Gemm", "MatMul"):
        codes += DENSE_ONLY
    if constraints.integer_only:
        codes = [c.replace("-bias-float", "") for c in codes]
    if not constraints.per_channel:
        codes = [c.replace("-channel", "-tensor") for c in codes if "-round-" not in c]
    return list(dict.fromkeys(codes))


def skipped(layers: Sequence[Layer], rules: Sequence[str]) -> list[str]:
    """Layers that practitioners' rules keep float: depthwise, first, last."""
    weighted = [layer for layer in layers if layer.weight]
    names: list[str] = []
    for rule in rules:
        if rule not in SKIPS:
            raise ConfigError(f"unknown skip rule {rule!r}{nearest(rule, SKIPS)}")
        if rule == "depthwise":
            names += [layer.name for layer in weighted if layer.depthwise]
        elif weighted:
            names.append(weighted[0 if rule == "first" else -1].name)
    return list(dict.fromkeys(names))


def resolve(layers: Sequence[Layer], names: Sequence[str]) -> list[str]:
    """Node or layer names → layers; a name that matches nothing is an error with near ones."""
    known = {n: layer.name for layer in layers for n in (layer.name, *layer.nodes)}
    found = []
    for name in names:
        if name not in known:
            raise PlanError(f"no node or layer {name!r} in the model{nearest(name, list(known))}")
        found.append(known[name])
    return list(dict.fromkeys(found))

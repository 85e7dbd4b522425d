"""Schemes that each layer may have on this device under these constraints, and why not others."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from seqto.errors import ConfigError, PlanError, nearest
from seqto.model.layers import OUTPUT_OP
from seqto.records import Layer
from seqto.schemes import table
from seqto.schemes.dynamic_int import DynamicInt
from seqto.schemes.scheme import FP32, Scheme, depends_on_batch, is_contrib, unfit
from seqto.schemes.static_int import StaticInt
from seqto.schemes.types import (
    INT4_OPSET,
    MINMAX,
    RANGES,
    S8,
    Arithmetic,
    IntType,
    Rounding,
)
from seqto.schemes.weight_only import WeightOnly
from seqto.search.offered import (
    WEIGHTED,
    WEIGHTLESS,
    has_attention,
    is_read8,
    offered,
    preferred,
    rounded_kind,
)

Choices = Mapping[str, tuple[Scheme, ...]]  # layer → schemes that it may have


class Refusing(Protocol):
    """A device, or several: the part of it that the menu is made for."""

    def refuses(self, layer: Layer, scheme: Scheme) -> str | None: ...


NARROW_SHARE = 0.002  # of the file: below this fewer than eight bits save nothing worth a try
NOT_PORTABLE = "its products may saturate on CPUs without VNNI, and constraints.portable is set"
SKIPS = ("depthwise", "first", "last")


@dataclass(frozen=True, slots=True)
class Constraints:
    """Limits of a target device that is not here."""

    integer_only: bool = False  # every layer that has weights must be static, bias int32
    per_channel: bool = True
    bits: tuple[int, ...] = (4, 8, 16, 32)
    ops: tuple[str, ...] = ()  # op types that may be quantized; empty = all
    max_opset: int | None = None
    contrib_ops: bool = False  # operators that only ONNX Runtime has
    batch_invariant: bool = False  # no answer may depend on what else is in the batch
    portable: bool = False  # no answer may depend on the width of the CPU's sums

    def against(self, layer: Layer, scheme: Scheme) -> str | None:
        """Return why the target cannot take this layer so, or None."""
        if not self.per_channel and scheme.weight is not None and scheme.per_channel:
            return "the target has no per-channel scales"
        if self.ops and not scheme.is_float and layer.op_type not in (*self.ops, OUTPUT_OP):
            return f"the target quantizes {', '.join(self.ops)} only"
        for bits in scheme.bits:
            if bits not in self.bits:
                allowed = ", ".join(str(b) for b in self.bits)
                return f"the target has no {bits}-bit numbers (it has {allowed})"
        return self._against_kernel(layer, scheme)

    def _against_kernel(self, layer: Layer, scheme: Scheme) -> str | None:
        if self.integer_only and layer.weight and scheme.arithmetic is not Arithmetic.INTEGER:
            return "the target is integer-only"
        if self.integer_only and isinstance(scheme, StaticInt) and scheme.float_bias:
            return "the target is integer-only: the bias must be int32"
        if is_contrib(scheme) and not self.contrib_ops:
            return "only ONNX Runtime has its operator: constraints.contrib_ops = true allows it"
        if self.batch_invariant and depends_on_batch(scheme):
            return "its range is taken over the whole batch, and constraints.batch_invariant is set"
        if self.portable and type_may_saturate(layer, scheme):
            return NOT_PORTABLE
        return None


def type_may_saturate(layer: Layer, scheme: Scheme) -> bool:
    """Return whether the types of a layer's factors let two products exceed 16 bits.

    Its weights may be such that none does (schemes/pairs.py), but then p8 is as fine.
    """
    eight_bits = scheme.activation is None or scheme.activation.bits == 8
    if scheme.arithmetic is Arithmetic.INTEGER and layer.op_type == "MatMul" and not layer.weight:
        return scheme.activation is S8
    if scheme.weight is not S8 or not eight_bits or layer.depthwise:
        return False
    if scheme.arithmetic is Arithmetic.DYNAMIC:
        return layer.op_type in ("MatMul", "Gemm")
    return scheme.arithmetic is Arithmetic.INTEGER and layer.op_type in ("Conv", "MatMul", "Gemm")


@dataclass(frozen=True, slots=True)
class NotOffered:
    """A scheme that some layers cannot have, and why."""

    what: str  # the scheme's code, or what schemes have in common
    reason: str
    layers: tuple[str, ...]

    @property
    def message(self) -> str:
        return f"{self.what} is not offered: {self.reason}"


def default_schemes(
    layers: Sequence[Layer],
    *,
    mode: str,
    weight: IntType,
    activation: IntType,
    per_channel: bool,
    float_bias: bool = False,
    ranges: str = MINMAX,
) -> dict[str, Scheme]:
    """Return the scheme that `mode` gives each layer: the fully quantized model of the papers."""
    by_mode: dict[str, tuple[Scheme, Scheme | None]] = {}  # with weights, and without
    if mode == "static":
        weighted = StaticInt(
            weight, activation, per_channel=per_channel, float_bias=float_bias, ranges=ranges
        )
        by_mode[mode] = weighted, StaticInt(None, activation, ranges=ranges)
    elif mode == "dynamic":
        by_mode[mode] = DynamicInt(weight, per_channel), None
    elif mode == "weight":
        by_mode[mode] = WeightOnly(weight, per_channel), None
    else:
        raise ConfigError(f"mode {mode!r} is none of static, dynamic, weight")
    chosen: dict[str, Scheme] = {}
    for layer in layers:
        scheme = by_mode[mode][0 if layer.weight else 1]
        # tables and constants have a scale a row
        options = [scheme, *_of_tables(scheme)] if table.is_table(layer) else [scheme]
        fitting = [s for s in options if s is not None and not unfit(layer, s)]
        if fitting:
            chosen[layer.name] = fitting[0]
    return chosen


def _of_tables(scheme: Scheme | None) -> list[Scheme]:
    if not isinstance(scheme, DynamicInt | WeightOnly):
        return []
    return [dataclasses.replace(scheme, per_channel=True), WeightOnly(S8)]


def all_choices(
    layers: Sequence[Layer],
    device: Refusing,
    constraints: Constraints,
    *,
    weight_bytes: Mapping[str, int],
    only: Sequence[Scheme] = (),
    roundable: Collection[tuple[str, str]] = (),
    read_tables: Collection[str] = (),
    timed: bool = True,
) -> tuple[dict[str, tuple[Scheme, ...]], list[NotOffered]]:
    """Return layer → schemes it may have, and what is not offered.

    Where nobody asks for time (`timed`), integer kernels are left out: what is only stored as
    integers takes the same bytes and does less damage. Schemes that are asked for (`only`) stay.
    Weights that cannot saturate (p8) are offered on every device: a file made of them gives the
    same answers on CPUs whose kernels add products in 16 bits. `read_tables`: layers of tables of
    which calibration reads few rows.
    """
    total = max(1, sum(weight_bytes.values()))
    attention = has_attention(layers)
    alike = _bytes_of_alike(layers, weight_bytes) if attention else weight_bytes
    choices: dict[str, tuple[Scheme, ...]] = {}
    refusals: dict[tuple[str, str], list[str]] = {}
    for layer in layers:
        allowed: list[Scheme] = [FP32]
        saved = alike.get(layer.name, 0) / 8 / total
        asked = offered(layer, attention=attention, timed=timed, contrib=constraints.contrib_ops)
        for scheme in _candidates(layer, constraints, asked, only=only):
            reason = (
                unfit(layer, scheme, max_opset=constraints.max_opset)
                or constraints.against(layer, scheme)
                or device.refuses(layer, scheme)
            )
            if reason:
                refusals.setdefault((str(scheme), reason), []).append(layer.name)
                continue
            narrow = scheme.weight is not None and scheme.weight.is_narrow
            tiny = narrow and (saved < NARROW_SHARE or layer.depthwise)
            kind = rounded_kind(scheme)
            unknown = kind is not None and (layer.name, kind) not in roundable
            unknown |= is_read8(scheme) and layer.name not in read_tables
            if not tiny and not unknown and not any(s in allowed for s in preferred(scheme)):
                allowed.append(scheme)
        if constraints.integer_only and layer.weight and len(allowed) > 1:
            allowed.remove(FP32)
        choices[layer.name] = tuple(allowed)
    rows = [NotOffered(code, why, tuple(names)) for (code, why), names in refusals.items()]
    if timed or only:
        return choices, rows
    stored = _stored_only(layers, choices)
    removed = tuple(x.name for x in layers if stored[x.name] != choices[x.name])
    if removed:
        reason = "time is no objective, and weight-only schemes take no more bytes"
        rows.append(NotOffered("an integer kernel", reason, removed))
    return stored, rows


def _bytes_of_alike(layers: Sequence[Layer], weight_bytes: Mapping[str, int]) -> dict[str, int]:
    """Return layer → bytes of all layers of its kind and shape.

    A transformer repeats its blocks: one of many small layers saves little, all of them much.
    """
    kinds: dict[tuple[str, tuple[int, ...]], int] = {}
    for layer in layers:
        kind = (layer.op_type, tuple(layer.weight_shape))
        kinds[kind] = kinds.get(kind, 0) + weight_bytes.get(layer.name, 0)
    return {x.name: kinds[(x.op_type, tuple(x.weight_shape))] for x in layers}


def _stored_only(layers: Sequence[Layer], choices: Choices) -> dict[str, tuple[Scheme, ...]]:
    """Return the choices without static and dynamic schemes, where there are weight-only ones."""
    stored: dict[str, tuple[Scheme, ...]] = {}
    for layer in layers:
        schemes = choices[layer.name]
        if any(isinstance(s, WeightOnly) and s.weight is S8 for s in schemes):
            schemes = tuple(s for s in schemes if s.arithmetic is Arithmetic.FLOAT)
        stored[layer.name] = schemes
    if any(s.arithmetic is Arithmetic.INTEGER for x in layers if x.weight for s in stored[x.name]):
        return stored
    return {
        x.name: stored[x.name] if x.weight else tuple(s for s in stored[x.name] if s == FP32)
        for x in layers
    }


def _candidates(
    layer: Layer, constraints: Constraints, schemes: Sequence[Scheme], *, only: Sequence[Scheme]
) -> list[Scheme]:
    """Return the schemes to try on a layer: those asked for, else those offered to its kind."""
    if only:
        fitting = [s for s in only if _is_weightless(s) != bool(layer.weight)]
        return fitting if layer.weight else [*fitting, *WEIGHTLESS]
    if constraints.integer_only:
        if layer.weight and not layer.storage and not any(map(_is_static, schemes)):
            schemes = WEIGHTED
        schemes = [
            dataclasses.replace(s, float_bias=False) if isinstance(s, StaticInt) else s
            for s in schemes
        ]
    if not constraints.per_channel:
        schemes = [_per_tensor(s) for s in schemes if s.rounding is Rounding.NEAREST]
    return list(dict.fromkeys(schemes))


def _is_static(scheme: Scheme) -> bool:
    return scheme.arithmetic is Arithmetic.INTEGER


def _is_weightless(scheme: Scheme) -> bool:
    return isinstance(scheme, StaticInt) and scheme.weight is None


def _per_tensor(scheme: Scheme) -> Scheme:
    if not isinstance(scheme, StaticInt | WeightOnly | DynamicInt) or scheme.weight is None:
        return scheme
    if scheme.weight.is_narrow:
        return scheme
    return dataclasses.replace(scheme, per_channel=False)


def rounded_kinds(schemes: Sequence[Scheme], constraints: Constraints) -> tuple[str, ...]:
    """Return the kinds of integers that must be rounded for the output."""
    opset = INT4_OPSET if constraints.max_opset is None else constraints.max_opset
    kinds: dict[str, None] = {}
    for scheme in schemes:
        weight, kind = scheme.weight, rounded_kind(scheme)
        if kind is None or weight is None:
            continue
        if weight.tensor_bits in constraints.bits and weight.opset <= opset:
            kinds[kind] = None
    return tuple(kinds)


def range_methods(schemes: Sequence[Scheme]) -> list[str]:
    """Return the range methods that schemes need, minmax always among them."""
    used = {s.ranges for s in schemes if isinstance(s, StaticInt)}
    return [MINMAX, *(m for m in RANGES if m in used and m != MINMAX)]


def skipped(layers: Sequence[Layer], rules: Sequence[str]) -> list[str]:
    """Return the layers that practitioners' rules keep float: depthwise, first, last."""
    weighted = [layer for layer in layers if layer.weight and not layer.storage]
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
    """Return the layers that names of nodes or layers mean.

    A name that matches nothing is an error with near ones.
    """
    known = {n: layer.name for layer in layers for n in (layer.name, *layer.nodes)}
    resolved = []
    for name in names:
        if name not in known:
            raise PlanError(f"no node or layer {name!r} in the model{nearest(name, list(known))}")
        resolved.append(known[name])
    return list(dict.fromkeys(resolved))

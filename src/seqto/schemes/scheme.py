"""The scheme of a layer: how its weights and activations are kept, and its code."""

from __future__ import annotations

from dataclasses import dataclass

from seqto.errors import PlanError

# ------------------------------------------------------------------------------ schemes and plans


@dataclass(frozen=True, slots=True)
class Scheme:
    """How one layer is kept. The code (`str(scheme)`) is its short, stable, readable name.

    kind         fp32 | fp16 | static | dynamic | weight
    weight       s8 | s7 (int8 with one bit less range) | p8 (int8 of which no two neighbours
                 saturate a 16-bit sum) | u8 | s4; empty for float kinds and weightless layers
    activation   u8 | s8 | u16 | s16 (static only)
    granularity  channel | tensor | block32 … (block: weight-only s4)
    bias         s32 | float (static only)
    ranges       minmax | percentile | entropy | mse: how the layer's output range is chosen
    rounding     nearest | output (weights rounded so that the layer's output error is small)
    """

    kind: str = "fp32"
    weight: str = ""
    activation: str = ""
    granularity: str = ""
    bias: str = ""
    ranges: str = ""
    rounding: str = ""

    def __str__(self) -> str:
        parts = [self.kind, self.weight, self.activation, self.granularity]
        parts += [f"bias-{self.bias}"] if self.bias and self.bias != "s32" else []
        parts += [self.ranges] if self.ranges and self.ranges != "minmax" else []
        parts += [f"round-{self.rounding}"] if self.rounding and self.rounding != "nearest" else []
        return "-".join(p for p in parts if p)

    @property
    def is_float(self) -> bool:
        return self.kind in ("fp32", "fp16")

    @property
    def kernel(self) -> str:
        """The kernel family that it runs on: what is folded at load (fp16, weight-only) runs as
        float, every signed static weight as int8."""
        if self.kind in ("fp32", "fp16", "weight"):
            return "float"
        if self.kind == "dynamic":
            return "dynamic"
        signed = "u8" if self.weight == "u8" else "s8"
        granularity = "tensor" if self.granularity == "tensor" else "channel"
        return f"static-{signed}-{self.activation}-{granularity}"

    @classmethod
    def parse(cls, code: str) -> Scheme:
        """The scheme that a code names: the inverse of `str`."""
        words = code.split("-")
        kind, rest = words[0], words[1:]
        if kind not in KINDS:
            raise PlanError(f"unknown scheme {code!r}: it starts with none of {', '.join(KINDS)}")
        values: dict[str, str] = {}
        position = iter(range(len(rest)))
        for i in position:
            word = rest[i]
            if word in ("bias", "round") and i + 1 < len(rest):
                values["bias" if word == "bias" else "rounding"] = rest[i + 1]
                next(position)
            elif word in RANGES:
                values["ranges"] = word
            elif word in ("channel", "tensor") or word.startswith("block"):
                values["granularity"] = word
            elif word in WEIGHT_TYPES and "weight" not in values:
                values["weight"] = word
            elif word in ACTIVATION_TYPES:
                values["activation"] = word
            else:
                raise PlanError(f"unknown scheme {code!r}: {word!r} is no part of a scheme")
        if kind == "static" and "activation" not in values:
            # a weightless layer: the one type given is that of its activations
            values["activation"] = values.pop("weight", "u8")
        return cls(kind=kind, **values)


KINDS = ("fp32", "fp16", "static", "dynamic", "weight")


WEIGHT_TYPES = ("s8", "s7", "p8", "u8", "s4")


ACTIVATION_TYPES = ("u8", "s8", "u16", "s16")


RANGES = ("minmax", "percentile", "entropy", "mse")


FP32 = Scheme("fp32")


FP16 = Scheme("fp16")

"""The plan: transforms of the float model, then one scheme per layer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seqto.records import Json
from seqto.schemes.scheme import FP32, Scheme


@dataclass(frozen=True, slots=True)
class Plan:
    """Transforms of the float model, then one scheme a layer. Layers not named stay fp32."""

    schemes: tuple[tuple[str, str], ...] = ()  # (layer, scheme code), sorted, fp32 left out
    transforms: tuple[str, ...] = ()

    @classmethod
    def of(cls, schemes: Mapping[str, Scheme | str], transforms: Sequence[str] = ()) -> Plan:
        pairs = sorted((layer, str(s)) for layer, s in schemes.items() if str(s) != "fp32")
        return cls(tuple(pairs), tuple(transforms))

    def scheme_of(self, layer: str) -> Scheme:
        return self.as_dict().get(layer, FP32)

    def as_dict(self) -> dict[str, Scheme]:
        return {layer: Scheme.parse(code) for layer, code in self.schemes}

    def replace(self, changes: Mapping[str, Scheme | str]) -> Plan:
        merged: dict[str, Scheme | str] = dict(self.schemes)
        merged.update(changes)
        return Plan.of(merged, self.transforms)

    @property
    def key(self) -> str:
        """Content hash: equal plans have equal keys on every machine."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> Json:
        return {"schemes": dict(self.schemes), "transforms": list(self.transforms)}

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        return cls.of(data["schemes"], data.get("transforms", ()))


BIAS_CORRECTION = "bias-correction"

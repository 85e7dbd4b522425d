"""The plan: transforms of the float model, then one scheme per layer."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from seqto.records import Json
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.types import Rounding
from seqto.transforms.transform import BIAS_CORRECTION


@dataclass(frozen=True, slots=True)
class Plan:
    """Transforms of the float model, then one scheme a layer. Layers not named stay fp32.

    Transforms are kept as their codes: they name the float model that the plan is built on
    (transforms/variants.py), and a journal can be read where a plug-in that made one is missing.
    """

    schemes: tuple[tuple[str, Scheme], ...] = ()  # (layer, scheme), sorted, fp32 left out
    transforms: tuple[str, ...] = ()  # codes, in their order
    correct_bias: bool = False  # biases make up for the mean error of rounded weights
    _key: str = field(default="", init=False, repr=False, compare=False)  # made once

    @classmethod
    def of(cls, schemes: Mapping[str, Scheme | str], transforms: Sequence[str] = ()) -> Plan:
        """Return the plan of schemes (or their codes) and of codes of transforms.

        `bias-correction` among the transforms is the flag `correct_bias`.
        """
        pairs = (
            (name, Scheme.parse(s) if isinstance(s, str) else s) for name, s in schemes.items()
        )
        return cls._of_pairs(pairs, transforms)

    @classmethod
    def _of_pairs(cls, pairs: Iterable[tuple[str, Scheme]], transforms: Sequence[str]) -> Plan:
        kept = sorted((pair for pair in pairs if pair[1].code != FP32.code), key=itemgetter(0))
        changed = tuple(t for t in transforms if t != BIAS_CORRECTION)
        return cls(tuple(kept), changed, BIAS_CORRECTION in transforms)

    def with_schemes(self, schemes: Mapping[str, Scheme | str]) -> Plan:
        """Return a plan with other schemes on the same float model, bias correction as here."""
        return dataclasses.replace(self, schemes=Plan.of(schemes).schemes)

    def replace(self, changes: Mapping[str, Scheme | str]) -> Plan:
        merged: dict[str, Scheme | str] = dict(self.schemes)
        merged.update(changes)
        return self.with_schemes(merged)

    def scheme_of(self, layer: str) -> Scheme:
        return self.as_dict().get(layer, FP32)

    def as_dict(self) -> dict[str, Scheme]:
        return dict(self.schemes)

    def with_nearest_rounding(self) -> Plan:
        """Return the plan with all weights rounded to the nearest: the same bytes and kernels."""
        return self.with_schemes({n: s.without_output_rounding() for n, s in self.schemes})

    @property
    def rounds_for_output(self) -> bool:
        """Whether some layer's weights are rounded so that its output error is small."""
        return any(scheme.rounding is Rounding.OUTPUT for _, scheme in self.schemes)

    @property
    def transform_codes(self) -> tuple[str, ...]:
        """The transforms and the bias correction, as settings and journals name them."""
        return (*self.transforms, BIAS_CORRECTION) if self.correct_bias else self.transforms

    @property
    def key(self) -> str:
        """Content hash: equal plans have equal keys on every machine."""
        if not self._key:  # a resume asks some twenty times for the key of each plan
            text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
            object.__setattr__(self, "_key", hashlib.sha256(text.encode()).hexdigest()[:16])
        return self._key

    def to_json(self) -> Json:
        schemes = {layer: str(scheme.code) for layer, scheme in self.schemes}
        return {"schemes": schemes, "transforms": list(self.transform_codes)}

    @classmethod
    def from_json(cls, data: Json) -> Plan:
        pairs = (_pair(layer, code) for layer, code in data["schemes"].items())
        return cls._of_pairs(pairs, data.get("transforms", ()))


@functools.lru_cache(maxsize=65536)
def _pair(layer: str, code: str) -> tuple[str, Scheme]:
    """Return a layer and its scheme. Equal ones are one object: a journal repeats them often."""
    return layer, Scheme.parse(code)

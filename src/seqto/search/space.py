"""The search space: what a strategy may know of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.records import Layer, LayerError


@dataclass(frozen=True, slots=True)
class Space:
    """All a strategy may know: layers, what each may be, what it costs, how bad it looked."""

    layers: tuple[Layer, ...]
    menu: Mapping[str, tuple[str, ...]]  # layer → scheme codes, fp32 always among them
    default: Mapping[str, str]  # layer → the scheme that `mode` gives it
    bytes_of: Mapping[tuple[str, str], int]  # (layer, code) → bytes in the file
    ranking: tuple[LayerError, ...]  # worst first
    fixed: Mapping[str, str] = field(default_factory=dict)  # user's exclusions: not to be changed
    transforms: tuple[tuple[str, ...], ...] = ((),)  # the treatments that may be chosen from
    latency_of: Mapping[tuple[str, str], float] = field(default_factory=dict)  # profiled ms
    boundary_ms: Mapping[str, float] = field(default_factory=dict)  # one Q or DQ of a tensor
    float_bytes: int = 0  # of the original file

    @property
    def fully_quantized(self) -> Plan:
        """Every layer as the mode says, but for what the device refuses or the user excludes."""
        demanded = self.transforms[0] if self.transforms else ()
        return Plan.of({**self.default, **self.fixed}, demanded)

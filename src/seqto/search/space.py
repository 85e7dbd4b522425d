"""The search space: what a strategy may know of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.records import Layer, LayerError
from seqto.schemes.scheme import FP32, Scheme
from seqto.schemes.types import Rounding
from seqto.search.prior import Prior


@dataclass(frozen=True, slots=True)
class Space:
    """All a strategy may know: layers, what each may be, what it costs, how bad it looked."""

    layers: tuple[Layer, ...]
    menu: Mapping[str, tuple[Scheme, ...]]  # layer → schemes, fp32 among them unless constrained
    default: Mapping[str, Scheme]  # layer → the scheme that `mode` gives it
    bytes_of: Mapping[tuple[str, Scheme], int]  # bytes in the file
    ranking: tuple[LayerError, ...]  # worst first
    fixed: Mapping[str, Scheme] = field(default_factory=dict)  # user's exclusions: not changed
    transforms: tuple[tuple[str, ...], ...] = ((),)  # lists of transforms that may be chosen from
    latency_of: Mapping[tuple[str, Scheme], float] = field(default_factory=dict)  # profiled ms
    boundary_ms: Mapping[str, float] = field(default_factory=dict)  # one Q or DQ of a tensor
    weight_error: Mapping[tuple[str, Scheme], float] = field(default_factory=dict)  # relative
    float_latency_ms: float | None = None  # measured; None where nothing is timed
    float_bytes: int = 0  # of the original file
    prior: Prior | None = None  # what an earlier run knew
    exact_products: bool = False  # the device adds products of 8-bit integers exactly

    @property
    def fully_quantized(self) -> Plan:
        """Every layer as the mode says, but for what the device refuses or the user excludes."""
        demanded = self.transforms[0] if self.transforms else ()
        return Plan.of({**self.default, **self.fixed}, demanded)


def scheme_by_layer(space: Space, plan: Plan) -> dict[str, Scheme]:
    """Return a plan's scheme of every layer.

    A scheme that is not among the layer's choices is replaced by the one that differs from it by
    output rounding only, where that is a choice.
    """
    planned = plan.as_dict()
    schemes: dict[str, Scheme] = {}
    for layer in space.layers:
        scheme, choices = planned.get(layer.name, FP32), space.menu[layer.name]
        if scheme not in choices and scheme.rounding is Rounding.NEAREST:
            rounded = (c for c in choices if c.rounding is Rounding.OUTPUT)
            scheme = next((c for c in rounded if c.without_output_rounding() == scheme), scheme)
        schemes[layer.name] = scheme
    return schemes

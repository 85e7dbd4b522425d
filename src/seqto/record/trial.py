"""The trial: a plan and what was measured of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.records import EVALUATION, Failure, Json, Latency, Loss, Measurement


@dataclass(frozen=True, slots=True)
class Trial:
    """A plan and what came of it. A failed trial is a recorded trial."""

    number: int
    plan: Plan
    size_bytes: int = 0
    sha256: str = ""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)  # by split
    latency: Latency | None = None
    error: Failure | None = None
    seconds: float = 0.0
    same_as: int | None = None  # an earlier trial whose model is byte for byte the same
    note: str = ""  # what the strategy says it is: "step 3: without conv1"
    content: str = ""  # sha256 of the model without the plan in its metadata: equal models
    node: str = ""  # of the cluster that measured it; empty: the machine of the run
    # layers of which two neighbouring products may exceed 16 bits, so that answers depend on the
    # CPU; None: not known, as in journals of earlier versions
    may_saturate: tuple[str, ...] | None = None
    graph: str = ""  # hash of the graph that the device makes of it: equal graphs are equally fast

    @property
    def loss(self) -> Loss | None:
        measurement = self.measurements.get(EVALUATION)
        return measurement.loss if measurement else None

    @property
    def is_portable(self) -> bool:
        """Whether no answer depends on the width of the CPU's sums."""
        return self.may_saturate == ()

    def to_json(self) -> Json:
        return {
            "number": self.number,
            "key": self.plan.key,
            "plan": self.plan.to_json(),
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
            "measurements": {k: m.to_json() for k, m in self.measurements.items()},
            "latency": self.latency.to_json() if self.latency else None,
            "error": self.error.to_json() if self.error else None,
            "seconds": self.seconds,
            "same_as": self.same_as,
            "note": self.note,
            "content": self.content,
            **({"node": self.node} if self.node else {}),
            **({} if self.may_saturate is None else {"may_saturate": list(self.may_saturate)}),
            **({"graph": self.graph} if self.graph else {}),
        }

    @classmethod
    def from_json(cls, data: Json) -> Trial:
        return cls(
            number=data["number"],
            plan=Plan.from_json(data["plan"]),
            size_bytes=data["size_bytes"],
            sha256=data["sha256"],
            measurements={k: Measurement.from_json(m) for k, m in data["measurements"].items()},
            latency=Latency.from_json(data["latency"]) if data["latency"] else None,
            error=Failure.from_json(data["error"]) if data["error"] else None,
            seconds=data["seconds"],
            same_as=data["same_as"],
            note=data["note"],
            content=data.get("content", ""),
            node=data.get("node", ""),
            may_saturate=tuple(data["may_saturate"]) if "may_saturate" in data else None,
            graph=data.get("graph", ""),
        )


def main_score(scores: Mapping[str, float]) -> str | None:
    """Return the name of the score that stands for the task."""
    return "accuracy" if "accuracy" in scores else next(iter(scores), None)

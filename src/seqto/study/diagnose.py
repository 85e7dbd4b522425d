"""Why quantization hurts, and what helps: one finding a cause, each with its figures.

evidence.py measures in workers, causes.py puts the figures into words (docs/diagnosis.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from seqto.assembly.plan import Plan
from seqto.diagnosis.explain import finding, findings
from seqto.diagnosis.measure import PARTS
from seqto.records import Json
from seqto.study import check_saturation

if TYPE_CHECKING:
    from seqto.execution.local.pool import Pool

SAMPLES = 8  # calibration samples: errors are means over many thousand values of each


def diagnose(
    pool: Pool,
    plan: Plan,
    *,
    samples: int = SAMPLES,
    profiles: Sequence[Json] = (),
    int8_products: Json | None = None,
) -> list[Json]:
    """Finding events for a plan, measured by a pool of `seqto.execution.worker:serve` workers.

    `profiles` are the run's profile events, if it has any; `int8_products` is what
    `saturation.ask` has found, which is asked here otherwise. What could not be measured is a
    finding of its own; nothing is raised for it.
    """
    jobs = [
        {"kind": "diagnose", "part": part, "plan": plan.to_json(), "samples": samples}
        for part in PARTS
    ]
    measured: Json = {"int8_products": int8_products or check_saturation.ask(pool)}
    failed: list[Json] = []
    for part, ticket in zip(PARTS, pool.map(jobs), strict=True):
        if ticket.result is not None:
            measured[part] = ticket.result
        else:
            message = ticket.failure.message if ticket.failure else "no result"
            text = f"{_LOOKED_AT[part]} could not be measured: {message}"
            failed.append(finding("failed", text, [], {"part": part}))
    return [*findings(measured, profiles=profiles), *failed]


_LOOKED_AT = {
    "layers": "the layers one by one",
    "damage": "the damage of each layer",
    "whole": "the whole model's output",
}


def sentences(found: Sequence[Json]) -> list[str]:
    """What a terminal prints."""
    return [str(f["message"]) for f in found]

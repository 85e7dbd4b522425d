"""Why quantization hurts, and what helps: one finding a cause, each with its figures.

diagnosis/measure.py measures in workers, diagnosis/explain.py explains (docs/diagnosis.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from seqto.assembly.plan import Plan
from seqto.diagnosis.explain import finding, findings
from seqto.diagnosis.measure import PARTS
from seqto.execution.executor import Executor, expect, run_all
from seqto.execution.jobs import Diagnose, Figures
from seqto.records import Json
from seqto.study import check_saturation

SAMPLES = 8  # calibration samples: errors are means over many thousand values of each


def diagnose(
    executor: Executor,
    plan: Plan,
    *,
    samples: int = SAMPLES,
    profiles: Sequence[Json] = (),
    int8_products: Json | None = None,
) -> list[Json]:
    """Return finding events for a plan, measured by workers.

    `profiles` are the run's profile events, if it has any; `int8_products` is what
    `check_saturation.ask` has found, which is asked here otherwise. What could not be measured is
    a finding of its own; nothing is raised for it.
    """
    jobs = [Diagnose(plan, part, samples) for part in PARTS]
    measured: Json = {"int8_products": int8_products or check_saturation.ask(executor)}
    failed: list[Json] = []
    for part, done in zip(PARTS, run_all(executor, jobs), strict=True):
        found = expect(done, Figures)
        if isinstance(found, Figures):
            measured[part] = found.values
        else:
            text = f"{_LOOKED_AT[part]} could not be measured: {found.message}"
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

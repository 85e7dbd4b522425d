"""Why quantization hurts, and what helps: one finding a cause, each with its figures.

diagnosis/measure.py measures in workers, diagnosis/explain.py explains (docs/diagnosis.md).
"""

from __future__ import annotations

from collections.abc import Sequence

from seqto.assembly.plan import Plan
from seqto.diagnosis import steps
from seqto.diagnosis.explain import findings
from seqto.diagnosis.finding import finding
from seqto.diagnosis.measure import PARTS
from seqto.execution.executor import Done, Executor, expect, run_all
from seqto.execution.jobs import Diagnose, Figures
from seqto.records import Json
from seqto.study import check_saturation

SAMPLES = 8  # calibration samples: errors are means over many thousand values of each


def jobs_of(plan: Plan, *, samples: int = SAMPLES) -> list[Diagnose]:
    """Return the jobs that a diagnosis begins with; none depends on another."""
    return [Diagnose(plan, part, samples) for part in PARTS]


def diagnose(
    executor: Executor,
    plan: Plan,
    *,
    samples: int = SAMPLES,
    profiles: Sequence[Json] = (),
    int8_products: Json | None = None,
    parts: Sequence[Done] | None = None,
) -> list[Json]:
    """Return finding events for a plan, measured by workers.

    `profiles` are the run's profile events, if it has any; `int8_products` is what
    `check_saturation.ask` has found, which is asked here otherwise; `parts` the outcomes of
    `jobs_of`, which are run here otherwise. What could not be measured is a finding of its own;
    nothing is raised for it.
    """
    if parts is None:
        parts = run_all(executor, jobs_of(plan, samples=samples))
    measured: Json = {"int8_products": int8_products or check_saturation.ask(executor)}
    failed: list[Json] = []
    for part, done in zip(PARTS, parts, strict=True):
        outcome = expect(done, Figures)
        if isinstance(outcome, Figures):
            measured[part] = outcome.values
        else:
            text = f"{_LOOKED_AT[part]} could not be measured: {outcome.message}"
            failed.append(finding("failed", text, [], {"part": part}))
    causes = findings(measured, profiles=profiles)
    return [*causes, *_steps(executor, plan, measured, causes, samples=samples), *failed]


def _steps(
    executor: Executor, plan: Plan, measured: Json, causes: Sequence[Json], *, samples: int
) -> list[Json]:
    """Return the finding that says what each cause costs; none where a part is missing."""
    if not {"whole", "layers"} <= measured.keys():
        return []
    sensitive = steps.sensitive_layers(causes)
    plans = steps.chain(plan, sensitive)
    # a step without integers left would have nothing to measure
    named = {name: p for name, p in plans.items() if p.schemes}
    jobs = [Diagnose(p, "exact", samples) for p in named.values()]
    after: dict[str, float] = {}
    for name, done in zip(named, run_all(executor, jobs), strict=True):
        outcome = expect(done, Figures)
        if isinstance(outcome, Figures):  # else the next step takes its share too
            after[name] = outcome.values["exact"]
    return [
        steps.steps_finding(
            measured["whole"]["whole"]["planned"],
            after,
            rows=measured["layers"]["rows"],
            damage=measured.get("damage", {}).get("damage", {}),
            sensitive=sensitive,
        )
    ]


_LOOKED_AT = {
    "layers": "the layers one by one",
    "damage": "the damage of each layer",
    "whole": "the whole model's output",
    "attention": "what is particular to attention",
}

"""What follows the search: timing of the chosen, report split, profile, diagnosis."""

from __future__ import annotations

import time
from collections.abc import Mapping

from seqto.assembly.plan import Plan
from seqto.search.space import Space
from seqto.study.diagnose import diagnose
from seqto.study.make_space import analysis
from seqto.study.setup import Job
from seqto.study.study import Study

INT8_PRODUCTS = "int8_products"  # the event that says whether the device adds them exactly
SETTLING = 3  # times at most that the chosen are timed again


def explain(job: Job, study: Study, space: Space) -> None:
    """Layer errors for the report, and why the fully quantized model loses what it loses."""
    plan = Plan.of(dict(space.default), job.settings.quantize.transforms)
    if study.deadline is not None and time.monotonic() > study.deadline:
        return
    if not space.default:  # the device refuses the mode's schemes for every layer
        return
    analysis(job, study, Plan.of(dict(space.default)))
    known = [e for e in study.journal.events if e.get("kind") == "diagnosis"]
    if known or not job.settings.analysis.diagnose:
        return
    profiles = [e for e in study.journal.events if e["event"] == "profile"]
    for finding in diagnose(
        study.executor, plan, profiles=profiles, int8_products=study.found(INT8_PRODUCTS)
    ):
        study.write(finding)


def finish(job: Job, study: Study) -> None:
    """Time the front, choose, measure the chosen on the report split, save their models."""
    from seqto.report.json_file import build_report

    keys = {t.number: k for k, t in study.trials.items()}
    # what stands on the front in loss and size must be timed before it can be left out for that
    wanted = [*study.untimed_front(), *build_report(study.journal.events)["front"]]
    untimed = [n for n in dict.fromkeys(wanted) if study.trials[keys[n]].latency is None]
    study.time([keys[n] for n in untimed], final=True)
    _settle(job, study, keys)
    report = build_report(study.journal.events)
    chosen = [keys[n] for n in sorted(set(report["recommended"].values()))]
    study.confirm(chosen)
    study.measure_footprints(chosen)
    best = report["recommended"].get("balanced", report["recommended"].get("loss"))
    profiled = {e["plan_key"] for e in study.journal.events if e["event"] == "profile"}
    if best is not None and keys[best] not in profiled:
        study.runner.profile(study.trials[keys[best]].plan, scheme=f"trial {best}")


def _settle(job: Job, study: Study, keys: Mapping[int, str]) -> None:
    """Time the chosen again, all beside one float session, until the choice stands.

    The fastest of many is partly the luckiest: minutes in which others used the machine make
    ratios of a tenth less. What is chosen for its time must be as fast a second time.
    """
    from seqto.report.json_file import build_report

    if "latency" not in job.settings.search.objectives:
        return
    for _ in range(SETTLING):
        chosen = sorted(set(build_report(study.journal.events)["recommended"].values()))
        if all(study.is_settled(keys[n]) for n in chosen):
            return
        # the others of the choice once more too: they are compared with the newcomers
        study.time([keys[n] for n in chosen], final=True)

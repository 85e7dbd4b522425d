"""Ranking of the layers: by their errors as the papers have it, or by the damage of each alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from seqto.assembly.plan import Plan
from seqto.diagnosis import layer_errors
from seqto.errors import DeviceError
from seqto.execution.executor import Done, Executor, expect, run_all
from seqto.execution.jobs import Figures, RankLayers
from seqto.record.events import LayersRanked
from seqto.records import Failure, LayerError
from seqto.schemes.scheme import Scheme
from seqto.search.strategy import Ask
from seqto.study.setup import RunSetup
from seqto.study.study import Study


def analysis(
    setup: RunSetup, study: Study, plan: Plan, *, done: Done | None = None
) -> tuple[LayerError, ...]:
    """Return the papers' ranking, recorded; the report shows it even where no strategy asks.

    `done`: the outcome of `analysis_job`, which is run here otherwise.
    """
    if study.state.analysis is None:
        study.append(analysis_event(setup, study.executor, plan, done=done))
    assert study.state.analysis is not None
    return study.state.analysis.ranking


def by_damage(
    study: Study, ranking: tuple[LayerError, ...], default: Mapping[str, Scheme]
) -> tuple[LayerError, ...]:
    """Return the layers, first those that hurt the output most when they alone are quantized."""
    plans = tuple(Plan.of({row.layer: default[row.layer]}) for row in ranking)
    damage = []
    for trial in study.answer(Ask(plans, probe=True)):
        measurement = next(iter(trial.measurements.values()), None)
        damage.append(
            0.0 if measurement is None or measurement.damage is None else measurement.damage
        )
    order = sorted(range(len(ranking)), key=lambda i: (-damage[i], ranking[i].layer))
    return tuple(
        dataclasses.replace(ranking[i], rank=rank, damage=damage[i]) for rank, i in enumerate(order)
    )


def analysis_job(setup: RunSetup, plan: Plan) -> RankLayers:
    """Return the job that measures the layer errors of a plan."""
    return RankLayers(plan, setup.settings.analysis.samples)


def analysis_event(
    setup: RunSetup, executor: Executor, plan: Plan, *, done: Done | None = None
) -> LayersRanked:
    """Return the layer errors of a plan, measured and ranked."""
    settings = setup.settings.analysis
    if done is None:
        (done,) = run_all(executor, [analysis_job(setup, plan)])
    outcome = expect(done, Figures)
    if isinstance(outcome, Failure):
        raise DeviceError(f"the layer analysis failed: {outcome.message}")
    ranking = layer_errors.rank(
        outcome.values["errors"],
        qdq_weight=settings.qdq_weight,
        xmodel_weight=settings.xmodel_weight,
    )
    return LayersRanked(
        samples=outcome.values["samples"],
        seconds=round(done.seconds, 2),
        ranking=tuple(ranking),
    )

"""Jobs and results are the same after a way through JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seqto.assembly.plan import Plan
from seqto.errors import PlanError
from seqto.execution import codec, jobs
from seqto.execution.files import FileRef
from seqto.model.outputs import Judged
from seqto.records import Loss, Measurement, RivalPoint

PLAN = Plan.of({"a": "static-u8-u8-channel", "b": "fp16"}, ("equalize",))
FILE = FileRef("ab" * 32, 7, "cache/work/x")
MODEL = jobs.ModelMade(1, "s", "c")
MEASURED = Measurement(
    "report", "here", Loss(0.5, 0.1, 0.9, 4), {"accuracy": 0.5}, score_drops={"accuracy": (0, 1)}
)

JOBS: list[Any] = [
    jobs.Evaluate(
        *(PLAN, "evaluation", 9, 2, 4, FILE, FILE),
        rivals=(RivalPoint(3, 1.5, portable=True),),
        known=frozenset({"b", "a"}),
        graph_rivals={"g": (RivalPoint(3, 1.5),)},
    ),
    jobs.MakeReference(None, "report", 0, 5, 1, 5),
    jobs.TryPlan(PLAN, 2),
    jobs.ChooseBatch("evaluation", (1, 2), 0.1),
    jobs.TimePlans((PLAN, Plan()), None, 0.5, batch=4),
    jobs.SaveModel(PLAN),
    jobs.MeasureMemory({"": FILE}),
    jobs.MeasureMemory({}),
    jobs.ProfilePlan(PLAN),
    jobs.RankLayers(PLAN, 8),
    jobs.Diagnose(PLAN, "layers", 8),
    jobs.RoundWeights("base", ("a",), ("s8", "s4"), "rounded-0.npy"),
    jobs.CheckSaturation(),
]
RESULTS: list[Any] = [
    jobs.Evaluated(MODEL, MEASURED, {"run": 0.1}),
    jobs.RawOutputs(MODEL, FILE),
    jobs.Skipped(MODEL),
    jobs.ReferenceMade(0, FILE),
    jobs.PlanRan(),
    jobs.BatchChosen(4, {"4": 10.0}),
    jobs.Timed(((1.0, 2.0), (3.0, 4.0)), (5.0, 6.0)),
    jobs.ModelSaved({"": FILE}),
    jobs.MemoryMeasured(5, 0.5),
    jobs.Figures({"errors": [{"layer": "a"}]}),
    jobs.WeightsRounded(FILE, ({"layer": "a"},)),
]


def test_every_kind_is_looked_at() -> None:
    assert {type(j).__name__ for j in JOBS} == set(jobs.JOBS)
    assert {type(r).__name__ for r in RESULTS} == set(jobs.RESULTS)


@pytest.mark.parametrize("job", JOBS, ids=lambda j: type(j).__name__)
def test_a_job_travels_as_json(job: Any) -> None:
    assert jobs.job_from_json(json.loads(json.dumps(jobs.job_to_json(job)))) == job


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: type(r).__name__)
def test_a_result_travels_as_json(result: Any) -> None:
    assert jobs.result_from_json(json.loads(json.dumps(jobs.result_to_json(result)))) == result


def test_a_setup_travels_as_json() -> None:
    setup = jobs.WorkerSetup(
        FILE, (FILE,), "cache/samples", {"kind": "ort"}, Judged("y", 0, 1, (0,)), (0,)
    )
    assert codec.decode(jobs.WorkerSetup, json.loads(json.dumps(codec.encode(setup)))) == setup


def test_an_unknown_job_is_refused() -> None:
    with pytest.raises(PlanError, match="unknown job 'Dance'"):
        jobs.job_from_json({"kind": "Dance"})

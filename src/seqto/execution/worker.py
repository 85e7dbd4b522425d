"""A worker: set up once with files and a device, then one job after the other."""

from __future__ import annotations

from seqto.execution import analysis, evaluate, latency
from seqto.execution.context import WorkerContext
from seqto.execution.executor import Signals
from seqto.execution.files import LocalFiles
from seqto.execution.jobs import (
    CheckSaturation,
    ChooseBatch,
    Diagnose,
    Evaluate,
    Job,
    MakeReference,
    MeasureMemory,
    ProfilePlan,
    RankLayers,
    Result,
    RoundWeights,
    SaveModel,
    TimePlans,
    TryPlan,
    WorkerSetup,
)
from seqto.model.files import give_back_memory


class Worker:
    """Runs jobs in this process."""

    def __init__(self, setup: WorkerSetup, files: LocalFiles) -> None:
        self.context = WorkerContext(setup, files)

    def run(self, job: Job, signals: Signals) -> Result:
        """Run a job; what a large model's took goes back to the system."""
        try:
            return self._run(job, signals)
        finally:
            if self.context.has_large_models:
                give_back_memory()

    def _run(self, job: Job, signals: Signals) -> Result:
        result: Result
        match job:
            case Evaluate():
                result = evaluate.evaluate(self.context, job, signals)
            case MakeReference():
                result = evaluate.make_reference(self.context, job, signals)
            case TryPlan():
                result = evaluate.try_plan(self.context, job)
            case ChooseBatch():
                result = evaluate.choose_batch(self.context, job, signals)
            case TimePlans():
                result = latency.time_plans(self.context, job, signals)
            case SaveModel():
                result = latency.save_model(self.context, job)
            case MeasureMemory():
                result = latency.measure_memory(self.context, job)
            case ProfilePlan():
                result = analysis.profile(self.context, job)
            case RankLayers():
                result = analysis.rank_layers(self.context, job, signals)
            case Diagnose():
                result = analysis.diagnose(self.context, job, signals)
            case RoundWeights():
                result = analysis.round_weights(self.context, job, signals)
            case CheckSaturation():
                result = analysis.check_saturation(self.context)
        return result

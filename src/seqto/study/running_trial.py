"""From the outcome of an evaluation to a trial."""

from __future__ import annotations

from dataclasses import dataclass, field

from seqto.assembly.plan import Plan
from seqto.execution.executor import Done
from seqto.execution.jobs import Evaluated, ModelMade, RawOutputs, Skipped
from seqto.record.trial import Trial
from seqto.records import Failure, Measurement


@dataclass(slots=True)
class TrialMaker:
    """Makes the trials of plans that run at the same time.

    `by_content` has the trials whose model is known: a plan with the same model gets their
    figures, also where the two have run at the same time.
    """

    by_content: dict[str, Trial] = field(default_factory=dict)

    def trial(
        self,
        number: int,
        plan: Plan,
        note: str,
        done: Done,
        measurement: Measurement | None = None,
    ) -> Trial:
        """Return the trial of a job; `measurement`: what main has made of raw outputs."""
        outcome = done.outcome
        model = _model_of(done)
        twin = self.by_content.get(model.content) if model.content else None
        measured = outcome.measurement if isinstance(outcome, Evaluated) else measurement
        failure = outcome if isinstance(outcome, Failure) else None
        measurements = {} if measured is None else {measured.split: measured}
        if twin is not None:
            measurements, failure = dict(twin.measurements), twin.error
        elif failure is None and measured is None:
            failure = Failure("run", "the model gave no outputs")
        trial = Trial(
            number=number,
            plan=plan,
            size_bytes=model.size_bytes,
            sha256=model.sha256,
            content=model.content,
            measurements=measurements,
            latency=twin.latency if twin else None,
            error=failure,
            seconds=round(done.seconds, 4),
            same_as=twin.number if twin else None,
            note=note,
            node=str(done.node.get("name", "")),
            may_saturate=model.may_saturate if model.content else None,
            graph=model.graph or (twin.graph if twin else ""),
        )
        if model.content:
            self.by_content.setdefault(model.content, trial)
        return trial


def _model_of(done: Done) -> ModelMade:
    """Return the model that was assembled, also where it has failed afterwards."""
    outcome = done.outcome
    if isinstance(outcome, Failure):
        note = done.note
        named = (note.get("size_bytes", 0), note.get("sha256", ""), note.get("content", ""))
        return ModelMade(*named, tuple(note.get("may_saturate", ())))
    if isinstance(outcome, Evaluated | RawOutputs | Skipped):
        return outcome.model
    raise TypeError(f"{type(outcome).__name__} is no result of an evaluation")

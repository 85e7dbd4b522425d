"""Runner of plans: jobs for the workers, and the trials that their results make.

The runner measures; the study decides what is run and records it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from seqto.assembly.plan import Plan
from seqto.execution.executor import Done, Handle, expect, run_all
from seqto.execution.files import WORK, FileRef
from seqto.execution.jobs import (
    Evaluate,
    Evaluated,
    Figures,
    ProfilePlan,
    RawOutputs,
)
from seqto.files import replacing
from seqto.record import events
from seqto.record.events import PROFILE
from seqto.record.journal import finite
from seqto.record.trial import Trial
from seqto.records import REPORT, Failure, Json, Measurement
from seqto.search.latency_table import integer_layers
from seqto.selection.racing import by_graph, hardest_first, no_slower, rivals
from seqto.study.float_model import FloatModel, SplitReference, failures_on_device
from seqto.study.running_trial import TrialMaker
from seqto.tasks import scoring
from seqto.tasks.array_file import read_arrays
from seqto.tasks.scoring import Scorer
from seqto.tasks.task import (
    RankedTask,
    WeightedTask,
    needs_all_samples,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RACE_CHUNKS = 40  # parts of the samples after each of which a candidate may be stopped
LEAST_SHARE = 10  # a candidate sees one in so many samples at least: its damage is learnt from


class OutOfBudget(Exception):  # noqa: N818  (a signal, not an error)
    """The budget is spent: report what there is."""


@dataclass(frozen=True, slots=True)
class Round:
    """Plans that run at the same time. They are compared with the trials of earlier asks."""

    plans: Mapping[str, tuple[Plan, str]]  # by key: the plan and its note
    split: str
    probe: bool
    numbers: Mapping[str, int]  # of the trials, by key
    earlier: Sequence[Trial]
    conclude: Callable[[Trial], None]
    deadline: Callable[[], float | None]
    # where time is an objective: the ratio to float's that the strategy predicts at least, by key
    not_below: Mapping[str, float | None] = field(default_factory=dict)

    def slowest_first(self) -> list[tuple[Plan, str]]:
        """Return plans with the slowest first, as far as that is foretold.

        So the workers end at about the same time: a long trial that starts last keeps one of them
        busy and leaves the others idle.
        """
        keys = sorted(self.plans, key=lambda key: -(self.not_below.get(key) or 0.0))
        return [self.plans[key] for key in keys]


class PlanRunner:
    """Evaluates plans on the splits, against the float model's answers."""

    def __init__(
        self,
        float_model: FloatModel,
        *,
        racing: bool = True,
        timed: bool = False,
        probes: int = 16,
    ) -> None:
        """Prepare to run plans; `timed`: latency is an objective, slower plans beat nothing."""
        self.float_model = float_model
        self.record, self.executor = float_model.record, float_model.executor
        self.store, self.task = float_model.store, float_model.task
        self.racing, self.timed, self.probes = racing, timed, probes

    def baseline(self) -> None:
        self.float_model.measure()

    def try_all(self, plans: Sequence[Plan]) -> list[Failure | None]:
        """Return why each plan does not run one batch on the device; None if it runs."""
        return failures_on_device(self.executor, plans, batch=self.float_model.batch)

    def profile(self, plan: Plan, *, scheme: str) -> Json | None:
        """Record where each layer runs and for how long; empty on devices that cannot tell.

        None where it fails or has failed before.
        """
        if self.record.state.has_failed(PROFILE, plan.key):
            return None
        (done,) = run_all(self.executor, [ProfilePlan(plan)], alone=True)
        outcome = expect(done, Figures)
        if isinstance(outcome, Failure):
            self.record.note_failure(PROFILE, outcome, plan_key=plan.key)
            return None
        named = {"plan_key": plan.key, "scheme": scheme, "integer_layers": integer_layers(plan)}
        event = events.PlanProfiled.of(finite(outcome.values), **named)
        self.record.append(event)
        return event.to_json()

    def run(self, work: Round) -> None:
        """Run plans at the same time; `work.conclude` gets each trial when it is done."""
        reference = self.float_model.reference(work.split)
        rows = min(self.probes, reference.rows) if work.probe else reference.rows
        leaders = rivals(work.earlier, timed=self.timed) if self._races() else ()
        order = self._hardest_first(work.earlier, reference, rows=rows) if leaders else None
        trials = TrialMaker({t.content: t for t in work.earlier if t.content})
        template = Evaluate(
            Plan(),
            work.split,
            rows,
            self.float_model.batch,
            self.float_model.chunk_rows(rows, chunks=10 if order is None else RACE_CHUNKS),
            None if self.float_model.judges_here else reference.file,
            order=order,
            known=frozenset(trials.by_content),
            graph=not work.probe,
            graph_rivals=by_graph(leaders, work.earlier),
            least_rows=min(rows, max(self.probes, -(-rows // LEAST_SHARE))),
        )
        running: dict[Handle, tuple[Plan, str]] = {}
        for plan, note in work.slowest_first():
            faster = no_slower(leaders, work.not_below.get(plan.key))
            job = dataclasses.replace(template, plan=plan, rivals=faster)
            running[self.executor.submit(job)] = (plan, note)
        while running:
            for done in self._wait(running, work.deadline):
                plan, note = running.pop(done.handle)
                self.note_node(done)
                measured = self._judged_here(done, reference, rows=rows)
                number = work.numbers.get(plan.key, -1)
                work.conclude(trials.trial(number, plan, note, done, measured))
        if order is not None:
            self.executor.files.discard(order)

    def _races(self) -> bool:
        """Return whether a candidate may be stopped: what it has lost so far stays lost."""
        if not self.racing or self.float_model.judges_here:
            return False
        return not isinstance(self.task, WeightedTask) and not needs_all_samples(self.task)

    def _hardest_first(
        self, earlier: Sequence[Trial], reference: SplitReference, *, rows: int
    ) -> FileRef | None:
        """Write the order in which candidates run the rows; None where it must stay."""
        if self.store.ragged is not None and self.float_model.batch > 1:
            return None  # sequences of one batch stay together: in another, answers may differ
        return self._order_file(hardest_first(earlier, rows, self._difficulty(reference)))

    def _wait(
        self, running: Mapping[Handle, object], deadline: Callable[[], float | None]
    ) -> list[Done]:
        """Return which of these jobs are done; when the time is up the others are cancelled."""
        end = deadline()
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            for handle in running:
                self.executor.cancel(handle)
            raise OutOfBudget
        return [done for done in self.executor.wait(left) if done.handle in running]

    def note_node(self, done: Done) -> None:
        """Record the node that ran a job, once."""
        name = done.node.get("name")
        if name is not None and name not in self.record.state.nodes:
            about = {k: v for k, v in done.node.items() if k != "name"}
            self.record.append(events.NodeUsed(name, about))

    def _difficulty(self, reference: SplitReference) -> NDArray[np.float64] | None:
        if not isinstance(self.task, RankedTask):
            return None
        return self.task.difficulty(reference.content.decoded.answers)

    def _order_file(self, order: NDArray[np.int64]) -> FileRef:
        import numpy as np

        name = hashlib.sha256(order.tobytes()).hexdigest()[:16]
        path = self.executor.files.named(f"{WORK}/order-{name}.npy")
        with replacing(path) as stream:
            np.save(stream, order)
        return self.executor.files.put(path)

    def _judged_here(
        self, done: Done, reference: SplitReference, *, rows: int, intervals: bool = False
    ) -> Measurement | None:
        """Measure raw outputs with a task that stays in this process; None for other outcomes."""
        if not isinstance(done.outcome, RawOutputs):
            return None
        files = self.executor.files
        arrays, _ = read_arrays(files.path(done.outcome.file))
        task = self.float_model.task_of(reference.content.split)
        scorer = Scorer(
            task,
            reference.content,
            device=self.float_model.device.name,
            rows=rows,
            labels=self.store.labels(reference.content.split),
        )
        scorer.add(scoring.decode(task, list(arrays.values())))
        files.discard(done.outcome.file)
        return scorer.measurement(intervals=intervals)

    def confirm(
        self,
        trials: Sequence[Trial],
        *,
        split: str = REPORT,
        examples: Mapping[str, int] | None = None,
    ) -> Iterator[tuple[Trial, Measurement | Failure, tuple[Json, ...]]]:
        """Measure trials on the report split, which no search has seen, or the labelled one.

        `examples`: how many samples with the largest distance to show of some plans, by key.
        """
        if not trials:
            return
        reference = self.float_model.reference(split)
        running: dict[Handle, Trial] = {}
        # the longest first, as in the search: so the workers end at about the same time
        for trial in sorted(trials, key=lambda t: -t.seconds):
            job = Evaluate(
                trial.plan,
                split,
                reference.rows,
                self.float_model.batch,
                self.float_model.chunk_rows(reference.rows),
                None if self.float_model.judges_here else reference.file,
                intervals=True,
                examples=(examples or {}).get(trial.plan.key, 0),
            )
            running[self.executor.submit(job)] = trial
        while running:
            for done in self._wait(running, lambda: None):
                trial = running.pop(done.handle)
                measured = self._judged_here(done, reference, rows=reference.rows, intervals=True)
                shown: tuple[Json, ...] = ()
                if isinstance(done.outcome, Evaluated):
                    measured, shown = done.outcome.measurement, done.outcome.examples
                if isinstance(done.outcome, Failure):
                    yield trial, done.outcome, ()
                elif measured is not None:
                    yield trial, measured, shown

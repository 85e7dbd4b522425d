"""How plans become trials: jobs for the workers, and what their results say.

The runner measures; the study decides what is run and records it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices.device import Device
from seqto.errors import DeviceError
from seqto.execution.executor import Done, Executor, Handle, expect, run_all
from seqto.execution.files import WORK, FileRef
from seqto.execution.jobs import (
    BatchChosen,
    ChooseBatch,
    Evaluate,
    Evaluated,
    Figures,
    MakeReference,
    ProfilePlan,
    RawOutputs,
    ReferenceMade,
    TryPlan,
)
from seqto.files import replacing
from seqto.model import outputs as model_outputs
from seqto.record import events
from seqto.record.events import BATCH, FLOAT_MODEL, PROFILE, TASK, Event
from seqto.record.journal import finite
from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.records import CALIBRATION, EVALUATION, LABELLED, REPORT, Failure, Json, Measurement
from seqto.search.latency_table import integer_layers
from seqto.selection.racing import by_graph, hardest_first, no_slower, rivals
from seqto.study.running_trial import TrialMaker
from seqto.tasks import scoring
from seqto.tasks.array_file import read_arrays
from seqto.tasks.scoring import Decoded, Scorer
from seqto.tasks.task import (
    RankedTask,
    Task,
    WeightedTask,
    judges_one_output,
    most_rows,
    needs_all_samples,
    portable_form,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RACE_CHUNKS = 40  # parts of the samples after each of which a candidate may be stopped
LEAST_SHARE = 10  # a candidate sees one in so many samples at least: its damage is learnt from
NOTHING: Mapping[str, float | None] = {}


BATCHES = (1, 2, 4, 8, 16)  # sizes that are tried


class OutOfBudget(Exception):  # noqa: N818  (a signal, not an error)
    """The budget is spent: report what there is."""


class Record(Protocol):
    """The part of a study that the runner reads and writes."""

    state: RunState

    def append(self, event: Event) -> None: ...

    def note_failure(self, step: str, failure: Failure, *, plan_key: str | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class SplitReference:
    """The float model's answers on a split: a file for the workers, and what main reads of it."""

    file: FileRef
    content: scoring.Reference
    graph: str = ""  # hash of the graph that the device makes of the float model

    @property
    def rows(self) -> int:
        return self.content.rows

    @property
    def scores(self) -> Mapping[str, float]:
        return self.content.scores


class PlanRunner:
    """Evaluates plans on the splits, against the float model's answers."""

    def __init__(
        self,
        record: Record,
        executor: Executor,
        store: SampleStore,
        *,
        task: Task,
        device: Device,
        judged: model_outputs.Judged,
        racing: bool = True,
        timed: bool = False,
        probes: int = 16,
        chunk: int = 0,
        batch_seconds: float = 0.15,
        labelled_task: Task | None = None,
        batch: int | None = None,
        name: str = "",
    ) -> None:
        """`name`: of the device, where there are several."""
        self.record, self.executor, self.store = record, executor, store
        self.name = name
        self.task, self.device, self.judged = task, device, judged
        self.labelled_task = labelled_task or task
        self.judges_here = portable_form(task) is None  # workers send raw outputs then
        self.racing, self.probes, self.chunk = racing, probes, chunk
        self.timed = timed  # latency is an objective: what is slower beats nothing
        self.batch_seconds = batch_seconds  # for each batch size that is tried
        self.chosen_batch = batch  # data.batch; None: the fastest
        self.batch = 1
        self.references: dict[str, SplitReference] = {}

    # --------------------------------------------------------------------------- the float model

    def baseline(self) -> None:
        """Float outputs on the splits that are looked at, and the batch that is fastest."""
        if self.record.state.batch is None:
            self.record.append(events.BatchChosen(self._choose_batch()))
        self.batch = self.record.state.batch or 1
        self.reference(CALIBRATION)
        self._write_caution(self.reference(EVALUATION).content)

    def _write_caution(self, reference: scoring.Reference) -> None:
        """Record once which output is judged and what an answer is there, if that is doubtful."""
        parts = [reference.caution] if reference.caution else []
        if self.judged.count > 1 and judges_one_output(self.task):
            parts.append(
                f"Of the model's {self.judged.count} outputs {self.judged.name!r} is judged; "
                "task.output chooses another."
            )
        fed = self.store.data.get("fed") or {}
        if fed:
            named = ", ".join(f"{name} = {value}" for name, value in fed.items())
            parts.append(
                f"Inputs that samples do not bring: {named} (data.constants; data.states feeds an "
                "input from an output)."
            )
        if parts and not self.record.state.has_finding(TASK):
            self.record.append(events.Finding(TASK, " ".join(parts)))

    def judged_json(self) -> Json:
        """For the report: the output's name, its shape for one sample, and what an answer is."""
        about = self.reference(EVALUATION).content.output
        return {"name": self.judged.name, **about, "outputs": self.judged.count}

    def _choose_batch(self) -> int:
        if self.store.run_rows:
            return self.store.run_rows
        if self.chosen_batch:
            return self.chosen_batch
        job = ChooseBatch(EVALUATION, BATCHES, self.batch_seconds)
        (done,) = run_all(self.executor, [job], alone=True)
        found = expect(done, BatchChosen)
        if isinstance(found, Failure):
            self.record.note_failure(BATCH, found)
            return 1
        return found.batch

    def reference(self, split: str) -> SplitReference:
        """The float model's answers on a split, made by all workers when first asked for."""
        if split in self.references:
            return self.references[split]
        rows = self.store.rows(split)
        chunk = self._chunk_rows(rows)
        # the workers share the rows; a candidate runs on one of them
        share = -(-rows // (chunk * self.executor.slots)) * chunk
        jobs = [
            MakeReference(
                self.float_plan, split, first, min(first + share, rows), self.batch, chunk
            )
            for first in range(0, rows, share)
        ]
        parts = [expect(done, ReferenceMade) for done in run_all(self.executor, jobs)]
        failure = next((p for p in parts if isinstance(p, Failure)), None)
        if failure is not None and self._use_prepared_model(failure):
            return self.reference(split)
        if failure is not None:
            raise DeviceError(
                f"the float model does not run on {self.device.name}: {failure.message}",
                stage=failure.stage,
                ops=failure.ops,
            )
        made = [p for p in parts if isinstance(p, ReferenceMade)]
        joined = self._join(split, [p.file for p in made])
        graph = next((p.graph for p in made if p.graph), "")
        self.references[split] = dataclasses.replace(joined, graph=graph)
        return self.references[split]

    def _join(self, split: str, parts: Sequence[FileRef]) -> SplitReference:
        """Write the parts that the workers have made as one file, and delete them."""
        files = self.executor.files
        decoded: list[Decoded] = []
        about: Json = {}
        for part in parts:
            found, said = self._part(files.path(part), self._task(split))
            decoded.append(found)
            about = about or said
        reference = scoring.reference_from(
            self._task(split), split, decoded, labels=self.store.labels(split), about=about
        )
        path = files.named(f"{WORK}/reference-{split}{self._suffix}")
        reference.save(path)
        for part in parts:
            files.discard(part)
        return SplitReference(files.put(path), scoring.Reference.load(path))

    @property
    def _suffix(self) -> str:
        """For files of one device among several: other devices have files of the same split."""
        return f"-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}" if self.name else ""

    def _task(self, split: str) -> Task:
        return self.labelled_task if split == LABELLED else self.task

    def _part(self, path: Any, task: Task) -> tuple[Decoded, Json]:
        if not self.judges_here:
            return scoring.load_part(path)
        arrays = list(read_arrays(path)[0].values())
        judged = self.judged.numeric.index(self.judged.position) if len(arrays) > 1 else 0
        about = scoring.describe_outputs(task, arrays, judged=judged, name=self.judged.name)
        return scoring.decode(task, arrays), about

    def _use_prepared_model(self, failure: Failure) -> bool:
        """Let the prepared model, which gives the same answers, be the float model, if it runs.

        A device may not take the file as it was given (TVM and pads that are computed) and yet
        take it with its constants folded.
        """
        if self.float_plan is not None or self.try_all([Plan()]) != [None]:
            return False
        message = (
            f"the float model as given does not run on {self.device.name} ({failure.message}); "
            "the prepared one, which gives the same answers, stands for it"
        )
        self.record.append(events.Finding(FLOAT_MODEL, message, (), {"stage": failure.stage}))
        return True

    @property
    def float_plan(self) -> Plan | None:
        """None: the file as it was given; else the plan of what stands for it."""
        return Plan() if self.record.state.has_finding(FLOAT_MODEL) else None

    def _chunk_rows(self, rows: int, *, chunks: int = 10) -> int:
        chunk = self.chunk or max(self.batch, most_rows(self.task, -(-rows // chunks)))
        return -(-chunk // self.batch) * self.batch

    # --------------------------------------------------------------------------------- the plans

    def try_all(self, plans: Sequence[Plan]) -> list[Failure | None]:
        """Return why each plan does not run one batch on the device; None if it runs."""
        jobs = [TryPlan(plan, self.batch) for plan in plans]
        outcomes = [done.outcome for done in run_all(self.executor, jobs)]
        return [found if isinstance(found, Failure) else None for found in outcomes]

    def profile(self, plan: Plan, *, scheme: str) -> Json | None:
        """Record where each layer runs and for how long; empty on devices that cannot tell.

        None where it fails or has failed before.
        """
        if self.record.state.has_failed(PROFILE, plan.key):
            return None
        (done,) = run_all(self.executor, [ProfilePlan(plan)], alone=True)
        found = expect(done, Figures)
        if isinstance(found, Failure):
            self.record.note_failure(PROFILE, found, plan_key=plan.key)
            return None
        named = {"plan_key": plan.key, "scheme": scheme, "integer_layers": integer_layers(plan)}
        event = events.PlanProfiled.of(finite(found.values), **named)
        self.record.append(event)
        return event.to_json()

    def run(
        self,
        fresh: Mapping[str, tuple[Plan, str]],
        *,
        split: str,
        probe: bool,
        numbers: Mapping[str, int],
        earlier: Sequence[Trial],
        conclude: Callable[[Trial], None],
        deadline: Callable[[], float | None],
        not_below: Mapping[str, float | None] = NOTHING,
    ) -> None:
        """Run plans at once; they know the trials of earlier asks. `conclude` gets each trial.

        `not_below`: where time is an objective, by key what the strategy has foretold of it.
        """
        reference = self.reference(split)
        rows = min(self.probes, reference.rows) if probe else reference.rows
        racing = self.racing and not self.judges_here and not isinstance(self.task, WeightedTask)
        racing = racing and not needs_all_samples(self.task)
        found = rivals(earlier, timed=self.timed) if racing else ()
        graphs = by_graph(found, earlier)
        # sequences that share a batch stay together: in another one they may have other answers
        together = self.store.ragged is not None and self.batch > 1
        hard = found and not together
        order = None
        if hard:
            order = self._order_file(hardest_first(earlier, rows, self._difficulty(reference)))
        trials = TrialMaker({t.content: t for t in earlier if t.content})
        known = frozenset(trials.by_content)
        running: dict[Handle, tuple[Plan, str]] = {}
        for plan, note in _slowest_first(fresh, not_below):
            job = Evaluate(
                plan,
                split,
                rows,
                self.batch,
                self._chunk_rows(rows, chunks=10 if order is None else RACE_CHUNKS),
                None if self.judges_here else reference.file,
                order=order,
                rivals=no_slower(found, not_below.get(plan.key)),
                known=known,
                graph=not probe,
                graph_rivals=graphs,
                least_rows=min(rows, max(self.probes, -(-rows // LEAST_SHARE))),
            )
            running[self.executor.submit(job)] = (plan, note)
        while running:
            for done in self._wait(running, deadline):
                plan, note = running.pop(done.handle)
                self.note_node(done)
                measured = self._judged_here(done, reference, rows=rows)
                conclude(trials.trial(numbers.get(plan.key, -1), plan, note, done, measured))
        if order is not None:
            self.executor.files.discard(order)

    def _wait(
        self, running: Mapping[Handle, object], deadline: Callable[[], float | None]
    ) -> list[Done]:
        """Jobs of these that are done; when the time is up the rest is cancelled."""
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
            told = {k: v for k, v in done.node.items() if k != "name"}
            self.record.append(events.NodeUsed(name, told))

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
        task = self._task(reference.content.split)
        scorer = Scorer(
            task,
            reference.content,
            device=self.device.name,
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
        reference = self.reference(split)
        running: dict[Handle, Trial] = {}
        for trial in trials:
            job = Evaluate(
                trial.plan,
                split,
                reference.rows,
                self.batch,
                self._chunk_rows(reference.rows),
                None if self.judges_here else reference.file,
                intervals=True,
                examples=(examples or {}).get(trial.plan.key, 0),
            )
            running[self.executor.submit(job)] = trial
        while running:
            for done in self._wait(running, lambda: None):
                trial = running.pop(done.handle)
                found = self._judged_here(done, reference, rows=reference.rows, intervals=True)
                shown: tuple[Json, ...] = ()
                if isinstance(done.outcome, Evaluated):
                    found, shown = done.outcome.measurement, done.outcome.examples
                if isinstance(done.outcome, Failure):
                    yield trial, done.outcome, ()
                elif found is not None:
                    yield trial, found, shown


def _slowest_first(
    fresh: Mapping[str, tuple[Plan, str]], not_below: Mapping[str, float | None]
) -> list[tuple[Plan, str]]:
    """Return plans with the slowest first, as far as that is foretold.

    So the workers end at about the same time: a long trial that starts last keeps one of them busy
    and leaves the others idle.
    """
    return [fresh[key] for key in sorted(fresh, key=lambda key: -(not_below.get(key) or 0.0))]

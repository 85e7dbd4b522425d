"""The float model of a run: its batch, and its answers on the splits, which workers compute."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices.device import Device
from seqto.errors import DeviceError
from seqto.execution.executor import Executor, expect, run_all
from seqto.execution.files import WORK, FileRef
from seqto.execution.jobs import BatchChosen, ChooseBatch, MakeReference, ReferenceMade, TryPlan
from seqto.model import outputs as model_outputs
from seqto.record import events
from seqto.record.events import BATCH, FLOAT_MODEL, TASK, Event
from seqto.record.replay import RunState
from seqto.records import CALIBRATION, EVALUATION, LABELLED, Failure, Json
from seqto.tasks import scoring
from seqto.tasks.array_file import read_arrays
from seqto.tasks.scoring import Decoded
from seqto.tasks.task import Task, judges_one_output, most_rows, portable_form

BATCHES = (1, 2, 4, 8, 16)  # sizes that are tried


class Record(Protocol):
    """The part of a study that the float model and the runner read and write."""

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


class FloatModel:
    """Runs the float model on the splits and keeps its answers, which plans are compared with."""

    def __init__(
        self,
        record: Record,
        executor: Executor,
        store: SampleStore,
        *,
        task: Task,
        device: Device,
        judged: model_outputs.Judged,
        chunk: int = 0,
        batch_seconds: float = 0.15,
        labelled_task: Task | None = None,
        batch: int | None = None,
        name: str = "",
    ) -> None:
        """`name`: of the device, where there are several."""
        self.record, self.executor, self.store = record, executor, store
        self.task, self.device, self.judged = task, device, judged
        self.labelled_task = labelled_task or task
        self.judges_here = portable_form(task) is None  # workers send raw outputs then
        self.name, self.chunk = name, chunk
        self.batch_seconds = batch_seconds  # for each batch size that is tried
        self.chosen_batch = batch  # data.batch; None: the fastest
        self.batch = 1
        self.references: dict[str, SplitReference] = {}

    def measure(self) -> None:
        """Run the float model on the splits that are looked at; choose the fastest batch."""
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
        """Return the output's name, its shape for one sample, and what an answer is."""
        output = self.reference(EVALUATION).content.output
        return {"name": self.judged.name, **output, "outputs": self.judged.count}

    def _choose_batch(self) -> int:
        if self.store.run_rows:
            return self.store.run_rows
        if self.chosen_batch:
            return self.chosen_batch
        job = ChooseBatch(EVALUATION, BATCHES, self.batch_seconds)
        (done,) = run_all(self.executor, [job], alone=True)
        outcome = expect(done, BatchChosen)
        if isinstance(outcome, Failure):
            self.record.note_failure(BATCH, outcome)
            return 1
        return outcome.batch

    @property
    def plan(self) -> Plan | None:
        """None: the file as it was given; else the plan of what stands for it."""
        return Plan() if self.record.state.has_finding(FLOAT_MODEL) else None

    def _use_prepared_model(self, failure: Failure) -> bool:
        """Let the prepared model, which gives the same answers, be the float model, if it runs.

        A device may not take the file as it was given (TVM and pads that are computed) and yet
        take it with its constants folded.
        """
        if self.plan is not None:
            return False
        if failures_on_device(self.executor, [Plan()], batch=self.batch) != [None]:
            return False
        message = (
            f"the float model as given does not run on {self.device.name} ({failure.message}); "
            "the prepared one, which gives the same answers, stands for it"
        )
        self.record.append(events.Finding(FLOAT_MODEL, message, (), {"stage": failure.stage}))
        return True

    def reference(self, split: str) -> SplitReference:
        """Return the float model's answers on a split, made by all workers when first asked for."""
        if split in self.references:
            return self.references[split]
        rows = self.store.rows(split)
        chunk = self.chunk_rows(rows)
        # the workers share the rows; a candidate runs on one of them
        share = -(-rows // (chunk * self.executor.slots)) * chunk
        jobs = [
            MakeReference(self.plan, split, first, min(first + share, rows), self.batch, chunk)
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
        complete = [p for p in parts if isinstance(p, ReferenceMade)]
        joined = self._join(split, [p.file for p in complete])
        graph = next((p.graph for p in complete if p.graph), "")
        self.references[split] = dataclasses.replace(joined, graph=graph)
        return self.references[split]

    def _join(self, split: str, parts: Sequence[FileRef]) -> SplitReference:
        """Write the parts that the workers have made as one file, and delete them."""
        files = self.executor.files
        decoded: list[Decoded] = []
        about: Json = {}
        for part in parts:
            rows, description = self._part(files.path(part), self.task_of(split))
            decoded.append(rows)
            about = about or description
        reference = scoring.reference_from(
            self.task_of(split), split, decoded, labels=self.store.labels(split), about=about
        )
        path = files.named(f"{WORK}/reference-{split}{self._suffix}")
        reference.save(path)
        for part in parts:
            files.discard(part)
        return SplitReference(files.put(path), scoring.Reference.load(path))

    def _part(self, path: Path, task: Task) -> tuple[Decoded, Json]:
        if not self.judges_here:
            return scoring.load_part(path)
        arrays = list(read_arrays(path)[0].values())
        judged = self.judged.numeric.index(self.judged.position) if len(arrays) > 1 else 0
        about = scoring.describe_outputs(task, arrays, judged=judged, name=self.judged.name)
        return scoring.decode(task, arrays), about

    @property
    def _suffix(self) -> str:
        """For files of one device among several: other devices have files of the same split."""
        return f"-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}" if self.name else ""

    def task_of(self, split: str) -> Task:
        return self.labelled_task if split == LABELLED else self.task

    def chunk_rows(self, rows: int, *, chunks: int = 10) -> int:
        """Return how many rows a worker runs between two checks: whole batches."""
        chunk = self.chunk or max(self.batch, most_rows(self.task, -(-rows // chunks)))
        return -(-chunk // self.batch) * self.batch


def failures_on_device(
    executor: Executor, plans: Sequence[Plan], *, batch: int
) -> list[Failure | None]:
    """Return why each plan does not run one batch on the device; None if it runs."""
    outcomes = [d.outcome for d in run_all(executor, [TryPlan(plan, batch) for plan in plans])]
    return [outcome if isinstance(outcome, Failure) else None for outcome in outcomes]

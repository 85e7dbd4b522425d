"""How plans become trials: jobs for the workers, and what their results say.

The runner measures; the study decides what is run and records it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices.device import Device
from seqto.execution.local.pool import Pool, Ticket
from seqto.model import outputs as model_outputs
from seqto.record.trial import Trial
from seqto.records import CALIBRATION, EVALUATION, REPORT, Failure, Json, Loss, Measurement
from seqto.search.latency_table import integer_layers
from seqto.study.running_trial import Candidate
from seqto.tasks import scoring
from seqto.tasks.task import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TASK = "task"  # the kind of finding that says what is doubtful about the answers


FLOAT_MODEL = "float model"  # the kind of finding that says what stands for it


# steps beside the trials that may fail, as they are named in journal and report
BATCH, TIMING, REPORT_SPLIT, PROFILE = "batch", "timing", "report split", "profile"


RACE_CHUNKS = 40  # parts of the samples after each of which a candidate may be stopped


class OutOfBudget(Exception):  # noqa: N818  (a signal, not an error)
    """The budget is spent: report what there is."""


class Record(Protocol):
    """The part of a study that the runner reads and writes."""

    failed: set[tuple[str, str | None]]

    @property
    def events(self) -> Sequence[Json]: ...

    def write(self, event: Json) -> None: ...

    def found(self, kind: str) -> Json | None: ...

    def note_failure(self, step: str, failure: Failure, *, plan_key: str | None = None) -> None: ...


class PlanRunner:
    """Evaluates plans on the splits, against the float model's answers."""

    def __init__(
        self,
        record: Record,
        pool: Pool,
        store: SampleStore,
        *,
        task: Task,
        device: Device,
        judged: model_outputs.Judged,
        racing: bool = True,
        probes: int = 16,
        chunk: int = 0,
        batch_seconds: float = 0.15,
    ) -> None:
        self.record, self.pool, self.store = record, pool, store
        self.task, self.device, self.judged = task, device, judged
        # a task that looks at one output gets the judged one, others get all that are numbers
        alone = getattr(task, "one_output", False)
        self.sent = (judged.position,) if alone else judged.numeric
        self.racing, self.probes, self.chunk = racing, probes, chunk
        self.batch_seconds = batch_seconds  # for each batch size that is tried
        self.batch = 1
        self.references: dict[str, scoring.Reference] = {}

    def baseline(self) -> None:
        """Float outputs on the splits that are looked at, and the batch that is fastest."""
        tuned = self.record.found("tuning")
        if tuned is None:
            tuned = {"event": "tuning", "batch": self._tuned_batch()}
            self.record.write(tuned)
        self.batch = tuned["batch"]
        self.reference(CALIBRATION)
        self._remark(self.reference(EVALUATION))

    def _remark(self, reference: scoring.Reference) -> None:
        """Which output is judged and what an answer is there, once, where that is a question."""
        name, remark = self.judged.name, None
        if hasattr(self.task, "remark"):
            remark = self.task.remark(reference.outputs, name=name)
        parts = [remark] if remark else []
        if self.judged.count > 1 and len(self.sent) == 1:
            parts.append(
                f"Of the model's {self.judged.count} outputs {name!r} is judged; task.output "
                "chooses another."
            )
        if parts and not any(e.get("kind") == TASK for e in self.record.events):
            found = {"kind": TASK, "message": " ".join(parts), "layers": [], "figures": {}}
            self.record.write({"event": "finding", **found})

    def judged_json(self) -> Json:
        """For the report: the output's name, its shape for one sample, and what an answer is."""
        reference = self.reference(EVALUATION)
        value = reference.outputs[reference.judged]
        alone = getattr(self.task, "one_output", False)
        return {
            "name": self.judged.name,
            "shape": list(value.shape[1:]),
            "judged_by": model_outputs.kind_of(value) if alone else "task",
            "outputs": self.judged.count,
        }

    def _tuned_batch(self) -> int:
        if self.store.fixed_batch:
            return self.store.fixed_batch
        job = {"kind": "tune", "split": EVALUATION, "threads": 1, "batches": [1, 2, 4, 8, 16]}
        job["seconds"] = self.batch_seconds
        (ticket,) = self.pool.map([job])
        if ticket.result is None:
            self.record.note_failure(BATCH, ticket.failure or Failure("time", "no result"))
            return 1
        return int(ticket.result["batch"])

    def reference(self, split: str) -> scoring.Reference:
        if split in self.references:
            return self.references[split]
        outputs: dict[int, list[object]] = {}
        rows = self.store.rows(split)
        job = self._job(None, split, rows)
        # the workers share the rows; a candidate runs on one of them
        share = -(-rows // (job["chunk"] * self.pool.size)) * job["chunk"]
        pieces = [
            {**job, "first": first, "rows": min(first + share, rows)}
            for first in range(0, rows, share)
        ]

        def take(message: Json, arrays: list[object]) -> Json | None:
            if "start" in message:
                outputs[message["start"]] = arrays
            return _go_on(message)

        tickets = self.pool.map(pieces, take)  # type: ignore[arg-type]
        failure = next((t.failure for t in tickets if t.failure is not None), None)
        if failure is not None and self._stands_in(failure):
            return self.reference(split)
        if failure is not None:
            from seqto.errors import DeviceError

            raise DeviceError(
                f"the float model does not run on {self.device.name}: {failure.message}",
                stage=failure.stage,
                ops=failure.ops,
            )
        import numpy as np

        chunks = [outputs[k] for k in sorted(outputs)]
        whole = [
            model_outputs.joined([np.asarray(x) for x in parts], name=self.judged.name)
            for parts in zip(*chunks, strict=True)
        ]
        found = scoring.Reference(
            split,
            whole,
            self.store.labels(split),
            task=self.task,
            judged=self.sent.index(self.judged.position),
        )
        self.references[split] = found
        return found

    def _stands_in(self, failure: Failure) -> bool:
        """Let the prepared model, which gives the same answers, be the float model, if it runs.

        A device may not take the file as it was given (TVM and pads that are computed) and yet
        take it with its constants folded.
        """
        if self.float_plan is not None or self.stops(Plan()) is not None:
            return False
        message = (
            f"the float model as given does not run on {self.device.name} ({failure.message}); "
            "the prepared one, which gives the same answers, stands for it"
        )
        figures = {"stage": failure.stage}
        remark = {"kind": FLOAT_MODEL, "message": message, "layers": [], "figures": figures}
        self.record.write({"event": "finding", **remark})
        return True

    @property
    def float_plan(self) -> Json | None:
        """None: the file as it was given; else the plan of what stands for it."""
        stands_in = any(e.get("kind") == FLOAT_MODEL for e in self.record.events)
        return Plan().to_json() if stands_in else None

    def _job(self, plan: Plan | None, split: str, rows: int, *, chunks: int = 10) -> Json:
        chunk = self.chunk or max(self.batch, -(-rows // chunks))
        return {
            "kind": "evaluate",
            "plan": self.float_plan if plan is None else plan.to_json(),
            "split": split,
            "rows": rows,
            "batch": self.batch,
            "chunk": -(-chunk // self.batch) * self.batch,
            "threads": 1,
            "outputs": list(self.sent),
        }

    def stops(self, plan: Plan) -> Failure | None:
        """What stops a plan from running one sample on the device, if anything does."""
        job = {**self._job(plan, CALIBRATION, self.batch), "chunk": self.batch}
        (ticket,) = self.pool.map([job], lambda message, _: _go_on(message))
        return ticket.failure

    def profile(self, plan: Plan, *, scheme: str) -> Json | None:
        """Which layer runs where, and for how long; recorded, empty on devices that cannot tell.

        None where it fails or has failed before.
        """
        if (PROFILE, plan.key) in self.record.failed:
            return None
        (ticket,) = self.pool.map([{"kind": "profile", "plan": plan.to_json(), "runs": 15}])
        if ticket.result is None:
            failure = ticket.failure or Failure("run", "no result")
            self.record.note_failure(PROFILE, failure, plan_key=plan.key)
            return None
        named = {"plan_key": plan.key, "scheme": scheme, "integer_layers": integer_layers(plan)}
        event = {"event": "profile", **named, **ticket.result}
        self.record.write(event)
        return event

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
    ) -> None:
        """Run plans at once; they know the trials of earlier asks. `conclude` gets each trial."""
        reference = self.reference(split)
        rows = min(self.probes, reference.rows) if probe else reference.rows
        rivals = _rivals(earlier) if self.racing else []
        order = _hardest_first(earlier, rows) if rivals else None
        by_content = {t.content: t for t in earlier if t.content}
        leaders: dict[str, Candidate] = {}
        running: dict[int, Candidate] = {}
        waiting: list[tuple[Candidate, Ticket]] = []  # same model as one that is under way
        for plan, note in fresh.values():
            number = numbers.get(plan.key, -1)
            view = scoring.Judge(reference, device=self.device.name, rows=rows, order=order)
            candidate = Candidate(
                number, plan, note, view, rivals=rivals, by_content=by_content, leaders=leaders
            )
            job = self._job(plan, split, rows, chunks=10 if order is None else RACE_CHUNKS)
            if order is not None:
                job["order"] = order.tolist()
            ticket = self.pool.submit(job, candidate.hear)
            candidate.stop = _stopper(self.pool, ticket)
            running[ticket.number] = candidate
        while running:
            end = deadline()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                self.pool.cancel()
                raise OutOfBudget
            for ticket in self.pool.wait(left):
                waiting.append((running.pop(ticket.number), ticket))
            for candidate, ticket in [w for w in waiting if w[0].can_conclude]:
                waiting.remove((candidate, ticket))
                conclude(candidate.trial(ticket))
        for candidate, ticket in waiting:
            conclude(candidate.trial(ticket))

    def confirm(self, trials: Sequence[Trial]) -> Iterator[tuple[Trial, Measurement | Failure]]:
        """Measure trials on the report split, which no search has seen."""
        reference = self.reference(REPORT)
        running: dict[int, tuple[Trial, Candidate]] = {}
        for trial in trials:
            view = scoring.Judge(reference, device=self.device.name, rows=reference.rows)
            candidate = Candidate(trial.number, trial.plan, "", view)
            ticket = self.pool.submit(self._job(trial.plan, REPORT, reference.rows), candidate.hear)
            running[ticket.number] = (trial, candidate)
        while running:
            for ticket in self.pool.wait():
                trial, candidate = running.pop(ticket.number)
                yield trial, ticket.failure or candidate.view.measurement()


def _go_on(message: Json) -> Json | None:
    return {"go": True} if "assembled" in message else None


def _whole(trials: Sequence[Trial]) -> list[tuple[int, Loss]]:
    """(bytes, loss) of the trials that saw all samples."""
    seen = [(t.size_bytes, t.measurements.get(EVALUATION)) for t in trials]
    return [(size, m.loss) for size, m in seen if m is not None and not m.stopped_early]


def _rivals(trials: Sequence[Trial]) -> list[tuple[int, int]]:
    """(bytes, changed answers) of all complete trials: what a newcomer must not lose to."""
    return [(size, round(loss.value * loss.samples)) for size, loss in _whole(trials)]


def _hardest_first(trials: Sequence[Trial], rows: int) -> NDArray[np.int64] | None:
    """Samples in the order of how many trials changed their answer.

    Plans mostly change the same answers, so that a plan which is no better than a smaller one has
    shown that after a part of the samples: by counting, not by guessing.
    """
    import numpy as np

    changes = np.zeros(rows, dtype=np.int64)
    for _, loss in _whole(trials):
        raw = np.frombuffer(bytes.fromhex(loss.agreement), dtype=np.uint8)
        if loss.samples == rows and raw.size * 8 >= rows:
            changes += 1 - np.unpackbits(raw)[:rows].astype(np.int64)
    order: NDArray[np.int64] = np.argsort(-changes, kind="stable")
    return order


def _stopper(pool: Pool, ticket: Ticket) -> Callable[[], None]:
    return lambda: pool.stop(ticket)

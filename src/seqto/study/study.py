"""The loop: strategy → jobs → trials → journal → result.

Resume is replay: the strategy runs again from the same seed, and a plan whose key is in the
journal gets its recorded trial. Only this process writes the journal.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices.device import Device
from seqto.execution.local.pool import Pool, Ticket
from seqto.model import outputs as model_outputs
from seqto.record import events
from seqto.record.events import (
    BATCH,
    FLOAT_MODEL,
    PROFILE,
    REPORT_SPLIT,
    TASK,
    TIMING,
    Event,
    ProbeFinished,
    StepFailed,
    TrialFinished,
    TrialMeasured,
)
from seqto.record.journal import Journal, finite
from seqto.record.replay import replay
from seqto.record.trial import Trial
from seqto.records import CALIBRATION, EVALUATION, REPORT, Failure, Json, Latency
from seqto.search.latency_table import integer_layers
from seqto.search.space import Space
from seqto.search.strategy import Ask, Strategy
from seqto.selection.objectives import can_race
from seqto.selection.racing import hardest_first, rivals
from seqto.study.round_weights import Rounding
from seqto.study.running_trial import Candidate
from seqto.study.timing import Clock, Timing
from seqto.tasks import scoring
from seqto.tasks.task import Task
from seqto.transforms.variants import variant_of

Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """When to end; the clock may end a study, it never steers a strategy."""

    max_trials: int | None = None
    max_minutes: float | None = None


RACE_CHUNKS = 40  # parts of the samples after each of which a candidate may be stopped


SEARCH_SHARE = 0.85  # of the time; the rest is for timing, held-out figures and the report


class OutOfBudget(Exception):  # noqa: N818  (a signal, not an error)
    """The budget is spent: report what there is."""


class Study:
    """One run: what is asked, what is known, what is written."""

    def __init__(
        self,
        journal: Journal,
        pool: Pool,
        store: SampleStore,
        *,
        task: Task,
        device: Device,
        budget: Budget,
        timing: Timing,
        rounding: Rounding,
        racing: bool = True,
        race_objectives: Sequence[str] = ("loss", "size"),
        probes: int = 16,
        chunk: int = 0,
        listener: Listener = lambda _event: None,
        began: float | None = None,
        judged: model_outputs.Judged,
    ) -> None:
        self.journal, self.pool, self.store = journal, pool, store
        self.task, self.device, self.budget = task, device, budget
        self.judged = judged
        # a task that looks at one output gets the judged one, others get all that are numbers
        alone = getattr(task, "one_output", False)
        self.sent = (judged.position,) if alone else judged.numeric
        self.clock = Clock(pool, timing)
        self.probes = probes
        self.racing = racing and can_race(race_objectives)
        self.chunk = chunk
        self.rounding = rounding
        self.listener = listener
        self.began = time.monotonic() if began is None else began
        self.batch = 1
        self.references: dict[str, scoring.Reference] = {}
        self.state = replay(journal.events)
        self.order: list[str] = []  # keys in the order they were asked

    # ------------------------------------------------------------------------------ the record

    @property
    def trials(self) -> Mapping[str, Trial]:
        """Trials by plan key."""
        return self.state.by_key

    @property
    def probed(self) -> Mapping[str, Trial]:
        """Probes by plan key."""
        return self.state.probes

    def append(self, event: Event) -> None:
        """Record an event: the line is on the disk before the state and the listener know it."""
        recorded = self.journal.append(event)
        self.state.apply(recorded)
        self.listener(recorded)

    def write(self, event: Mapping[str, Any]) -> None:
        """Record an event that is given as JSON."""
        self.append(events.from_json(finite(event)))

    def note_failure(self, step: str, failure: Failure, *, plan_key: str | None = None) -> None:
        """Record a step that failed beside the trials: batch, timing, report split or profile."""
        trial = None if plan_key is None else self.trials.get(plan_key)
        self.append(StepFailed(step, trial.number if trial else None, plan_key, failure))

    # --------------------------------------------------------------------------------- baseline

    def baseline(self) -> None:
        """Float outputs on the splits that are looked at, and the batch that is fastest."""
        if self.state.batch is None:
            self.append(events.BatchChosen(self._tuned_batch()))
        self.batch = self.state.batch or 1
        self._reference(CALIBRATION)
        self._remark(self._reference(EVALUATION))

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
        if parts and not self.state.has_finding(TASK):
            self.append(events.Finding(TASK, " ".join(parts)))

    def judged_json(self) -> Json:
        """For the report: the output's name, its shape for one sample, and what an answer is."""
        reference = self._reference(EVALUATION)
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
        job["seconds"] = min(0.15, self.clock.timing.seconds)  # for each batch
        (ticket,) = self.pool.map([job])
        if ticket.result is None:
            self.note_failure(BATCH, ticket.failure or Failure("time", "no result"))
            return 1
        return int(ticket.result["batch"])

    def _reference(self, split: str) -> scoring.Reference:
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
            return self._reference(split)
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
        self.append(events.Finding(FLOAT_MODEL, message, (), {"stage": failure.stage}))
        return True

    @property
    def float_plan(self) -> Json | None:
        """None: the file as it was given; else the plan of what stands for it."""
        return Plan().to_json() if self.state.has_finding(FLOAT_MODEL) else None

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
        if self.state.has_failed(PROFILE, plan.key):
            return None
        (ticket,) = self.pool.map([{"kind": "profile", "plan": plan.to_json(), "runs": 15}])
        if ticket.result is None:
            failure = ticket.failure or Failure("run", "no result")
            self.note_failure(PROFILE, failure, plan_key=plan.key)
            return None
        named = {"plan_key": plan.key, "scheme": scheme, "integer_layers": integer_layers(plan)}
        event = events.PlanProfiled.of(finite(ticket.result), **named)
        self.append(event)
        return event.to_json()

    # --------------------------------------------------------------------------------- the loop

    def search(self, strategy: Strategy, space: Space, *, seed: int) -> str:
        """Run a strategy to its end or the budget's; returns which."""
        generator = strategy.search(space, seed=seed)
        try:
            ask = next(generator)
            while True:
                ask = generator.send(self.answer(ask))
        except StopIteration:
            return "done"
        except OutOfBudget:
            return "budget"

    def answer(self, ask: Ask) -> list[Trial]:
        """Trials for the plans asked, in their order; recorded ones are not run again."""
        known = self.probed if ask.probe else self.trials
        notes = ask.notes or ("",) * len(ask.plans)
        split = CALIBRATION if ask.probe else EVALUATION
        fresh: dict[str, tuple[Plan, str]] = {}
        for plan, note in zip(ask.plans, notes, strict=True):
            if plan.key not in known:
                fresh[plan.key] = (plan, note)
        # numbers follow the order of asking, so a run that was killed within a batch repeats them
        before = len(self.order)
        if not ask.probe:
            asked_now = dict.fromkeys(p.key for p in ask.plans)
            self.order += [key for key in asked_now if key not in self.order]
            fresh = self._within_budget(fresh)
        if fresh:
            self._round_for(p for p, _ in fresh.values())
            self._run(fresh, split=split, probe=ask.probe, before=before)
        if ask.latency:
            asked = [p.key for p in ask.plans if p.key in known]
            self.time([k for k in asked if known[k].latency is None and known[k].error is None])
        if any(p.key not in known for p in ask.plans):
            raise OutOfBudget
        return [self._as_first_timed(known[p.key]) for p in ask.plans]

    def _as_first_timed(self, trial: Trial) -> Trial:
        """Return the first timing, so that a resumed search repeats its decisions."""
        first = self.state.first_timing(trial.number)
        return trial if first is None else dataclasses.replace(trial, latency=first)

    def _round_for(self, plans: Iterable[Plan]) -> None:
        """Weights are rounded for the output when the first plan on their variant wants that."""
        wanting = [p for p in plans if p.rounds_for_output]
        for variant in dict.fromkeys(variant_of(p.transforms) for p in wanting):
            self.rounding.ensure(variant)

    def _within_budget(self, fresh: dict[str, tuple[Plan, str]]) -> dict[str, tuple[Plan, str]]:
        if self.budget.max_trials is None:
            return fresh
        left = max(0, self.budget.max_trials - len(self.trials))
        return dict(list(fresh.items())[:left])

    @property
    def deadline(self) -> float | None:
        if self.budget.max_minutes is None:
            return None
        whole = self.budget.max_minutes * 60.0
        return self.began + min(SEARCH_SHARE * whole, whole - self._afterwards())

    def _afterwards(self) -> float:
        """Seconds that held-out figures of the chosen will take, going by the trials so far."""
        spent = sorted(t.seconds for t in self.trials.values() if t.error is None)
        if not spent:
            return 0.0
        a_row = spent[len(spent) // 2] / max(1, self.store.rows(EVALUATION))
        # the float model and about four trials, on all workers; the front is timed, and the chosen
        # once or twice more
        answers = 5 * a_row * self.store.rows(REPORT) / self.pool.size
        return answers + 20 * self.clock.timing.seconds

    def _run(
        self, fresh: Mapping[str, tuple[Plan, str]], *, split: str, probe: bool, before: int
    ) -> None:
        """Run plans at once; they know the trials of earlier asks, numbered below `before`."""
        reference = self._reference(split)
        rows = min(self.probes, reference.rows) if probe else reference.rows
        earlier = [] if probe else [t for t in self.trials.values() if t.number < before]
        beaten_by = rivals(earlier) if self.racing else []
        order = hardest_first(earlier, rows) if beaten_by else None
        by_content = {t.content: t for t in earlier if t.content}
        numbers = {} if probe else self._numbers(fresh)
        leaders: dict[str, Candidate] = {}
        running: dict[int, Candidate] = {}
        waiting: list[tuple[Candidate, Ticket]] = []  # same model as one that is under way
        for plan, note in fresh.values():
            number = -1 if probe else numbers[plan.key]
            view = scoring.Judge(reference, device=self.device.name, rows=rows, order=order)
            candidate = Candidate(
                number, plan, note, view, rivals=beaten_by, by_content=by_content, leaders=leaders
            )
            job = self._job(plan, split, rows, chunks=10 if order is None else RACE_CHUNKS)
            if order is not None:
                job["order"] = order.tolist()
            ticket = self.pool.submit(job, candidate.hear)
            candidate.stop = _stopper(self.pool, ticket)
            running[ticket.number] = candidate
        while running:
            left = None if self.deadline is None else self.deadline - time.monotonic()
            if left is not None and left <= 0:
                self.pool.cancel()
                raise OutOfBudget
            for ticket in self.pool.wait(left):
                waiting.append((running.pop(ticket.number), ticket))
            for candidate, ticket in [w for w in waiting if w[0].can_conclude]:
                waiting.remove((candidate, ticket))
                self._conclude(candidate.trial(ticket), probe=probe)
        for candidate, ticket in waiting:
            self._conclude(candidate.trial(ticket), probe=probe)

    def _numbers(self, keys: Iterable[str]) -> dict[str, int]:
        """A new trial's number is its place in the order of asking, unless that is taken.

        It is taken where a resumed search with other settings asks in another order.
        """
        taken = {t.number for t in self.trials.values()}
        numbers: dict[str, int] = {}
        for key in keys:
            place = self.order.index(key)
            numbers[key] = place if place not in taken else max(taken) + 1
            taken.add(numbers[key])
        return numbers

    def _conclude(self, trial: Trial, *, probe: bool) -> None:
        self.append(ProbeFinished(trial) if probe else TrialFinished(trial))

    # ---------------------------------------------------------------------------------- latency

    def time(self, keys: Sequence[str], *, final: bool = False) -> None:
        """Time trials alone, in small groups with the float model among them.

        A search stops timing when its time is up; the final figures are always made. What could
        not be timed before is left out.
        """
        keys = [k for k in keys if not self.state.has_failed(TIMING, k)]
        for start in range(0, len(keys), self.clock.timing.group):
            chosen = keys[start : start + self.clock.timing.group]
            plans = [self.trials[k].plan for k in chosen]
            times = self.clock.measure(plans, float_plan=self.float_plan)
            for key, found in zip(chosen, times, strict=True):
                if isinstance(found, Failure):
                    self.note_failure(TIMING, found, plan_key=key)
                else:
                    self.append(self.state.timing_event(self.trials[key].number, found))
            if not final and self.deadline is not None and time.monotonic() > self.deadline:
                break

    def time_baseline(self) -> Latency | None:
        found = self.clock.baseline(self.float_plan)
        if isinstance(found, Failure):
            self.note_failure(TIMING, found)
            return None
        return found

    def is_settled(self, key: str) -> bool:
        """Whether a trial was timed twice, in this or an earlier run, or cannot be timed."""
        times = len(self.state.timings.get(self.trials[key].number, ()))
        return times > 1 or self.state.has_failed(TIMING, key)

    # ------------------------------------------------------------------------------ final figures

    def confirm(self, keys: Sequence[str]) -> None:
        """Measure chosen trials on the report split, which no search has seen."""
        if self.store.rows(REPORT) == 0:
            return
        reference = self._reference(REPORT)
        todo = [k for k in keys if REPORT not in self.trials[k].measurements]
        todo = [k for k in todo if not self.state.has_failed(REPORT_SPLIT, k)]
        running: dict[int, tuple[str, Candidate]] = {}
        for key in todo:
            trial = self.trials[key]
            view = scoring.Judge(reference, device=self.device.name, rows=reference.rows)
            candidate = Candidate(trial.number, trial.plan, "", view)
            ticket = self.pool.submit(self._job(trial.plan, REPORT, reference.rows), candidate.hear)
            running[ticket.number] = (key, candidate)
        while running:
            for ticket in self.pool.wait():
                key, candidate = running.pop(ticket.number)
                if ticket.failure is not None:
                    self.note_failure(REPORT_SPLIT, ticket.failure, plan_key=key)
                else:
                    number = self.trials[key].number
                    self.append(TrialMeasured(number, candidate.view.measurement()))


def _go_on(message: Json) -> Json | None:
    return {"go": True} if "assembled" in message else None


def _stopper(pool: Pool, ticket: Ticket) -> Callable[[], None]:
    return lambda: pool.stop(ticket)

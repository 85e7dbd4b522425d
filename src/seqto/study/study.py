"""The loop: strategy → jobs → trials → journal → result.

Resume is replay: the strategy runs again from the same seed, and a plan whose key is in the
journal gets its recorded trial. Only this process writes the journal.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices.device import Device
from seqto.execution.executor import Executor
from seqto.model import outputs as model_outputs
from seqto.record.journal import Journal
from seqto.record.trial import Trial
from seqto.records import CALIBRATION, EVALUATION, REPORT, Failure, Json, Latency, Measurement
from seqto.search.space import Space
from seqto.search.strategy import Ask, Strategy
from seqto.selection.pareto import front
from seqto.study.round_weights import Rounding
from seqto.study.runner import FOOTPRINT, REPORT_SPLIT, TIMING, OutOfBudget, PlanRunner
from seqto.study.timing import Clock, Timing, pooled, with_footprint
from seqto.tasks.task import Task
from seqto.transforms.variants import variant_of

if TYPE_CHECKING:
    pass

Listener = Callable[[Json], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """When to end; the clock may end a study, it never steers a strategy."""

    max_trials: int | None = None
    max_minutes: float | None = None


SEARCH_SHARE = 0.85  # of the time; the rest is for timing, held-out figures and the report


class Study:
    """One run: what is asked, what is known, what is written."""

    def __init__(
        self,
        journal: Journal,
        executor: Executor,
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
        self.journal, self.executor, self.store = journal, executor, store
        self.budget, self.listener = budget, listener
        self.clock = Clock(executor, timing)
        self.all_footprints = bool({"peak_memory", "load_time"} & set(race_objectives))
        self.rounding = rounding
        self.began = time.monotonic() if began is None else began
        self.runner = PlanRunner(
            self,
            executor,
            store,
            task=task,
            device=device,
            judged=judged,
            racing=racing and set(race_objectives) <= {"loss", "size"},
            probes=probes,
            chunk=chunk,
            batch_seconds=min(0.15, timing.seconds),
        )
        self.trials: dict[str, Trial] = {}  # by plan key
        self.probed: dict[str, Trial] = {}
        self.first_timed: dict[int, Latency] = {}  # by number: what the search has seen
        self.order: list[str] = []  # keys in the order they were asked
        self.failed: set[tuple[str, str | None]] = set()  # (step, plan key): not tried again
        self._replay()

    # ------------------------------------------------------------------------------ the record

    def _replay(self) -> None:
        events = self.journal.events
        self.trials = {t.plan.key: t for t in replayed(events).values()}
        for event in events:
            if event["event"] == "probe":
                trial = Trial.from_json(event["trial"])
                self.probed[trial.plan.key] = trial
            elif event["event"] == "latency":
                found = Latency.from_json(event["latency"])
                self.first_timed.setdefault(event["number"], found)
            elif event["event"] == "failure":
                self.failed.add((event["step"], event["plan_key"]))

    def _attach(self, key: str, found: Measurement) -> None:
        trial = self.trials[key]
        merged = {**trial.measurements, found.split: found}
        self.trials[key] = dataclasses.replace(trial, measurements=merged)

    @property
    def events(self) -> Sequence[Json]:
        return self.journal.events

    def write(self, event: Json) -> None:
        self.journal.append(event)
        self.listener(event)

    def found(self, kind: str) -> Json | None:
        """The first event of a kind, from this or an earlier run."""
        return next((e for e in self.journal.events if e["event"] == kind), None)

    def note_failure(self, step: str, failure: Failure, *, plan_key: str | None = None) -> None:
        """A step that failed beside the trials: batch, timing, report split or profile."""
        self.failed.add((step, plan_key))
        trial = None if plan_key is None else self.trials.get(plan_key)
        self.write(
            {
                "event": "failure",
                "step": step,
                "number": trial.number if trial else None,
                "plan_key": plan_key,
                "failure": failure.to_json(),
            }
        )

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
            self.runner.run(
                fresh,
                split=split,
                probe=ask.probe,
                numbers={} if ask.probe else self._numbers(fresh),
                earlier=[] if ask.probe else [t for t in self.trials.values() if t.number < before],
                conclude=lambda trial: self._conclude(trial, probe=ask.probe),
                deadline=lambda: self.deadline,
            )
        if ask.latency:
            asked = [p.key for p in ask.plans if p.key in known]
            self.time([k for k in asked if known[k].latency is None and known[k].error is None])
        if any(p.key not in known for p in ask.plans):
            raise OutOfBudget
        return [self._as_first_timed(known[p.key]) for p in ask.plans]

    def _as_first_timed(self, trial: Trial) -> Trial:
        """What is timed again at the end must not send a resumed search another way."""
        return dataclasses.replace(trial, latency=self.first_timed.get(trial.number, trial.latency))

    def _round_for(self, plans: Iterable[Plan]) -> None:
        """Weights are rounded for the output when the first plan on their variant wants that."""
        wanting = [p for p in plans if any(s.rounding == "output" for s in p.as_dict().values())]
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
        answers = 5 * a_row * self.store.rows(REPORT) / self.executor.slots
        return answers + 20 * self.clock.timing.seconds

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
        known = self.probed if probe else self.trials
        known[trial.plan.key] = trial
        self.write({"event": "probe" if probe else "trial", "trial": trial.to_json()})

    # ---------------------------------------------------------------------------------- latency

    def time(self, keys: Sequence[str], *, final: bool = False) -> None:
        """Time trials alone, in small groups with the float model among them.

        A search stops timing when its time is up; the final figures are always made. What could
        not be timed before is left out.
        """
        keys = [k for k in keys if (TIMING, k) not in self.failed]
        for start in range(0, len(keys), self.clock.timing.group):
            chosen = keys[start : start + self.clock.timing.group]
            plans = [self.trials[k].plan for k in chosen]
            times = self.clock.measure(plans, float_plan=self.runner.float_plan)
            for key, found in zip(chosen, times, strict=True):
                if isinstance(found, Failure):
                    self.note_failure(TIMING, found, plan_key=key)
                else:
                    self._record_latency(key, found)
            if self.all_footprints:
                self.measure_footprints(chosen)
            if not final and self.deadline is not None and time.monotonic() > self.deadline:
                break

    def _record_latency(self, key: str, latency: Latency) -> None:
        trial = self.trials[key]
        if trial.latency is not None:
            latency = pooled(trial.latency, latency)
        self.first_timed.setdefault(trial.number, latency)
        self.trials[key] = dataclasses.replace(trial, latency=latency)
        self.write({"event": "latency", "number": trial.number, "latency": latency.to_json()})

    def time_baseline(self) -> Latency | None:
        found = self.clock.baseline(self.runner.float_plan)
        if isinstance(found, Failure):
            self.note_failure(TIMING, found)
            return None
        footprint = self.clock.footprint(self.runner.float_plan)
        if isinstance(footprint, Failure):
            self.note_failure(FOOTPRINT, footprint)
            return found
        return with_footprint(found, footprint)

    def measure_footprints(self, keys: Sequence[str]) -> None:
        """Memory and time to load of timed trials, unless they are known or have failed."""
        for key in keys:
            trial = self.trials[key]
            if trial.latency is None or (FOOTPRINT, key) in self.failed:
                continue
            if trial.latency.load_ms is not None:
                continue
            found = self.clock.footprint(trial.plan)
            if isinstance(found, Failure):
                self.note_failure(FOOTPRINT, found, plan_key=key)
                continue
            latency = with_footprint(trial.latency, found)
            self.trials[key] = dataclasses.replace(trial, latency=latency)
            figures = {"peak_memory_bytes": found.peak_memory_bytes, "load_ms": found.load_ms}
            self.write({"event": FOOTPRINT, "number": trial.number, **figures})

    def is_settled(self, key: str) -> bool:
        """Whether a trial was timed twice, in this or an earlier run, or cannot be timed."""
        events, number = self.journal.events, self.trials[key].number
        times = sum(e["event"] == "latency" and e["number"] == number for e in events)
        return times > 1 or (TIMING, key) in self.failed

    def untimed_front(self) -> list[int]:
        """Numbers of trials without a latency that no other beats in loss and size."""
        seen = [t for t in self.trials.values() if t.error is None and t.loss is not None]
        whole = [t for t in seen if not t.measurements[EVALUATION].stopped_early]
        points = [(t.loss.value, float(t.size_bytes)) for t in whole if t.loss is not None]
        return [whole[i].number for i in front(points) if whole[i].latency is None]

    # ------------------------------------------------------------------------------ final figures

    def confirm(self, keys: Sequence[str]) -> None:
        """Measure chosen trials on the report split, which no search has seen."""
        if self.store.rows(REPORT) == 0:
            return
        todo = [k for k in keys if REPORT not in self.trials[k].measurements]
        todo = [k for k in todo if (REPORT_SPLIT, k) not in self.failed]
        for trial, found in self.runner.confirm([self.trials[k] for k in todo]):
            if isinstance(found, Failure):
                self.note_failure(REPORT_SPLIT, found, plan_key=trial.plan.key)
            else:
                self._attach(trial.plan.key, found)
                data = {"number": trial.number, "measurement": found.to_json()}
                self.write({"event": "measurement", **data})


def replayed(events: Sequence[Json]) -> dict[int, Trial]:
    """Trials in the order of their numbers, with what was measured of them later."""
    trials: dict[int, Trial] = {}
    for event in events:
        if event["event"] == "trial":
            trial = Trial.from_json(event["trial"])
            trials[trial.number] = trial
        elif event["event"] == "latency":
            latency = Latency.from_json(event["latency"])
            number = event["number"]
            trials[number] = dataclasses.replace(trials[number], latency=latency)
        elif event["event"] == FOOTPRINT:
            trial = trials[event["number"]]
            if trial.latency is not None:
                figures = {k: event[k] for k in ("peak_memory_bytes", "load_ms")}
                latency = dataclasses.replace(trial.latency, **figures)
                trials[trial.number] = dataclasses.replace(trial, latency=latency)
        elif event["event"] == "measurement":
            found = Measurement.from_json(event["measurement"])
            trial = trials[event["number"]]
            merged = {**trial.measurements, found.split: found}
            trials[event["number"]] = dataclasses.replace(trial, measurements=merged)
    return dict(sorted(trials.items()))

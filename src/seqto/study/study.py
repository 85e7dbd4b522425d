"""The loop: strategy → jobs → trials → journal → result.

Resume is replay: the strategy runs again from the same seed, and a plan whose key is in the
journal gets its recorded trial. Only this process writes the journal.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices.device import Device
from seqto.execution.executor import Executor
from seqto.model import outputs as model_outputs
from seqto.record.events import (
    BUDGET,
    DONE,
    FOOTPRINT,
    LABELLED_SET,
    REPORT_SPLIT,
    TIMING,
    Event,
    ExamplesFound,
    FootprintMeasured,
    ProbeFinished,
    StepFailed,
    TrialFinished,
    TrialMeasured,
    TrialTimed,
)
from seqto.record.journal import Journal
from seqto.record.replay import replay
from seqto.record.trial import Trial
from seqto.records import EVALUATION, LABELLED, REPORT, WORST, Failure, Json, Latency
from seqto.search.space import Space
from seqto.search.strategy import Ask, Strategy
from seqto.selection.objectives import LATENCY, can_race
from seqto.selection.racing import beats, no_slower, rivals, saw_all_samples, total_of
from seqto.selection.recommend import recommend
from seqto.study.examples import described
from seqto.study.fleet import FleetClock, FleetRunner
from seqto.study.float_model import FloatModel
from seqto.study.meter import PROBES, TRIALS, Meter
from seqto.study.meter import TIMING as METER_TIMING
from seqto.study.round_weights import Rounding
from seqto.study.runner import OutOfBudget, PlanRunner, Round
from seqto.study.timing import Clock, Timing, with_footprint
from seqto.tasks.task import Task
from seqto.transforms.variants import variant_of

Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Budget:
    """When to end; the clock may end a study, it never steers a strategy."""

    max_trials: int | None = None
    max_minutes: float | None = None


SEARCH_SHARE = 0.85  # of the time; the rest is for timing, held-out figures and the report


@dataclass(frozen=True, slots=True)
class DeviceRun:
    """One device of a run: its workers, and how it is timed."""

    name: str
    executor: Executor
    device: Device
    timing: Timing


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
        labelled_task: Task | None = None,
        examples: int = 0,
        batch: int | None = None,
        device_name: str = "",
        others: Sequence[DeviceRun] = (),
        latency_of: str = WORST,
        meter: Meter | None = None,
    ) -> None:
        """`others`: further devices that every trial is judged on."""
        self.examples = examples  # of what changed, shown of the recommended trial
        self.journal, self.executor, self.store = journal, executor, store
        self.budget, self.listener = budget, listener
        self.all_footprints = bool({"peak_memory", "load_time"} & set(race_objectives))
        self.rounding = rounding
        self.began = time.monotonic() if began is None else began
        self.state = replay(journal.events)
        self.before_s = self.state.elapsed_s  # of earlier calls
        self.meter = meter or Meter(self.began)
        self.order: dict[str, int] = {}  # key → its place in the order of asking

        def runner_on(one: DeviceRun, *, name: str = "") -> PlanRunner:
            float_model = FloatModel(
                self,
                one.executor,
                store,
                task=task,
                device=one.device,
                judged=judged,
                chunk=chunk,
                batch_seconds=min(0.15, timing.seconds),
                labelled_task=labelled_task,
                batch=batch,
                name=name,
            )
            return PlanRunner(
                float_model,
                racing=racing and can_race(race_objectives),
                timed=LATENCY.name in race_objectives,
                probes=probes,
            )

        first = DeviceRun(device_name, executor, device, timing)
        self.devices = (first, *others)
        self.runner: PlanRunner | FleetRunner = runner_on(first)
        self.clock: Clock | FleetClock = Clock(executor, timing, on_timed=self.runner.note_node)
        if others:
            clocks = {one.name: Clock(one.executor, one.timing) for one in self.devices}
            self.runner = FleetRunner(
                {one.name: runner_on(one, name=one.name) for one in self.devices}
            )
            self.clock = FleetClock(clocks, judged_by=latency_of)

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
        if isinstance(event, TrialFinished | TrialTimed) and event.at_s is None:
            elapsed = self.before_s + time.monotonic() - self.began
            event = dataclasses.replace(event, at_s=round(elapsed, 3))
        recorded = self.journal.append(event)
        self.state.apply(recorded)
        self.listener(recorded)

    def note_failure(self, step: str, failure: Failure, *, plan_key: str | None = None) -> None:
        """Record a step that failed beside the trials: batch, timing, report split or profile."""
        trial = None if plan_key is None else self.trials.get(plan_key)
        self.append(StepFailed(step, trial.number if trial else None, plan_key, failure))

    # --------------------------------------------------------------------------------- the loop

    def search(self, strategy: Strategy, space: Space, *, seed: int) -> str:
        """Run a strategy to its end or the budget's; returns which."""
        generator = strategy.search(space, seed=seed)
        try:
            ask = next(generator)
            while True:
                ask = generator.send(self.answer(ask))
        except StopIteration:
            return DONE
        except OutOfBudget:
            return BUDGET

    def answer(self, ask: Ask) -> list[Trial]:
        """Return trials for the plans asked, in their order; recorded ones are not run again."""
        known = self.probed if ask.probe else self.trials
        notes = ask.notes or ("",) * len(ask.plans)
        # probes too: on the samples that weights were rounded for, they would look too good
        split = EVALUATION
        fresh: dict[str, tuple[Plan, str]] = {}
        for plan, note in zip(ask.plans, notes, strict=True):
            if plan.key not in known:
                fresh[plan.key] = (plan, note)
        # numbers follow the order of asking, so a run that was killed within a batch repeats them
        before = len(self.order)
        lower_bounds: dict[str, float | None] = {}
        if ask.latency and not ask.probe:
            below = ask.not_below or (None,) * len(ask.plans)
            lower_bounds = {p.key: low for p, low in zip(ask.plans, below, strict=True)}
        if not ask.probe:
            for plan in ask.plans:
                self.order.setdefault(plan.key, len(self.order))
            fresh = self._within_budget(fresh)
        if fresh:
            phase = PROBES if ask.probe else TRIALS
            earlier = [t for t in self.trials.values() if t.number < before and not ask.probe]
            self._round_for(p for p, _ in fresh.values())
            with self.meter.during(phase):
                work = Round(
                    fresh,
                    split=split,
                    probe=ask.probe,
                    numbers={} if ask.probe else self._numbers(fresh),
                    earlier=earlier,
                    conclude=lambda trial: self._conclude(trial, probe=ask.probe),
                    deadline=lambda: self.deadline,
                    not_below=lower_bounds,
                )
                self.runner.run(work)
        if ask.latency:
            asked = [known[p.key] for p in ask.plans if p.key in known]
            self.time(self._worth_timing(asked, lower_bounds, before=before))
        if any(p.key not in known for p in ask.plans):
            raise OutOfBudget
        return [self._as_first_timed(known[p.key]) for p in ask.plans]

    def _worth_timing(
        self, trials: Sequence[Trial], not_below: Mapping[str, float | None], *, before: int
    ) -> list[str]:
        """Return the keys of untimed trials that may be on the front, by what is known of them."""
        untimed = [
            (t, t.loss, not_below.get(t.plan.key) if self.runner.racing else None)
            for t in trials
            if t.latency is None and t.loss is not None and saw_all_samples(t)
        ]
        if all(low is None for _, _, low in untimed):
            return [t.plan.key for t, _, _ in untimed]
        leaders = rivals((t for t in self.trials.values() if t.number < before), timed=True)
        return [
            t.plan.key
            for t, loss, low in untimed
            if low is None
            or not beats(
                no_slower(leaders, low), t.size_bytes, total_of(loss), portable=t.is_portable
            )
        ]

    def _as_first_timed(self, trial: Trial) -> Trial:
        """Return the first timing, so that a resumed search repeats its decisions."""
        first = self.state.first_timing(trial.number)
        return trial if first is None else dataclasses.replace(trial, latency=first)

    def _round_for(self, plans: Iterable[Plan]) -> None:
        """Round weights for the output when the first plan on their variant wants that."""
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
        """Return the seconds that held-out figures will take, going by the trials so far."""
        spent = sorted(t.seconds for t in self.trials.values() if t.error is None)
        if not spent:
            return 0.0
        a_row = spent[len(spent) // 2] / max(1, self.store.rows(EVALUATION))
        # the float model and about four trials, on all workers; the front is timed, and the chosen
        # once or twice more
        final = self.store.rows(REPORT) + self.store.splits().get(LABELLED, 0)
        answers = 5 * a_row * final / self.executor.slots
        return answers + 20 * self.clock.timing.seconds

    def _numbers(self, keys: Iterable[str]) -> dict[str, int]:
        """Return numbers of new trials: their places in the order of asking, if not taken.

        It is taken where a resumed search with other settings asks in another order.
        """
        taken = {t.number for t in self.trials.values()}
        numbers: dict[str, int] = {}
        for key in keys:
            position = self.order[key]
            numbers[key] = position if position not in taken else max(taken) + 1
            taken.add(numbers[key])
        return numbers

    def _conclude(self, trial: Trial, *, probe: bool) -> None:
        self.append(ProbeFinished(trial) if probe else TrialFinished(trial))

    # ---------------------------------------------------------------------------------- latency

    def time(self, keys: Sequence[str], *, final: bool = False, settling: bool = False) -> None:
        """Time trials alone, in small groups with the float model among them.

        A search stops timing when its time is up; the final figures are always made. What could
        not be timed before is left out. `settling`: these are all that the choice is between.
        """
        keys = self._one_a_graph(k for k in keys if not self.state.has_failed(TIMING, k))
        with self.meter.during(METER_TIMING):
            self._time_groups(keys, final=final, settling=settling)

    def _time_groups(self, keys: Sequence[str], *, final: bool, settling: bool) -> None:
        for start in range(0, len(keys), self.clock.timing.group):
            chosen = keys[start : start + self.clock.timing.group]
            plans = [self.trials[k].plan for k in chosen]
            times = self.clock.measure(plans, float_plan=self.runner.float_model.plan)
            for key, outcome in zip(chosen, times, strict=True):
                if isinstance(outcome, Failure):
                    self.note_failure(TIMING, outcome, plan_key=key)
                else:
                    number = self.trials[key].number
                    self.append(self.state.timing_event(number, outcome, final=settling))
            if self.all_footprints:
                self.measure_footprints(chosen)
            if not final and self.deadline is not None and time.monotonic() > self.deadline:
                break

    def _one_a_graph(self, keys: Iterable[str]) -> list[str]:
        """Return the first trial of each graph: those with the same graph share its timing.

        What runs the float model's graph is as fast as that, and is not timed.
        """
        chosen: dict[str, str] = {}
        for key in keys:
            trial = self.trials[key]
            if not self.state.is_float_graph(trial):
                chosen.setdefault(trial.graph or key, key)
        return list(chosen.values())

    def time_baseline(self) -> Latency | None:
        outcome = self.clock.baseline(self.runner.float_model.plan)
        if isinstance(outcome, Failure):
            self.note_failure(TIMING, outcome)
            return None
        (footprint,) = self.clock.footprints([self.runner.float_model.plan])
        if isinstance(footprint, Failure):
            self.note_failure(FOOTPRINT, footprint)
            return outcome
        return with_footprint(outcome, footprint)

    def measure_footprints(self, keys: Sequence[str]) -> None:
        """Measure memory and time to load of timed trials, unless known or failed before."""
        todo = [key for key in dict.fromkeys(keys) if self._lacks_footprint(key)]
        size = self.clock.timing.group  # so many files at a time take room on the disk
        for group in (todo[start : start + size] for start in range(0, len(todo), size)):
            outcomes = self.clock.footprints([self.trials[key].plan for key in group])
            for key, outcome in zip(group, outcomes, strict=True):
                if isinstance(outcome, Failure):
                    self.note_failure(FOOTPRINT, outcome, plan_key=key)
                else:
                    number = self.trials[key].number
                    self.append(
                        FootprintMeasured(number, outcome.peak_memory_bytes, outcome.load_ms)
                    )

    def _lacks_footprint(self, key: str) -> bool:
        latency = self.trials[key].latency
        known = latency is None or latency.load_ms is not None
        return not known and not self.state.has_failed(FOOTPRINT, key)

    def is_settled(self, key: str) -> bool:
        """Return whether a trial was timed beside the others of the choice, or cannot be timed."""
        trial = self.trials[key]
        known = self.state.has_final_timing(trial) or self.state.is_float_graph(trial)
        return known or self.state.has_failed(TIMING, key)

    # ------------------------------------------------------------------------------ final figures

    def confirm(self, keys: Sequence[str]) -> None:
        """Measure chosen trials on the report split, which no search has seen."""
        self._measure(keys, REPORT, step=REPORT_SPLIT)

    def measure_labelled(self, keys: Sequence[str]) -> None:
        """Score chosen trials on the labelled set, where there is one."""
        self._measure(keys, LABELLED, step=LABELLED_SET)

    def _measure(self, keys: Sequence[str], split: str, *, step: str) -> None:
        if not self.store.splits().get(split):
            return
        todo = [k for k in keys if split not in self.trials[k].measurements]
        todo = [k for k in todo if not self.state.has_failed(step, k)]
        counts = dict.fromkeys(todo, self.examples) if split == REPORT else {}
        chosen = [self.trials[k] for k in todo]
        shown: dict[int, tuple[Json, ...]] = {}
        for trial, outcome, examples in self.runner.confirm(chosen, split=split, examples=counts):
            if isinstance(outcome, Failure):
                self.note_failure(step, outcome, plan_key=trial.plan.key)
            else:
                self.append(TrialMeasured(trial.number, outcome))
                shown[trial.number] = examples
        best = recommend(self.state).best if any(shown.values()) else None
        if best is not None and shown.get(best):
            self.append(ExamplesFound(best, split, described(self.store, split, shown[best])))

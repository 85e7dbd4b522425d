"""Several devices, one search: plans run on one device after the other, and are judged on all.

Each device has workers, a float reference and a clock of its own. What is not a trial (profile,
layer analysis, memory) is taken from the first device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from seqto.assembly.plan import Plan
from seqto.execution.executor import Done
from seqto.execution.jobs import MemoryMeasured
from seqto.record.fleet import joined_latency, joined_measurement, joined_trial, of_device
from seqto.record.trial import Trial
from seqto.records import REPORT, Failure, Json, Latency, Measurement
from seqto.study.float_model import FloatModel
from seqto.study.runner import PlanRunner, Round
from seqto.study.timing import Clock, Timing

# Plans of one ask that run on all devices before the next ones do. A killed run repeats these at
# most; fewer would leave workers idle at the end of every round.
ROUND = 8  # for each worker


class FleetRunner:
    """The runners of several devices as one; the first device comes first."""

    def __init__(self, runners: Mapping[str, PlanRunner]) -> None:
        self.runners = dict(runners)
        self.first = next(iter(self.runners.values()))

    # ------------------------------------------------------------------- what the first one knows

    @property
    def racing(self) -> bool:
        return self.first.racing

    @property
    def float_model(self) -> FloatModel:
        return self.first.float_model

    def profile(self, plan: Plan, *, scheme: str) -> Json | None:
        return self.first.profile(plan, scheme=scheme)

    def note_node(self, done: Done) -> None:
        self.first.note_node(done)

    # ------------------------------------------------------------------------- what all of them do

    def baseline(self) -> None:
        for runner in self.runners.values():
            runner.baseline()

    def try_all(self, plans: Sequence[Plan]) -> list[Failure | None]:
        """Return why each plan does not run on some device, with its name; None if it runs."""
        failures: list[Failure | None] = [None] * len(plans)
        for name, runner in self.runners.items():
            left = [i for i, failure in enumerate(failures) if failure is None]
            for i, failure in zip(left, runner.try_all([plans[i] for i in left]), strict=True):
                failures[i] = None if failure is None else of_device(name, failure)
        return failures

    def run(self, work: Round) -> None:
        """Run plans on every device, some at a time; `conclude` gets each trial of all devices."""
        keys = list(work.plans)
        known = {t.content: t for t in work.earlier if t.content}
        size = ROUND * self.first.executor.slots
        for start in range(0, len(keys), size):
            left = {key: work.plans[key] for key in keys[start : start + size]}
            by_plan: dict[str, dict[str, Trial]] = {key: {} for key in left}
            for name, runner in self.runners.items():
                collected: list[Trial] = []
                runner.run(dataclasses.replace(work, plans=left, conclude=collected.append))
                for trial in collected:
                    by_plan[trial.plan.key][name] = trial
                # what failed, is a copy or was beaten need not run on the next device
                going_on = [t.plan.key for t in collected if _goes_on(t, work.split)]
                left = {key: work.plans[key] for key in going_on}
            joined = [joined_trial(trials) for trials in by_plan.values() if trials]
            for trial in sorted(joined, key=lambda t: t.same_as is not None):
                twin = known.get(trial.content) if trial.same_as is not None else None
                known.setdefault(trial.content, trial)
                work.conclude(trial if twin is None else _with_figures_of(trial, twin))

    def confirm(
        self,
        trials: Sequence[Trial],
        *,
        split: str = REPORT,
        examples: Mapping[str, int] | None = None,
    ) -> Iterator[tuple[Trial, Measurement | Failure, tuple[Json, ...]]]:
        """Measure trials on one more split of all devices; examples are of the worst one."""
        by_trial: dict[int, dict[str, Measurement | Failure]] = {t.number: {} for t in trials}
        shown: dict[int, dict[str, tuple[Json, ...]]] = {t.number: {} for t in trials}
        for name, runner in self.runners.items():
            for trial, measured, some in runner.confirm(trials, split=split, examples=examples):
                by_trial[trial.number][name] = measured
                shown[trial.number][name] = some
        for trial in trials:
            outcomes = by_trial[trial.number]
            failed = {n: o for n, o in outcomes.items() if isinstance(o, Failure)}
            for name, failure in failed.items():
                yield trial, of_device(name, failure), ()
                break
            else:
                joined = joined_measurement(
                    {n: o for n, o in outcomes.items() if isinstance(o, Measurement)}
                )
                yield trial, joined, shown[trial.number][joined.device]


def _goes_on(trial: Trial, split: str) -> bool:
    measurement = trial.measurements.get(split)
    beaten = measurement is not None and measurement.stopped_early
    return trial.error is None and trial.same_as is None and not beaten


def _with_figures_of(trial: Trial, twin: Trial) -> Trial:
    """Return a copy of another trial with that one's figures: it may have run on all devices."""
    return dataclasses.replace(
        trial, measurements=dict(twin.measurements), error=twin.error, latency=twin.latency
    )


class FleetClock:
    """The clocks of several devices as one. They run one after the other, each alone."""

    def __init__(self, clocks: Mapping[str, Clock], *, judged_by: str) -> None:
        self._clocks, self._judged_by = dict(clocks), judged_by
        self._first = next(iter(self._clocks.values()))

    @property
    def timing(self) -> Timing:
        return self._first.timing

    def measure(self, plans: Sequence[Plan], *, float_plan: Plan | None) -> list[Latency | Failure]:
        """Return one latency a plan: that of the judged device, with those of all devices."""
        by_device = {n: c.measure(plans, float_plan=float_plan) for n, c in self._clocks.items()}
        return [
            self._joined({name: rows[index] for name, rows in by_device.items()})
            for index in range(len(plans))
        ]

    def baseline(self, float_plan: Plan | None) -> Latency | Failure:
        return self._joined({n: c.baseline(float_plan) for n, c in self._clocks.items()})

    def footprints(self, plans: Sequence[Plan | None]) -> list[MemoryMeasured | Failure]:
        return self._first.footprints(plans)

    def _joined(self, by_device: Mapping[str, Latency | Failure]) -> Latency | Failure:
        for name, one in by_device.items():
            if isinstance(one, Failure):
                return of_device(name, one)
        timed = {n: one for n, one in by_device.items() if isinstance(one, Latency)}
        return joined_latency(timed, self._judged_by)

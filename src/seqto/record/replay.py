"""The state of a run: what its events say together. The only reader of events.

`Study` owns one state and applies each event as it is written; a resumed call, the reports, the
live page and `seqto export` get theirs by `replay`. Both ways give equal states.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from seqto.errors import JournalError
from seqto.record import fleet
from seqto.record.events import (
    MENU,
    OBJECTIVES,
    BaselineMeasured,
    BatchChosen,
    Event,
    ExamplesFound,
    Finding,
    FootprintMeasured,
    Int8ProductsTested,
    KnowledgeTaken,
    LayersRanked,
    NodeUsed,
    PlanProfiled,
    ProbeFinished,
    RunEnded,
    RunStarted,
    SchemesTried,
    SettingsChanged,
    StepFailed,
    TrialFinished,
    TrialMeasured,
    TrialTimed,
)
from seqto.record.journal import read_events
from seqto.record.trial import Trial
from seqto.records import Json, Latency


@dataclass(slots=True)
class RunState:
    """All that is known of a run. Readers change nothing; only `apply` does."""

    header: RunStarted | None = None
    settings: Json = field(default_factory=dict)  # of the last call
    batch: int | None = None
    int8_products: Int8ProductsTested | None = None
    baseline: BaselineMeasured | None = None
    analysis: LayersRanked | None = None
    tried: dict[str, SchemesTried] = field(default_factory=dict)  # by key of the choices
    default_key: str | None = None  # plan of the fully quantized model, of the last call
    trials: dict[int, Trial] = field(default_factory=dict)  # by number, in the order of finishing
    by_key: dict[str, Trial] = field(default_factory=dict)  # the same trials by plan key
    # the numbers of the trials that run a graph; a dict keeps their order
    by_graph: dict[str, dict[int, None]] = field(default_factory=dict)
    probes: dict[str, Trial] = field(default_factory=dict)  # by plan key
    timings: dict[int, list[Latency]] = field(default_factory=dict)  # as recorded
    graph_timings: dict[str, list[Latency]] = field(default_factory=dict)  # the same, by graph
    # the last timing beside all that the choice was between, by graph or `#` and the number
    final_timings: dict[str, Latency] = field(default_factory=dict)
    profiles: dict[tuple[str, str], PlanProfiled] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)  # of a cluster, by name
    failures: list[StepFailed] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    trial_at: dict[int, float] = field(default_factory=dict)  # seconds since the run began
    timed_at: dict[str, float] = field(default_factory=dict)  # by graph, or `#` and the number
    examples: dict[int, ExamplesFound] = field(default_factory=dict)  # by trial
    knowledge: KnowledgeTaken | None = None  # of an earlier run, that this one starts from
    ended: RunEnded | None = None  # None: still running, or going on after an end

    def apply(self, event: Event) -> None:  # noqa: PLR0912  (one branch for each kind)
        """Take in one event; events come in the order of the journal."""
        match event:
            case RunStarted():
                self.header = event
                self._begin_call(event.settings)
            case SettingsChanged():
                self._begin_call(event.settings)
            case BatchChosen():
                self.batch = event.batch
            case Int8ProductsTested():
                self.int8_products = event
            case BaselineMeasured():
                self.baseline = event
                if event.graph and event.latency is not None:
                    self.graph_timings[event.graph] = [without_footprint(event.latency)]
            case LayersRanked():
                self.analysis = event
            case SchemesTried():
                self.tried[event.choices_key] = event
                self.default_key = event.default_key
            case PlanProfiled():
                self.profiles[event.plan_key, event.scheme] = event
            case NodeUsed():
                self.nodes[event.name] = event.environment
            case ProbeFinished():
                self.probes[event.trial.plan.key] = event.trial
                self.ended = None
            case TrialFinished():
                self._add_trial(event)
            case TrialTimed():
                self._add_timing(event)
            case FootprintMeasured():
                self._add_footprint(event)
            case TrialMeasured():
                trial = self._trial(event.number)
                merged = {**trial.measurements, event.measurement.split: event.measurement}
                self._put(dataclasses.replace(trial, measurements=merged))
            case ExamplesFound():
                self.examples[event.number] = event
            case StepFailed():
                self.failures.append(event)
            case Finding():
                if event not in self.findings:  # a resumed call may find the same again
                    self.findings.append(event)
            case KnowledgeTaken():
                self.knowledge = event
            case RunEnded():
                self.ended = event
            case _:
                assert_never(event)

    @property
    def status(self) -> str:
        return "running" if self.ended is None else self.ended.reason

    @property
    def numbered(self) -> list[Trial]:
        """The trials in the order of their numbers; the journal has them as they finished."""
        return [self.trials[number] for number in sorted(self.trials)]

    def has_failed(self, step: str, plan_key: str | None) -> bool:
        """Return whether a step failed before; it is not tried again."""
        return any(f.step == step and f.plan_key == plan_key for f in self.failures)

    def has_finding(self, kind: str) -> bool:
        return any(f.kind == kind for f in self.findings)

    def timings_of(self, trial: Trial) -> list[Latency]:
        """Return the timings of a trial and of all others that run the same graph, as they came.

        A trial that runs the float model's graph takes float's time: its ratio is 1.
        """
        if not trial.graph:
            return self.timings.get(trial.number, [])
        return self.graph_timings.get(trial.graph, [])

    def is_float_graph(self, trial: Trial) -> bool:
        """Return whether the device runs the same kernels for a trial as for the float model."""
        return (
            bool(trial.graph) and self.baseline is not None and self.baseline.graph == trial.graph
        )

    @property
    def elapsed_s(self) -> float:
        """Seconds of all calls so far, as far as they are known."""
        return max([0.0, *self.trial_at.values(), *self.timed_at.values()])

    def finished_at(self, trial: Trial, *, timed: bool) -> float | None:
        """Return the second at which a trial's figures were known; None in older journals."""
        at_s = self.trial_at.get(trial.number)
        if at_s is None or not timed or self.is_float_graph(trial):
            return at_s
        by = self.timed_at.get(_timed_by(trial))
        return None if by is None else max(at_s, by)

    def first_timing(self, number: int) -> Latency | None:
        """Return the timing that the search has seen."""
        trial = self.trials.get(number)
        return None if trial is None else next(iter(self.timings_of(trial)), None)

    def has_final_timing(self, trial: Trial) -> bool:
        return _timed_by(trial) in self.final_timings

    def timing_event(self, number: int, latency: Latency, *, final: bool = False) -> TrialTimed:
        """Return the event that records one timing in the format of this run."""
        earlier = self._trial(number).latency
        if self._timings_are_pooled and earlier is not None:
            latency = pooled(earlier, latency)
        return TrialTimed(number, latency, final=final)

    @property
    def _timings_are_pooled(self) -> bool:
        return self.header is not None and self.header.schema < 2

    def _begin_call(self, settings: object) -> None:
        assert isinstance(settings, dict)
        self.settings = settings
        self.ended = None
        # other settings may give other choices: what is not offered or planned for is said anew
        self.findings = [f for f in self.findings if f.kind not in (MENU, OBJECTIVES)]

    def _add_footprint(self, event: FootprintMeasured) -> None:
        trial = self._trial(event.number)
        if trial.latency is not None:
            latency = dataclasses.replace(
                trial.latency, peak_memory_bytes=event.peak_memory_bytes, load_ms=event.load_ms
            )
            self._put(dataclasses.replace(trial, latency=latency))

    def _add_trial(self, event: TrialFinished) -> None:
        self._put(self._with_shared_latency(event.trial))
        if event.at_s is not None:
            self.trial_at[event.trial.number] = event.at_s
        self.ended = None

    def _add_timing(self, event: TrialTimed) -> None:
        trial = self._trial(event.number)
        self.timings.setdefault(event.number, []).append(event.latency)
        if event.at_s is not None:
            self.timed_at.setdefault(_timed_by(trial), event.at_s)
        if event.final:
            self.final_timings[_timed_by(trial)] = event.latency
        if trial.graph:
            self.graph_timings.setdefault(trial.graph, []).append(event.latency)
            for number in self.by_graph[trial.graph]:
                self._put(self._with_shared_latency(self.trials[number]))
            return
        latency = event.latency
        if trial.latency is not None and not self._timings_are_pooled:
            latency = self._with_final(trial, pooled(trial.latency, latency))
        self._put(dataclasses.replace(trial, latency=latency))

    def _with_final(self, trial: Trial, latency: Latency) -> Latency:
        final = self.final_timings.get(_timed_by(trial))
        return latency if final is None else settled(latency, final)

    def _with_shared_latency(self, trial: Trial) -> Trial:
        """Return a trial with the timings of its graph; memory and load time are its own."""
        timings = self.timings_of(trial) if trial.graph and trial.error is None else []
        if not timings:
            return trial
        latency = self._with_final(trial, functools.reduce(pooled, timings))
        own = trial.latency
        if own is not None:
            latency = dataclasses.replace(
                latency, peak_memory_bytes=own.peak_memory_bytes, load_ms=own.load_ms
            )
        return dataclasses.replace(trial, latency=latency)

    def _put(self, trial: Trial) -> None:
        earlier = self.trials.get(trial.number)
        if earlier is None or earlier.graph != trial.graph:
            if earlier is not None and earlier.graph:  # two trials of one number: the last counts
                del self.by_graph[earlier.graph][trial.number]
            if trial.graph:
                self.by_graph.setdefault(trial.graph, {})[trial.number] = None
        self.trials[trial.number] = trial
        self.by_key[trial.plan.key] = trial

    def _trial(self, number: int) -> Trial:
        if number not in self.trials:
            raise JournalError(
                f"the journal has a figure of trial {number} before the trial itself: the file "
                "was changed by something else; restore it, or start a run in a new folder"
            )
        return self.trials[number]


def replay(events: Iterable[Event]) -> RunState:
    """Return the state after some events."""
    state = RunState()
    for event in events:
        state.apply(event)
    return state


def read_state(journal: str | os.PathLike[str]) -> RunState:
    """Return the state that a journal file tells; takes no lock, a live file is fine."""
    try:
        return replay(read_events(journal))
    except JournalError as error:
        if str(Path(journal)) in str(error):
            raise
        raise JournalError(f"{str(Path(journal))!r}: {error}") from error


def _timed_by(trial: Trial) -> str:
    return trial.graph or f"#{trial.number}"


def without_footprint(latency: Latency) -> Latency:
    """Return a latency without memory and load time, which belong to one file."""
    return dataclasses.replace(latency, peak_memory_bytes=None, load_ms=None)


def pooled(earlier: Latency, later: Latency) -> Latency:
    """Return the mean of two timings of one model, each beside a float session of its own.

    Means are weighted by the number of runs; the interval is the union of both, since minutes lie
    between them and the state of the machine differs by more than either interval shows.
    """
    if earlier.devices and later.devices:
        both = {n: pooled(earlier.devices[n], one) for n, one in later.devices.items()}
        joined = fleet.joined_latency(both, later.judged_by)
        return dataclasses.replace(
            joined,
            peak_memory_bytes=later.peak_memory_bytes or earlier.peak_memory_bytes,
            load_ms=later.load_ms or earlier.load_ms,
        )
    share = earlier.runs / (earlier.runs + later.runs)

    def mean(name: str) -> float:
        both = getattr(earlier, name), getattr(later, name)
        return round(float(share * both[0] + (1 - share) * both[1]), 4)

    return dataclasses.replace(
        later,
        median=mean("median"),
        p90=mean("p90"),
        ratio=mean("ratio"),
        ratio_low=min(earlier.ratio_low, later.ratio_low),
        ratio_high=max(earlier.ratio_high, later.ratio_high),
        runs=earlier.runs + later.runs,
        float_median=round(share * earlier.float_ms + (1 - share) * later.float_ms, 4),
        peak_memory_bytes=later.peak_memory_bytes
        if later.peak_memory_bytes is not None
        else earlier.peak_memory_bytes,
        load_ms=later.load_ms if later.load_ms is not None else earlier.load_ms,
        extra={**earlier.extra, **later.extra},
    )


def settled(known: Latency, final: Latency) -> Latency:
    """Return a timing that counts instead of earlier ones; its interval holds theirs, `known`.

    The picks are compared by the figures of one session. How much the machine's state moves a
    ratio is told by all of them.
    """
    if known.devices and final.devices:
        each = {n: settled(known.devices[n], one) for n, one in final.devices.items()}
        final = fleet.joined_latency(each, final.judged_by)
    return dataclasses.replace(
        final,
        ratio_low=min(known.ratio_low, final.ratio_low),
        ratio_high=max(known.ratio_high, final.ratio_high),
        peak_memory_bytes=known.peak_memory_bytes,
        load_ms=known.load_ms,
        extra={**known.extra, **final.extra},
    )

"""Steps after the search: timing of the chosen, report split, profile, diagnosis."""

from __future__ import annotations

import time
from collections.abc import Callable

from seqto.assembly.plan import Plan
from seqto.execution.executor import Handle
from seqto.record.events import DIAGNOSIS, from_json
from seqto.search.space import Space
from seqto.selection.contenders import contenders
from seqto.selection.recommend import front_of_loss_and_size, recommend
from seqto.study.batch_dependence import note_batch_dependence
from seqto.study.diagnose import diagnose, jobs_of
from seqto.study.layer_ranking import analysis, analysis_job
from seqto.study.meter import DIAGNOSIS_PHASE, MeteredExecutor
from seqto.study.setup import RunSetup
from seqto.study.study import Study

MAX_RETIMINGS = 3  # times at most that the chosen trials are timed again
MAX_CONFIRMATIONS = 4  # rounds at most of measuring what is shown on the report split


class Explanation:
    """Layer errors for the report, and why the fully quantized model loses what it loses.

    Nothing of it depends on what the search finds: `begin` hands the first part to the workers,
    `conclude` records it and runs the rest.
    """

    def __init__(
        self, setup: RunSetup, study: Study, space: Space, executor: MeteredExecutor
    ) -> None:
        self._setup, self._study, self._executor = setup, study, executor
        self._ranked = Plan.of(dict(space.default))
        self._plan = Plan.of(dict(space.default), setup.settings.quantize.transforms)
        # none where the device refuses the mode's schemes for every layer
        self._wanted = bool(space.default)
        self._diagnosed = self._wanted and setup.settings.analysis.diagnose
        self._begun: list[Handle] = []
        self._parts: list[Handle] = []

    def begin(self) -> None:
        """Submit what is not known, unless the time is limited: then all else comes first."""
        study = self._study
        if study.deadline is not None or not self._wanted:
            return
        if study.state.analysis is None:
            job = analysis_job(self._setup, self._ranked)
            self._begun = self._executor.begin([job], phase=DIAGNOSIS_PHASE)
        if self._diagnosed and not study.state.has_finding(DIAGNOSIS):
            self._parts = self._executor.begin(jobs_of(self._plan), phase=DIAGNOSIS_PHASE)

    def conclude(self) -> None:
        """Record the layer errors and the diagnosis, if there is time."""
        study, state = self._study, self._study.state
        if study.deadline is not None and time.monotonic() > study.deadline:
            return
        if not self._wanted:
            return
        ranked = self._executor.collect(self._begun)
        analysis(self._setup, study, self._ranked, done=ranked[0] if ranked else None)
        if not self._diagnosed or state.has_finding(DIAGNOSIS):
            return
        findings = diagnose(
            study.executor,
            self._plan,
            profiles=[profile.to_json() for profile in state.profiles.values()],
            int8_products=state.int8_products.to_json() if state.int8_products else None,
            parts=self._executor.collect(self._parts) or None,
        )
        for finding in findings:
            study.append(from_json(finding))


def finish(study: Study, *, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Time the front, choose, measure the chosen on the report split, profile the best.

    `meanwhile` is called when the chosen have been timed: what it submits shares the workers.
    """
    state = study.state
    # what stands on the front in loss and size must be timed before it can be left out for that
    front = [*front_of_loss_and_size(state.trials.values()), *recommend(state).front]
    _time(study, [n for n in dict.fromkeys(front) if state.trials[n].latency is None])
    _retime_selected(study)
    meanwhile()
    _confirm_selected(study)
    note_batch_dependence(study)
    chosen = recommend(state)
    if chosen.best is None:
        return
    best = state.trials[chosen.best].plan
    if best.key not in {profile.plan_key for profile in state.profiles.values()}:
        study.runner.profile(best, scheme=f"trial {chosen.best}")


def _retime_selected(study: Study) -> None:
    """Time the selected trials again, in one session, until the selection is stable.

    The minimum of noisy timings is biased low: what is selected for its time must be as fast a
    second time. What comes near the selection is timed in the same session, since the speed of a
    shared machine differs between sessions.
    """
    for _ in range(MAX_RETIMINGS):
        chosen = recommend(study.state)
        keys = [study.state.trials[n].plan.key for n in sorted(set(chosen.picks.values()))]
        if "latency" not in chosen.objectives or all(study.is_settled(key) for key in keys):
            return
        close = contenders(study.state, chosen, most=study.clock.timing.group)
        study.time([study.state.trials[n].plan.key for n in close], final=True, settling=True)


def _confirm_selected(study: Study) -> None:
    """Measure all that is shown on the report split: the picks and the fully quantized model.

    A goal's answer that misses a bound there makes room for the next best, which is measured too.
    """
    state = study.state
    done: set[int] = set()
    for _ in range(MAX_CONFIRMATIONS):
        chosen = recommend(state)
        answer = chosen.answer
        shown = {chosen.fully_quantized, *chosen.picks.values()}
        if answer is not None and not answer.met:
            shown |= {answer.pending, answer.nearest}
        ran = [n for n in shown if n is not None and state.trials[n].error is None]
        todo = sorted(n for n in ran if n not in done)
        if not todo:
            return
        done |= set(todo)
        keys = [state.trials[n].plan.key for n in todo]
        study.confirm(keys)
        study.measure_footprints(keys)
        study.measure_labelled(keys)


def _time(study: Study, numbers: list[int]) -> None:
    study.time([study.state.trials[n].plan.key for n in numbers], final=True)

"""One run from start to end: workspace, baseline, search, final measurements."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

from seqto.config import DeviceSettings
from seqto.errors import ConfigError, JournalError
from seqto.execution.executor import Executor
from seqto.model.files import constant_bytes, give_back_memory
from seqto.record.events import (
    GUESS,
    INTERRUPTED,
    OBJECTIVES,
    BaselineMeasured,
    Finding,
    Int8ProductsTested,
    RunEnded,
    RunStarted,
    SettingsChanged,
)
from seqto.record.journal import Journal
from seqto.record.own_files import BASE, COMPILED, JOURNAL, SAMPLES, WORK, OwnFiles, claim
from seqto.record.replay import RunState, replay
from seqto.records import EVALUATION
from seqto.search.strategy import PlanningStrategy
from seqto.selection.goal import Goal
from seqto.study import check_saturation
from seqto.study.examples import MOST_EXAMPLES
from seqto.study.finish import Explanation, finish
from seqto.study.header import header as make_header
from seqto.study.header import model_identity, refuse_changes
from seqto.study.make_space import make_space
from seqto.study.meter import DIAGNOSIS_PHASE, REPORT_PHASE, TRIALS, Meter, MeteredExecutor
from seqto.study.open_executor import open_executor, open_others
from seqto.study.round_weights import Rounding
from seqto.study.setup import RunSetup, labelled_task, probe_rows, rounding_kinds
from seqto.study.study import Budget, DeviceRun, Study
from seqto.study.timing import Timing, timed_together
from seqto.study.warm_start import check_graph
from seqto.study.workspace import Workspace, build_store, calibrate_or_load, prepare_model, task_for


def run(setup: RunSetup) -> RunState:
    """Run or resume, and return the state when done or out of budget.

    Raises KeyboardInterrupt on Ctrl-C.
    """
    began = time.monotonic() if setup.began is None else setup.began
    own = claim(setup.out)
    with Journal.open(setup.out / JOURNAL) as journal:
        workspace, header = _open_workspace(setup, replay(journal.events), own)
        setup = dataclasses.replace(setup, task=task_for(setup, workspace))
        try:
            with (
                open_executor(setup, workspace) as executor,
                open_others(setup, workspace) as opened,
            ):
                meter = Meter(began)
                metered = MeteredExecutor(executor, meter)
                others = {name: MeteredExecutor(one, meter) for name, one in opened.items()}
                study = _study(
                    setup, journal, metered, workspace, others=others, began=began, meter=meter
                )
                if study.state.header is None:
                    study.append(header)
                elif study.state.settings != header.settings:
                    study.append(SettingsChanged(header.settings))
                reason = _steps(setup, study, workspace, metered)
                spent = meter.to_json(executor.slots)
                study.append(RunEnded(reason, round(time.monotonic() - began, 1), spent))
                return study.state
        except KeyboardInterrupt:
            # a journal starts with its header: before it, nothing was begun
            if replay(journal.events).header is not None:
                with contextlib.suppress(JournalError):
                    seconds = round(time.monotonic() - began, 1)
                    journal.append(RunEnded(INTERRUPTED, seconds))
            raise


def clear_cache(folder: Path) -> None:
    """Remove prepared samples and compiled models, which a finished run needs no more."""
    own = OwnFiles.read(folder)
    for name in (SAMPLES, COMPILED, WORK):
        own.clear(name)


def _open_workspace(
    setup: RunSetup, state: RunState, own: OwnFiles
) -> tuple[Workspace, RunStarted]:
    identity = model_identity(setup.fetched)
    recorded = state.header
    if recorded is None and state != RunState(ended=state.ended):
        raise JournalError(f"{setup.out / JOURNAL} has no header: give another --out folder")
    if recorded is not None:
        refuse_changes(setup, recorded, identity)
    else:
        own.clear(BASE)
        own.take(BASE)
    for name in (SAMPLES, COMPILED, WORK):
        own.take(name)
    prepared = prepare_model(setup, setup.out)
    if recorded is None:
        check_graph(setup, prepared.layers)
    store = build_store(setup, prepared, setup.out / "cache" / "samples")
    if recorded is not None and recorded.data.get("identity") != store.identity:
        raise JournalError(
            f"the data have changed since {setup.out} was begun: give another --out folder, "
            "or the same data"
        )
    workspace = calibrate_or_load(setup, setup.out, store, prepared)
    del prepared  # the workspace has read it again
    give_back_memory()
    return workspace, make_header(setup, workspace, identity)


def _study(
    setup: RunSetup,
    journal: Journal,
    executor: Executor,
    workspace: Workspace,
    *,
    others: Mapping[str, Executor],
    began: float,
    meter: Meter,
) -> Study:
    search = setup.settings.search
    goal = Goal.of(dataclasses.asdict(search))

    def timing_of(device: DeviceSettings) -> Timing:
        batch = device.batch and (workspace.store.fixed_batch or device.batch)
        group = timed_together(constant_bytes(workspace.prepared.proto))
        return Timing(device.threads, device.latency_s, batch, group)

    return Study(
        journal,
        executor,
        workspace.store,
        task=setup.task,
        device=setup.device,
        budget=Budget(search.max_trials, search.max_minutes),
        timing=timing_of(setup.settings.device),
        racing=search.racing,
        race_objectives=(*search.objectives, *(goal.objectives if goal else ())),
        probes=probe_rows(setup),
        chunk=setup.settings.data.chunk,
        rounding=Rounding(
            executor,
            workspace.folder,
            rounding_kinds(setup.settings, setup.strategy, workspace.layers),
            setup.progress,
        ),
        listener=setup.listener,
        began=began,
        meter=meter,
        judged=workspace.judged,
        labelled_task=labelled_task(setup),
        examples=MOST_EXAMPLES if setup.settings.analysis.examples else 0,
        batch=setup.settings.data.batch,
        device_name=setup.devices[0].name,
        others=[
            DeviceRun(one.name, others[one.name], one.device, timing_of(one.settings))
            for one in setup.others
        ],
        latency_of=search.latency_of,
    )


def _steps(setup: RunSetup, study: Study, workspace: Workspace, executor: MeteredExecutor) -> str:
    """Run baseline, analysis and search, then measure final figures of what is recommended."""
    if setup.guess is not None and not study.state.has_finding(GUESS):
        figures = {"kind": setup.guess.kind, **setup.guess.settings}
        study.append(Finding(GUESS, setup.guess.sentence, (), figures))
    study.runner.baseline()
    if study.state.int8_products is None:
        executors = {one.name: one.executor for one in study.devices}
        study.append(Int8ProductsTested(**check_saturation.ask_all(executors)))
    if study.state.baseline is None:
        references = study.runner.float_model.references
        study.append(
            BaselineMeasured(
                size_bytes=setup.fetched.size_bytes(),
                accuracy={s: r.scores.get("accuracy") for s, r in references.items()},
                latency=study.time_baseline(),
                output=study.runner.float_model.judged_json(),
                scores={s: dict(r.scores) for s, r in references.items()},
                graph=references[EVALUATION].graph or None,
            )
        )
    _note_objectives(setup, study)
    _refuse_score_bound(setup, study)
    space = make_space(setup, study, workspace)
    study.meter.enter(TRIALS)
    reason = study.search(setup.strategy, space, seed=setup.settings.search.seed)
    explanation = Explanation(setup, study, space, executor)
    study.meter.enter(REPORT_PHASE)
    finish(study, meanwhile=explanation.begin)
    study.meter.enter(DIAGNOSIS_PHASE)
    explanation.conclude()
    return reason


def _refuse_score_bound(setup: RunSetup, study: Study) -> None:
    """Refuse a bound of the score's drop where no trial will have a score."""
    baseline = study.state.baseline
    scored = setup.labelled is not None or any(((baseline and baseline.scores) or {}).values())
    if setup.settings.search.max_score_drop is not None and not scored:
        raise ConfigError(
            "search.max_score_drop (--max-score-drop) needs a score, and the data have no labels: "
            "give them (--labels, data.labelled), or bound changed answers with --max-loss"
        )


def _note_objectives(setup: RunSetup, study: Study) -> None:
    """Say which objectives the strategy leaves to chance."""
    if not isinstance(setup.strategy, PlanningStrategy) or study.state.has_finding(OBJECTIVES):
        return
    planned = setup.strategy.plans_for
    missing = [name for name in setup.settings.search.objectives if name not in planned]
    if missing:
        message = (
            f"{setup.settings.search.strategy} plans for {', '.join(sorted(planned))}: "
            f"{', '.join(missing)} is measured and ranked, but no plan is made for it "
            "(--strategy evolve plans for every objective)."
        )
        study.append(Finding(OBJECTIVES, message))

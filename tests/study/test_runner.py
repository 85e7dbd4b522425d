"""How plans become trials, with an executor that runs nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from seqto.assembly.plan import Plan
from seqto.errors import DeviceError
from seqto.execution import jobs
from seqto.execution.executor import Done, Handle
from seqto.model.outputs import Judged
from seqto.record.events import Event, Finding, StepFailed
from seqto.record.replay import RunState
from seqto.record.trial import Trial
from seqto.records import EVALUATION, Failure, Loss, Measurement
from seqto.study.float_model import FloatModel
from seqto.study.runner import OutOfBudget, PlanRunner, Round
from seqto.study.running_trial import TrialMaker
from seqto.tasks import scoring
from seqto.tasks.array_file import write_arrays
from seqto.testing.executors import FakeExecutor
from seqto.testing.fakes import FakeDevice, FakeTask

ROWS = 20
PLANS = [Plan.of({f"layer{i}": "fp16"}) for i in range(4)]


class Record:
    """What the runner writes, and the state that follows from it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.state = RunState()

    def append(self, event: Event) -> None:
        self.events.append(event)
        self.state.apply(event)

    def note_failure(self, step: str, failure: Failure, *, plan_key: str | None = None) -> None:
        self.append(StepFailed(step, None, plan_key, failure))


class Store:
    fixed_batch = run_rows = ragged = None
    data: ClassVar[dict[str, Any]] = {}

    def rows(self, _split: str) -> int:
        return ROWS

    def labels(self, _split: str) -> Any:
        return np.zeros(ROWS, np.int64)


def numbers(first: int, stop: int) -> Any:
    return np.arange(first, stop, dtype=np.float32)[:, None] + np.arange(3, dtype=np.float32)


class Scripted:
    """Answers of the workers: the float model counts, and plans get the loss that is set."""

    def __init__(self, folder: Path, task: Any) -> None:
        self.task = task
        self.executor = FakeExecutor(self, folder=folder)
        self.outcomes: dict[str, Any] = {}  # by plan key
        self.fails_as_given = False

    def __call__(self, job: Any) -> Any:
        files = self.executor.files
        match job:
            case jobs.ChooseBatch():
                return jobs.BatchChosen(2, {})
            case jobs.TryPlan():
                return jobs.PlanRan()
            case jobs.MakeReference():
                if self.fails_as_given and job.plan is None:
                    return Failure("compile", "no computed pads")
                path = files.work_file(f"reference-{job.split}-{job.first}")
                found = [numbers(job.first, job.stop)]
                about = scoring.describe_outputs(self.task, found, judged=0, name="y")
                scoring.save_part(path, scoring.decode(self.task, found), about)
                return jobs.ReferenceMade(job.first, files.put(path))
            case jobs.Evaluate():
                return self.outcomes[job.plan.key]
        raise AssertionError(job)


def runner(tmp_path: Path, task: Any = None, **more: Any) -> tuple[PlanRunner, Scripted]:
    script = Scripted(tmp_path, task or FakeTask())
    judged = Judged("y", 0, 1, (0,))
    float_model = FloatModel(
        Record(),
        script.executor,
        Store(),  # type: ignore[arg-type]
        task=task or FakeTask(),
        device=FakeDevice(),
        judged=judged,
    )
    return PlanRunner(float_model, **more), script


def measured(wrong: int, *, size: int = 100, content: str = "") -> jobs.Evaluated:
    bits = np.ones(ROWS, dtype=bool)
    bits[:wrong] = False
    loss = Loss(wrong / ROWS, 0.0, 1.0, ROWS, np.packbits(bits).tobytes().hex())
    model = jobs.ModelMade(size, f"sha-{content}", content)
    return jobs.Evaluated(model, Measurement(EVALUATION, "fake", loss))


def run(
    made: PlanRunner, plans: list[Plan], *, earlier: Any = (), left_s: float | None = None
) -> list[Trial]:
    trials: list[Trial] = []
    end = None if left_s is None else time.monotonic() + left_s
    work = Round(
        {p.key: (p, "") for p in plans},
        split=EVALUATION,
        probe=False,
        numbers={p.key: i for i, p in enumerate(plans)},
        earlier=earlier,
        conclude=trials.append,
        deadline=lambda: end,
    )
    made.run(work)
    return trials


def test_the_workers_share_the_rows_of_a_reference(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    made.baseline()
    parts = [j for j in script.executor.jobs if isinstance(j, jobs.MakeReference)]
    spans = [(j.first, j.stop) for j in parts if j.split == EVALUATION]
    assert spans == [(0, 10), (10, 20)]
    content = made.float_model.reference(EVALUATION).content
    np.testing.assert_array_equal(content.decoded.signal, numbers(0, ROWS))
    assert sorted(p.name for p in (tmp_path / "cache" / "work").iterdir()) == [
        "reference-calibration",
        "reference-evaluation",
    ], "the parts are gone"
    assert made.float_model.judged_json() == {
        "name": "y",
        "shape": [3],
        "judged_by": "task",
        "outputs": 1,
    }


def test_the_prepared_model_stands_in_where_the_file_as_given_does_not_run(
    tmp_path: Path,
) -> None:
    made, script = runner(tmp_path)
    script.fails_as_given = True
    made.baseline()
    (finding,) = [e for e in made.record.events if isinstance(e, Finding)]
    assert finding.kind == "float model"
    assert made.float_model.plan == Plan()


def test_a_float_model_that_does_not_run_at_all_is_an_error(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    script.executor._answer = lambda _job: Failure("load", "no kernel")
    with pytest.raises(DeviceError, match="the float model does not run on fake: no kernel"):
        made.float_model.reference(EVALUATION)


def test_two_equal_models_of_one_batch_share_their_figures(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    for plan, content in zip(PLANS, "aabc", strict=True):
        script.outcomes[plan.key] = measured(3, content=content)
    trials = run(made, PLANS)
    assert [t.same_as for t in trials] == [None, 0, None, None]
    assert trials[1].measurements == trials[0].measurements


def test_a_known_model_gets_the_figures_of_the_earlier_trial(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    script.outcomes[PLANS[0].key] = measured(3, content="a")
    (first,) = run(made, PLANS[:1])
    script.outcomes[PLANS[1].key] = jobs.Skipped(jobs.ModelMade(100, "sha", "a"))
    (second,) = run(made, PLANS[1:2], earlier=[first])
    job = script.executor.jobs[-1]
    assert isinstance(job, jobs.Evaluate)
    assert job.known == {"a"}
    assert second.same_as == first.number
    assert second.loss == first.loss


def test_rivals_are_what_nothing_beats_and_hard_samples_come_first(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    for plan, (wrong, size) in zip(PLANS, ((3, 100), (5, 50), (5, 120), (1, 200)), strict=True):
        script.outcomes[plan.key] = measured(wrong, size=size, content=str(size))
    earlier = run(made, PLANS[:3])
    orders: list[Any] = []

    def look(job: Any) -> Any:
        orders.append(np.load(script.executor.files.path(job.order)).tolist())
        return measured(1, size=200, content="200")

    script.executor._answer = look
    run(made, PLANS[3:], earlier=earlier)
    job = script.executor.jobs[-1]
    assert isinstance(job, jobs.Evaluate)
    assert {(r.size_bytes, r.total) for r in job.rivals} == {(100, 3.0), (50, 5.0)}, (
        "the third is beaten by the first"
    )
    assert sorted(orders[0][:3]) == [0, 1, 2], "all three have changed these"
    assert not [p for p in (tmp_path / "cache" / "work").iterdir() if "order" in p.name]
    made.racing = False
    script.executor._answer = script
    run(made, PLANS[3:], earlier=earlier)
    job = script.executor.jobs[-1]
    assert isinstance(job, jobs.Evaluate)
    assert (job.rivals, job.order) == ((), None)


def test_when_the_time_is_up_what_runs_is_cancelled(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    script.outcomes = {p.key: measured(1) for p in PLANS}
    made.float_model.reference(EVALUATION)
    with pytest.raises(OutOfBudget):
        run(made, PLANS, left_s=-1.0)
    assert len(script.executor.cancelled) == len(PLANS)


def test_a_failed_trial_keeps_what_was_told_of_its_model() -> None:
    note = {"size_bytes": 7, "sha256": "s", "content": "c"}
    done = Done(Handle(1), Failure("crash", "SIGSEGV"), 0.5, note)
    maker = TrialMaker()
    trial = maker.trial(3, PLANS[0], "n", done)
    assert (trial.size_bytes, trial.content, trial.seconds) == (7, "c", 0.5)
    assert trial.error == Failure("crash", "SIGSEGV")
    skipped = Done(Handle(2), jobs.Skipped(jobs.ModelMade(7, "s", "c")))
    again = maker.trial(4, PLANS[1], "n", skipped)
    assert again.error == trial.error
    assert again.same_as == 3


def test_a_task_that_stays_here_judges_raw_outputs(tmp_path: Path) -> None:
    class Local(FakeTask):
        """A class that no module has."""

    task = Local(0.25)
    made, script = runner(tmp_path, task)
    assert made.float_model.judges_here
    files = script.executor.files

    def raw(job: Any) -> Any:
        if isinstance(job, jobs.MakeReference):
            path = files.work_file(f"reference-{job.first}")
            write_arrays(path, {"0": numbers(job.first, job.stop)}, {})
            return jobs.ReferenceMade(job.first, files.put(path))
        path = files.work_file("outputs")
        assert job.reference is None
        changed = numbers(0, ROWS)
        changed[:5] += 1.0
        write_arrays(path, {"0": changed}, {})
        return jobs.RawOutputs(jobs.ModelMade(9, "s", "c"), files.put(path))

    script.executor._answer = raw
    (trial,) = run(made, PLANS[:1])
    assert trial.loss is not None
    assert trial.loss.value == 0.25
    assert trial.measurements[EVALUATION].scores.keys() == {"accuracy"}
    assert [p.name for p in (tmp_path / "cache" / "work").iterdir()] == ["reference-evaluation"]


def test_slow_plans_are_submitted_first_and_keep_their_numbers(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    for plan in PLANS:
        script.outcomes[plan.key] = measured(3)
    ratios = (0.5, None, 0.9, 0.7)
    foretold = {plan.key: ratio for plan, ratio in zip(PLANS, ratios, strict=True)}
    found: dict[str, int] = {}
    work = Round(
        {plan.key: (plan, "") for plan in PLANS},
        split=EVALUATION,
        probe=False,
        numbers={plan.key: number for number, plan in enumerate(PLANS)},
        earlier=[],
        conclude=lambda trial: found.update({trial.plan.key: trial.number}),
        deadline=lambda: None,
        not_below=foretold,
    )
    made.run(work)
    ran = [job.plan for job in script.executor.jobs if isinstance(job, jobs.Evaluate)]
    assert ran == [PLANS[2], PLANS[3], PLANS[0], PLANS[1]]
    assert found == {plan.key: number for number, plan in enumerate(PLANS)}


def test_what_took_longest_is_measured_first_on_the_report_split(tmp_path: Path) -> None:
    made, script = runner(tmp_path)
    made.baseline()
    script.outcomes = {plan.key: measured(0) for plan in PLANS}
    seconds = (1.0, 3.0, 2.0)
    trials = [
        Trial(i, plan, 1, seconds=s)
        for i, (plan, s) in enumerate(zip(PLANS, seconds, strict=False))
    ]
    confirmed = [trial.number for trial, _, _ in made.confirm(trials)]
    assert confirmed == [1, 2, 0], "so the workers end at about the same time"

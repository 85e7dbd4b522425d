"""A worker's jobs, without processes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from ready import ROWS, ready, reference_of
from seqto.assembly.plan import Plan
from seqto.errors import DeviceError, PlanError
from seqto.execution import evaluate, jobs
from seqto.execution.worker import Worker
from seqto.records import CALIBRATION, RivalPoint
from seqto.tasks.array_file import read_arrays
from seqto.testing.executors import InlineSignals
from seqto.testing.fakes import FakeTask


def reference(worker: Worker) -> Any:
    """Return the float model's answers, made by the worker and joined as main does it."""
    made = worker.run(jobs.MakeReference(None, CALIBRATION, 0, ROWS, 1, 4), InlineSignals())
    assert isinstance(made, jobs.ReferenceMade)
    labels = worker.context.store.labels(CALIBRATION)
    return reference_of(worker.context.files, made.file, worker.context.task, labels)


def evaluated(worker: Worker, plan: Plan, ref: Any, **more: Any) -> Any:
    job = jobs.Evaluate(plan, CALIBRATION, ROWS, 1, 4, ref, **more)
    return worker.run(job, more.pop("signals", InlineSignals()))


def test_the_float_model_has_no_distance_to_itself(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)
        ref = reference(worker)
        same, other = evaluated(worker, Plan(), ref), evaluated(worker, plan, ref)
    assert same.measurement.loss.value == 0.0
    assert same.measurement.scores == same.measurement.baseline_scores
    assert set(same.measurement.scores) == {"accuracy", "macro_f1"}
    assert same.measurement.damage < other.measurement.damage
    assert set(other.measurement.figures) == {"top_k_loss", "kendall_tau"}
    assert other.model.size_bytes < same.model.size_bytes


def test_a_model_that_is_known_is_not_run(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)
        ref = reference(worker)
        first = evaluated(worker, plan, ref)
        again = evaluated(worker, plan, ref, known=frozenset({first.model.content}))
    assert again == jobs.Skipped(first.model)


def test_a_model_that_is_beaten_for_sure_is_stopped(tmp_path: Path) -> None:
    with ready(tmp_path, task=FakeTask()) as (setup, files, plan):
        worker = Worker(setup, files)
        ref = reference(worker)
        whole = evaluated(worker, plan, ref)
        beaten = evaluated(worker, plan, ref, rivals=(RivalPoint(1, 0.0, portable=True),))
        larger = evaluated(worker, plan, ref, rivals=(RivalPoint(whole.model.size_bytes + 1, 0.0),))
    assert whole.measurement.loss.value == 1.0, "int8 moves every number a little"
    assert beaten.measurement.stopped_early
    assert beaten.measurement.loss.samples == 4
    assert larger.measurement == whole.measurement


def test_a_job_that_is_asked_to_stop_returns_what_it_has(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)
        job = jobs.Evaluate(plan, CALIBRATION, ROWS, 1, 4, reference(worker))
        found = worker.run(job, InlineSignals(stop_after=2))
    assert isinstance(found, jobs.Evaluated)
    assert found.measurement.loss.samples == 8
    assert found.measurement.stopped_early


def test_the_order_of_the_rows_changes_no_figure(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)
        ref = reference(worker)
        path = files.named("cache/work/order-1.npy")
        np.save(path, np.random.default_rng(0).permutation(ROWS))
        plain = evaluated(worker, plan, ref).measurement
        mixed = evaluated(worker, plan, ref, order=files.put(path)).measurement
    assert plain.loss == mixed.loss
    assert plain.scores == pytest.approx(mixed.scores)


@dataclass(frozen=True)
class Holds:
    """A task that no other process can make: it holds a function."""

    signal_bytes: ClassVar[int] = 4096
    of: Callable[[Any], Any] = lambda x: x

    decode = FakeTask.decode
    signal = FakeTask.signal
    scores = FakeTask.scores
    tolerance: ClassVar[float] = 0.0
    distance = FakeTask.distance


def test_a_task_that_stays_in_main_gets_raw_outputs(tmp_path: Path) -> None:
    with ready(tmp_path, task=Holds()) as (setup, files, plan):
        assert setup.task is None
        worker = Worker(setup, files)
        found = evaluated(worker, plan, None)
        assert isinstance(found, jobs.RawOutputs)
        arrays, _ = read_arrays(files.path(found.file))
        assert {a.shape[0] for a in arrays.values()} == {ROWS}
        made = worker.run(jobs.MakeReference(None, CALIBRATION, 4, 9, 1, 4), InlineSignals())
        assert isinstance(made, jobs.ReferenceMade)
        assert len(next(iter(read_arrays(files.path(made.file))[0].values()))) == 5


def test_a_reference_for_a_task_that_stays_in_main_is_refused(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        ref = reference(Worker(setup, files))
        worker = Worker(dataclasses.replace(setup, task=None), files)
        with pytest.raises(PlanError, match="stays in the main process"):
            evaluated(worker, plan, ref)


def test_what_was_assembled_is_told_before_it_fails(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)
        ref = reference(worker)

        class Refusing:
            name = "refusing"

            def open(self, _model: object, *, threads: int = 0) -> Any:
                raise DeviceError("no kernel", stage="load")

        worker.context.device = Refusing()  # type: ignore[assignment]
        signals = InlineSignals()
        with pytest.raises(DeviceError):
            worker.run(jobs.Evaluate(plan, CALIBRATION, ROWS, 1, 4, ref), signals)
    assert signals.noted["size_bytes"] > 0
    assert signals.noted["content"]


def test_the_other_jobs_give_their_results(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)

        def run(job: Any) -> Any:
            return worker.run(job, InlineSignals())

        assert run(jobs.TryPlan(plan, 1)) == jobs.PlanRan()
        assert run(jobs.ChooseBatch(CALIBRATION, (1, 2, 64), 0.01)).batch in (1, 2)
        timed = run(jobs.TimePlans((plan,), None, 0.01, min_rounds=3, max_rounds=3, batch=2))
        assert [len(t) for t in timed.times_ms] == [3, 3]
        assert len(timed.throughput) == 2
        saved = run(jobs.SaveModel(plan))
        memory = run(jobs.MeasureMemory(saved.files))
        assert memory.load_ms > 0
        assert run(jobs.ProfilePlan(plan, runs=1)).values["layers_ms"]
        assert run(jobs.RankLayers(plan, 2)).values["samples"] == 2
        assert run(jobs.CheckSaturation()).values["result"] in ("exact", "saturates")
        weighted = tuple(
            x.name for x in worker.context.assembler("base").prepared.layers if x.weight
        )
        rounded = run(jobs.RoundWeights("base", weighted[:1], ("s8",), "rounded-0.npy"))
        assert {row["file"] for row in rounded.rows} == {"rounded-0.npy"}
        assert files.path(rounded.file).is_file()


def test_a_session_may_measure_more_than_time(tmp_path: Path) -> None:
    class Metered:
        """Counts a tenth of a millijoule for every byte of the model in every timed run."""

        def __init__(self, inner: Any, size: int) -> None:
            self.inner, self.size, self.runs = inner, size, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __enter__(self) -> Metered:
            return self

        def __exit__(self, *error: object) -> None:
            self.inner.close()

        def time_ms(self, feeds: Any) -> float:
            self.runs += 1
            return float(self.inner.time_ms(feeds))

        def figures(self) -> dict[str, float]:
            return {"energy_mj": self.size / 10} if self.runs else {}

    class Meter:
        name = "metered"

        def open(self, model: bytes | Path, *, threads: int = 0) -> Metered:
            size = model.stat().st_size if isinstance(model, Path) else len(model)
            return Metered(inner.open(model, threads=threads), size)

    with ready(tmp_path) as (setup, files, plan):
        worker = Worker(setup, files)
        inner = worker.context.device
        worker.context.device = Meter()  # type: ignore[assignment]
        job = jobs.TimePlans((plan,), None, 0.01, min_rounds=3, max_rounds=3)
        timed = worker.run(job, InlineSignals())
    assert isinstance(timed, jobs.Timed)
    whole, quantized = (figures["energy_mj"] for figures in timed.figures)
    assert 0 < quantized < whole


class Clock:
    """Time that passes only while a session runs."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Clocked:
    """A device on which a call costs 4 and a sample 1; now and then the machine is busy."""

    name = "clocked"

    def __init__(self, clock: Clock, busy_calls: frozenset[int]) -> None:
        self.clock, self.busy_calls, self.calls = clock, busy_calls, 0

    def open(self, _model: object, *, threads: int = 0) -> Any:
        return contextlib.nullcontext(self)

    def run(self, feeds: Any) -> list[Any]:
        rows = len(next(iter(feeds.values())))
        self.clock.now += (4 + rows) * (10 if self.calls in self.busy_calls else 1)
        self.calls += 1
        return [np.zeros((rows, 3), np.float32)]


def test_a_busy_moment_does_not_change_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ready(tmp_path) as (setup, files, _):
        worker = Worker(setup, files)
        # 3 calls to warm up; a turn is 8 calls of one sample, 2 of four, 1 of eight: the machine
        # is busy while the largest batch has its first turn
        for busy in ((), (13,), range(3, 14)):
            clock = Clock()
            monkeypatch.setattr("seqto.execution.evaluate.time.perf_counter", clock)
            worker.context.device = Clocked(clock, frozenset(busy))  # type: ignore[assignment]
            found = worker.run(jobs.ChooseBatch(CALIBRATION, (1, 4, 8), 1e3), InlineSignals())
            assert isinstance(found, jobs.BatchChosen)
            assert found.batch == 8
            assert found.speed == pytest.approx({"1": 1 / 5, "4": 4 / 8, "8": 8 / 12})


def test_each_workers_share_of_the_rows_is_a_part(tmp_path: Path) -> None:
    with ready(tmp_path) as (setup, files, _):
        worker = Worker(setup, files)
        whole = worker.run(jobs.MakeReference(None, CALIBRATION, 0, ROWS, 1, 5), InlineSignals())
        assert isinstance(whole, jobs.ReferenceMade)
        all_rows = read_arrays(files.path(whole.file))[0]["value:class"].tolist()
        parts: list[int] = []
        for first, stop in ((0, 5), (5, ROWS)):
            job = jobs.MakeReference(None, CALIBRATION, first, stop, 1, 5)
            part = evaluate.make_reference(worker.context, job, InlineSignals())
            parts += read_arrays(files.path(part.file))[0]["value:class"].tolist()
    assert parts == all_rows

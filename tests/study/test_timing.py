"""Memory and load time of several models: assembled together, measured one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqto.assembly.plan import Plan
from seqto.execution.files import WORK, FileRef, LocalFiles
from seqto.execution.jobs import MeasureMemory, MemoryMeasured, ModelSaved, SaveModel
from seqto.records import Failure
from seqto.study.timing import Clock, Timing
from seqto.testing.executors import FakeExecutor

PLANS = [Plan.of({f"layer{i}": "fp16"}) for i in range(3)]


def saved(folder: Path, plan: Plan) -> FileRef:
    path = folder / WORK / plan.key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(plan.key.encode())
    return LocalFiles(folder).put(path)


def left(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_models_are_saved_first_and_measured_in_the_order_of_the_plans(tmp_path: Path) -> None:
    sizes: dict[str, int] = {}

    def answer(job: Any) -> Any:
        if isinstance(job, SaveModel):
            file = saved(tmp_path, job.plan)
            sizes[file.sha256] = 1000 + len(sizes)
            return ModelSaved({"": file})
        return MemoryMeasured(sizes.get(job.files[""].sha256, 0) if job.files else 7, 1.5)

    executor = FakeExecutor(answer, folder=tmp_path)
    measured = Clock(executor, Timing(threads=3)).footprints([PLANS[0], None, PLANS[1], PLANS[2]])
    assert [m.peak_memory_bytes for m in measured if isinstance(m, MemoryMeasured)] == [
        1000,
        7,
        1001,
        1002,
    ]
    assert [type(job) for job in executor.jobs] == [SaveModel] * 3 + [MeasureMemory] * 4
    assert all(job.threads == 3 for job in executor.jobs if isinstance(job, MeasureMemory))
    assert left(tmp_path) == [], "the files are of no use any more"


def test_a_model_that_cannot_be_saved_or_measured_stops_no_other(tmp_path: Path) -> None:
    broken = Failure("plan", "no such layer")
    dead = Failure("crash", "worker died")

    def answer(job: Any) -> Any:
        if isinstance(job, SaveModel):
            same = job.plan.key == PLANS[0].key
            return broken if same else ModelSaved({"": saved(tmp_path, job.plan)})
        is_second = job.files[""] == second
        return dead if is_second else MemoryMeasured(5, 1.0)

    second = saved(tmp_path, PLANS[1])
    executor = FakeExecutor(answer, folder=tmp_path)
    measured = Clock(executor, Timing()).footprints(PLANS)
    assert measured == [broken, dead, MemoryMeasured(5, 1.0)]
    assert left(tmp_path) == []

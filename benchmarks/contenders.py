"""The programs that benchmarks/speed.py and growth.py start: one process, one procedure.

    python benchmarks/contenders.py SPEC.json

Each writes {events, loop, …} to the file that the spec names. Seconds count from the moment at
which the parent started the process, so imports and set-up are in them.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import zoo
from measure import cpu_seconds_now, private_bytes

if TYPE_CHECKING:
    from seqto.assembly.plan import Plan
    from seqto.search.space import Space
    from seqto.search.strategy import Answers, Ask, Need

Json = dict[str, Any]
BATCH = 16


class ListDone(Exception):  # noqa: N818  (a signal, not an error)
    """The list is through: what a run does afterwards is not compared here."""


@dataclass
class Clock:
    """What happened when; 0 is the start of the process."""

    started: float  # time.time() of the parent
    events: list[Json] = field(default_factory=list)
    seconds: list[Json] = field(default_factory=list)  # assemble, load, run of each job
    loop: Json = field(default_factory=dict)
    worker_bytes: int = 0

    def now(self) -> float:
        return time.time() - self.started

    def begin(self) -> None:
        self.seconds.clear()
        self.loop = {"begin_s": self.now(), "begin_cpu_s": cpu_seconds_now()}

    def end(self) -> None:
        self.loop |= {"end_s": self.now(), "end_cpu_s": cpu_seconds_now()}

    def to_json(self) -> Json:
        return {
            "events": self.events,
            "seconds": self.seconds,
            "loop": self.loop,
            "worker_bytes": self.worker_bytes,
        }


# ------------------------------------------------------------------------------------------- ours


@dataclass
class Listed:
    """Asks for given plans, then ends the run."""

    plans: Sequence[Plan]
    clock: Clock

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategy import Need

        return frozenset(Need)

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.search.strategy import Ask

        self.clock.begin()
        for start in range(0, len(self.plans), BATCH):
            yield Ask(tuple(self.plans[start : start + BATCH]))
        self.clock.end()
        raise ListDone


@dataclass
class Watched:
    """Another strategy, with the time it needs for itself, then ends the run."""

    inner: Any
    clock: Clock

    @property
    def needs(self) -> frozenset[Need]:
        needs: frozenset[Need] = self.inner.needs
        return needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        self.clock.begin()
        generator = self.inner.search(space, seed=seed)
        thinking, began = 0.0, time.perf_counter()
        try:
            ask = next(generator)
            while True:
                thinking += time.perf_counter() - began
                answers = yield ask
                began = time.perf_counter()
                ask = generator.send(answers)
        except StopIteration:
            thinking += time.perf_counter() - began
        finally:  # a budget may end it, too
            self.clock.end()
            self.clock.loop["thinking_s"] = thinking
        raise ListDone


@dataclass
class Steps:
    """Writes stepwise's list of plans; runs the first one only."""

    every: int
    found: list[Json] = field(default_factory=list)

    @property
    def needs(self) -> frozenset[Need]:
        from seqto.search.strategies.stepwise import Stepwise

        return Stepwise.needs

    def search(self, space: Space, *, seed: int) -> Generator[Ask, Answers, None]:
        from seqto.search.strategy import Ask
        from stepping import stepwise_plans, thinned

        steps = thinned(stepwise_plans(space), self.every)
        yield Ask((steps[0][0],))
        for plan, note in steps:
            kept = dict(plan.schemes)
            nodes = [n for x in space.layers if x.name not in kept for n in x.nodes]
            self.found.append({"plan": plan.to_json(), "note": note, "exclude": nodes})
        raise ListDone


def run_ours(job: Any, clock: Clock) -> None:
    """Run seqto; jobs' seconds and trials are noted as they come."""
    import dataclasses

    from seqto.execution.executor import Done
    from seqto.execution.jobs import Evaluated
    from seqto.execution.local.executor import LocalExecutor
    from seqto.record.events import Event

    class NotingExecutor(LocalExecutor):
        def wait(self, timeout_s: float | None = None) -> list[Done]:
            ended = super().wait(timeout_s)
            for done in ended:
                if isinstance(done.outcome, Evaluated):
                    clock.seconds.append({**done.outcome.seconds, "total": done.seconds})
            return ended

    def listen(event: Event) -> None:
        if event.tag != "trial":
            return
        trial = event.to_json()["trial"]
        seen = trial["measurements"].get("evaluation")
        if seen is None:
            return
        clock.events.append(
            {
                "at_s": clock.now(),
                "key": trial["key"],
                "loss": seen["loss"]["value"],
                "size_bytes": trial["size_bytes"],
                "samples": seen["loss"]["samples"],
                "stopped_early": seen["stopped_early"],
            }
        )
        for worker in executors[-1]._pool._workers if executors else []:
            clock.worker_bytes = max(clock.worker_bytes, private_bytes(worker.pid))

    executors: list[LocalExecutor] = []

    def make_executor(*arguments: Any, **named: Any) -> LocalExecutor:
        executors.append(NotingExecutor(*arguments, **named))
        return executors[-1]

    from seqto.study import open_executor
    from seqto.study import run as study_run

    open_executor.LocalExecutor = make_executor  # type: ignore[misc,assignment]
    with contextlib.suppress(ListDone):
        study_run.run(dataclasses.replace(job, listener=listen))


# --------------------------------------------------------------------------- the published way


def run_published(job: Any, prepared: Path, candidates: Sequence[Json], clock: Clock) -> None:
    """Each candidate from scratch with the stock tools.

    Done again for every candidate, as the published tool does it: the calibration pictures are
    read and decoded, the model is calibrated and quantized as a whole, written and loaded from
    its file; then each evaluation picture is read, decoded, prepared and run alone. Not as
    published: pictures are the same for all candidates, and float's answers are kept.
    """
    import tempfile

    import onnxruntime as ort

    from seqto.data.splits import split_rows

    d = job.settings.data
    rows = split_rows(
        len(job.data),
        calibration=d.calibration,
        evaluation=d.evaluation,
        report=d.report,
        seed=d.seed,
        calibration_rows=getattr(job.data, "calibration_rows", None),
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    original = ort.InferenceSession(job.fetched.path, options)
    answers = [_answer(original, feeds) for feeds in _read(job, prepared, rows["evaluation"])]
    clock.begin()
    for candidate in candidates:
        began = time.perf_counter()
        feeds = _read(job, prepared, rows["calibration"])
        model = zoo.stock_quantized(prepared, feeds, exclude=candidate["exclude"])
        with tempfile.TemporaryDirectory(prefix="published-") as folder:
            path = Path(folder) / "model.onnx"
            path.write_bytes(model)
            made = time.perf_counter()
            session = ort.InferenceSession(str(path), options)
            loaded = time.perf_counter()
        wrong, run_s = 0, 0.0
        for feeds_of_one, wanted in zip(
            _read(job, prepared, rows["evaluation"]), answers, strict=True
        ):
            at = time.perf_counter()
            got = _answer(session, feeds_of_one)
            run_s += time.perf_counter() - at
            wrong += got != wanted
        done = time.perf_counter()
        clock.seconds.append(
            {"assemble": made - began, "load": loaded - made, "run": run_s, "total": done - began}
        )
        clock.events.append(
            {
                "at_s": clock.now(),
                "loss": wrong / len(answers),
                "size_bytes": len(zoo.cleaned(model, prepared)),
                "samples": len(answers),
                "stopped_early": False,
            }
        )
    clock.end()


def _read(job: Any, prepared: Path, rows: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield pictures from the disk, decoded and prepared one at a time."""
    from seqto.data.preprocess import normalise, prepare_row
    from seqto.model.files import load
    from seqto.model.inputs import input_specs

    specs = input_specs(load(prepared))
    for row in rows:
        sample = job.data.read(row)
        feeds = {}
        for spec in specs:
            value = sample.inputs.get(spec.name, sample.inputs.get(""))
            kept, picture = prepare_row(value, spec, job.preprocess)
            batch = kept[None]
            feeds[spec.name] = normalise(batch, job.preprocess) if picture else batch
        yield feeds


def _answer(session: Any, feeds: dict[str, Any]) -> int:
    return int(session.run(None, feeds)[0].argmax())


# ----------------------------------------------------------------------------------------- door


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    clock = Clock(spec["started"])
    case = zoo.Case(spec["name"], spec["tables"])
    out, kind = Path(spec["run"]), spec["kind"]
    if kind == "list":
        steps = Steps(spec["every"])
        run_ours(case.job(out, spec["settings"], strategy=steps), clock)
        result: Json = {"candidates": steps.found}
    elif kind == "published":
        job = case.job(out, spec["settings"])
        run_published(job, Path(spec["prepared"]), spec["candidates"], clock)
        result = clock.to_json()
    else:
        run_ours(case.job(out, spec["settings"], strategy=_strategy(spec, clock)), clock)
        result = clock.to_json()
    Path(spec["answer"]).write_text(json.dumps(result), encoding="utf-8")


def _strategy(spec: Json, clock: Clock) -> Any:
    from seqto.assembly.plan import Plan

    if spec["kind"] == "frontier":
        from seqto.search.strategies.frontier import Frontier

        return Watched(Frontier(objectives=("loss", "size")), clock)
    if spec["kind"] == "few":
        from growth import Few

        return Watched(Few(spec["candidates"]), clock)
    return Listed([Plan.from_json(c["plan"]) for c in spec["candidates"]], clock)


if __name__ == "__main__":
    main()

"""What workers execute: assemble a plan, run it on the device, time it, look inside it.

A worker is set up once with folders and a device (all JSON), keeps parts and samples between
jobs, and streams raw outputs to the main process, which judges them. Jobs:

    evaluate   a plan over a split, chunk by chunk      → size, sha256, seconds
    latency    plans and the float model, interleaved   → milliseconds of each
    analyze    layer errors of a plan against float     → rows of the layer analysis
    diagnose   why a plan hurts: one part of evidence   → figures of each layer
    profile    kernel times by layer                    → milliseconds and kernel of each layer
    tune       which batch is fastest                   → the batch
    saturation whether 8-bit products are added exactly → exact, saturates, unknown
    round      weights of some layers for the output    → where they are in the file
"""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqto.assembly import rounded_weights
from seqto.assembly.assembler import Assembled, Assembler, describe, open_assembler
from seqto.assembly.plan import Plan
from seqto.data.store import SampleStore
from seqto.devices import saturation
from seqto.devices.device import Device, Session
from seqto.devices.ort_profile import attribute_times, node_owners
from seqto.diagnosis.layer_errors import layer_errors
from seqto.errors import PlanError
from seqto.execution.local.worker_process import Channel, Handler
from seqto.model import outputs as model_outputs
from seqto.model.batch import Batch, rows_fed
from seqto.model.outputs import Judged
from seqto.records import CALIBRATION, Json
from seqto.transforms.variants import variant_of

JOBS = (
    *("evaluate", "latency", "memory", "analyze", "diagnose"),
    *("profile", "tune", "saturation", "round"),
)


# what a change between integer and float layers costs: the change itself and the layout's
SIGN_OF_LIFE_S = 1.0  # between two messages of a latency job


class Bench:
    """One worker's workplace: assemblers by variant, samples, the device."""

    def __init__(self, setup: Json) -> None:
        from seqto.plugins import device_from_json

        self.folder = Path(setup["folder"])
        self.device: Device = device_from_json(setup["device"])
        self.exact: Device = device_from_json({"kind": "ort", "optimize": False})
        self.max_opset: int | None = setup.get("max_opset")
        self.original = Path(setup["original"])
        self.judged = Judged.from_json(setup["output"])
        self.store = SampleStore.open(Path(setup["samples"]))
        self._assemblers: dict[str, Assembler] = {}

    def assembler(self, variant: str) -> Assembler:
        place = self.folder / "variants" / variant
        if variant not in self._assemblers:
            self._assemblers[variant] = open_assembler(place, max_opset=self.max_opset)
        made = self._assemblers[variant]
        if not made.rounded:  # may have been made since
            made.rounded.update(rounded_weights.load(place))
        return made

    def assemble(self, plan: Plan) -> Assembled:
        return self.assembler(variant_of(plan.transforms)).assemble(plan)

    def model_of(self, plan: Json | None) -> bytes | Path:
        if plan is None:
            return self.original  # by its path: it may have external data beside it
        return self.assemble(Plan.from_json(plan)).data

    # --------------------------------------------------------------------------------- jobs

    def evaluate(self, job: Json, channel: Channel) -> Json:
        began = time.perf_counter()
        answer: Json = {}
        model: bytes | Path = self.original
        if job["plan"] is not None:
            assembled = self.assemble(Plan.from_json(job["plan"]))
            model, answer = assembled.data, describe(assembled)
            channel.send({"assembled": answer})
            reply = channel.receive() or {}
            if not reply.get("go"):
                return {**answer, "skipped": True}
        made = time.perf_counter()
        device = self.exact if job.get("exact") else self.device
        with contextlib.closing(device.open(model, threads=job["threads"])) as session:
            del model
            loaded = time.perf_counter()
            run_s = self._stream(session, job, channel)
        return {
            **answer,
            "seconds": {"assemble": made - began, "load": loaded - made, "run": run_s},
            "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }

    def _stream(self, session: Session, job: Json, channel: Channel) -> float:
        """Run chunk by chunk; a chunk is sent when it is done, `stopped` is asked between."""
        seconds = 0.0
        batch, chunk, end = job["batch"], job["chunk"], job["rows"]
        order = job.get("order")
        positions = job.get("outputs") or [self.judged.position]
        for start in range(job.get("first", 0), end, chunk):
            if channel.stopped:
                break
            stop = min(start + chunk, end)
            parts: list[list[NDArray[Any]]] = []
            for first in range(start, stop, batch):
                last = min(first + batch, stop)
                if order is None:
                    feeds = self.store.batch(job["split"], first, last)
                else:
                    feeds = self.store.pick(job["split"], order[first:last])
                began = time.perf_counter()
                found = session.run(feeds)
                seconds += time.perf_counter() - began
                parts.append([self._by_sample(found, place, feeds) for place in positions])
            outputs = [
                model_outputs.joined(p, name=self._output_name(place))
                for place, p in zip(positions, zip(*parts, strict=True), strict=True)
            ]
            channel.send({"start": start, "stop": stop}, outputs)
        return seconds

    def _output_name(self, position: int) -> str:
        return self.judged.name if position == self.judged.position else f"number {position}"

    def _by_sample(self, found: list[Any], position: int, feeds: Batch) -> NDArray[Any]:
        """One of the outputs, one row a sample, without what only fills a fixed batch."""
        name = self._output_name(position)
        return model_outputs.by_sample(
            found[position], name=name, fed=rows_fed(feeds), rows=feeds.rows
        )

    def latency(self, job: Json, channel: Channel) -> Json:
        """Rounds of one run each, float first; interleaving makes ratios hold on busy machines."""
        feeds = self.store.batch(job["split"], 0, 1)
        alive = _sign_of_life(channel)
        with contextlib.ExitStack() as stack:
            sessions: list[Session] = []
            for plan in [job["float"], *job["plans"]]:
                opened = self.device.open(self.model_of(plan), threads=job["threads"])
                sessions.append(stack.enter_context(contextlib.closing(opened)))
                channel.send({"loaded": len(sessions)})
            for session in sessions:
                for _ in range(3):
                    session.time_ms(feeds)
                    alive()
            times = _in_turn(sessions, feeds, job, alive=alive)
            throughput = None
            if job.get("batch"):
                throughput = [self._throughput(s, job, alive=alive) for s in sessions]
        return {"times_ms": times, "throughput": throughput}

    def _throughput(self, session: Session, job: Json, *, alive: Callable[[], None]) -> float:
        rows = np.arange(job["batch"]) % self.store.rows(job["split"])
        feeds = self.store.pick(job["split"], rows.tolist())
        best = np.inf
        for _ in range(4):  # the first is slower, and so never the best
            best = min(best, session.time_ms(feeds))
            alive()
        return 1e3 * float(job["batch"]) / best

    def memory(self, job: Json, _channel: Channel) -> Json:
        """Peak resident bytes of one plan alone; the worker is fresh and ends after it."""
        opened = self.device.open(self.model_of(job["plan"]), threads=job["threads"])
        with contextlib.closing(opened) as session:
            session.run(self.store.batch(job["split"], 0, 1))
        return {"peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}

    def analyze(self, job: Json, channel: Channel) -> Json:
        plan = Plan.from_json(job["plan"])
        rows = min(job["samples"], self.store.rows(CALIBRATION))
        step = self.store.fixed_batch or 1
        feeds = (
            self.store.batch(CALIBRATION, i, min(i + step, rows)) for i in range(0, rows, step)
        )
        assembler = self.assembler(variant_of(plan.transforms))
        errors = layer_errors(
            assembler, plan, feeds, exact=job.get("exact", False), alive=lambda: channel.send({})
        )
        return {"errors": errors, "samples": rows}

    def diagnose(self, job: Json, channel: Channel) -> Json:
        from seqto.diagnosis.measure import Scene, gather

        plan = Plan.from_json(job["plan"])
        assembler = self.assembler(variant_of(plan.transforms))
        step = self.store.fixed_batch or 1  # a fixed batch stays whole
        rows = max(step, min(job["samples"], self.store.rows(CALIBRATION)) // step * step)
        samples = [self.store.batch(CALIBRATION, i, i + step) for i in range(0, rows, step)]
        scene = Scene(
            assembler,
            plan,
            samples,
            self.device,
            self.exact,
            alive=lambda: channel.send({}),
            output=self.judged.name,
        )
        return gather(job["part"], scene)

    def profile(self, job: Json, _channel: Channel) -> Json:
        """Kernel milliseconds by layer, on devices that can tell."""
        profile = getattr(self.device, "profile", None)
        if profile is None:
            return {
                "layers_ms": {},
                "placement": {},
                "kernels": {},
                "conversion_ms": 0.0,
                "conversions": 0,
            }
        plan = Plan.from_json(job["plan"])
        assembler = self.assembler(variant_of(plan.transforms))
        feeds = self.store.batch(CALIBRATION, 0, 1)
        rows = profile(assembler.assemble(plan).data, feeds, runs=job["runs"])
        return attribute_times(rows, node_owners(assembler))

    def tune(self, job: Json, channel: Channel) -> Json:
        """The batch with the most samples a second on the float model, by a short trial."""
        rows = self.store.rows(job["split"])
        speed: dict[int, float] = {}
        opened = self.device.open(self.original, threads=job["threads"])
        with contextlib.closing(opened) as session:
            for batch in [b for b in job["batches"] if b <= rows]:
                feeds = self.store.batch(job["split"], 0, batch)
                found = session.run(feeds)[self.judged.position]
                if batch > 1 and not model_outputs.has_rows(found, batch):
                    break  # samples can be told apart only when they run one by one
                began, runs = time.perf_counter(), 0
                while runs < 2 or time.perf_counter() - began < job["seconds"]:
                    session.run(feeds)
                    runs += 1
                speed[batch] = runs * batch / (time.perf_counter() - began)
                channel.send({"batch": batch})
        best = max(speed.values())
        # the smallest batch that is nearly best: less memory for the same speed
        return {"batch": min(b for b, s in speed.items() if s >= 0.97 * best), "speed": speed}

    def saturation(self, _job: Json, _channel: Channel) -> Json:
        return saturation.probe(self.device)

    def round(self, job: Json, channel: Channel) -> Json:
        """Round the weights of some layers for the output error; a file that others map."""
        assembler = self.assembler(job["variant"])
        prepared = assembler.prepared
        layers = [x for x in prepared.layers if x.name in set(job["layers"])]
        found = rounded_weights.round_layers(
            prepared,
            self.store.calibration,
            layers,
            job["kinds"],
            constants=assembler,
            told=channel.send,
        )
        path = self.folder / "variants" / job["variant"] / str(job["file"])
        return {"rows": rounded_weights.save(found, path)}


def _sign_of_life(channel: Channel) -> Callable[[], None]:
    """A function that sends a message, if the last one is some time ago."""
    last = time.perf_counter()

    def alive() -> None:
        nonlocal last
        if time.perf_counter() - last >= SIGN_OF_LIFE_S:
            last = time.perf_counter()
            channel.send({"timing": True})

    return alive


def _in_turn(
    sessions: list[Session], feeds: Batch, job: Json, *, alive: Callable[[], None]
) -> list[list[float]]:
    """Milliseconds of each session, one run a round, forwards and backwards by turns."""
    times: list[list[float]] = [[] for _ in sessions]
    end = time.perf_counter() + job["seconds"]
    rounds = 0
    while rounds < job["min_rounds"] or (time.perf_counter() < end and rounds < job["max_rounds"]):
        order = range(len(sessions)) if rounds % 2 == 0 else reversed(range(len(sessions)))
        for i in order:
            times[i].append(sessions[i].time_ms(feeds))
            alive()
        rounds += 1
    return times


def serve(setup: Json) -> Handler:
    """The target of a worker pool."""
    bench = Bench(setup)

    def handle(job: Json, channel: Channel) -> Json:
        if job["kind"] not in JOBS:
            raise PlanError(f"unknown job {job['kind']!r}")
        result: Json = getattr(bench, job["kind"])(job, channel)
        return result

    return handle

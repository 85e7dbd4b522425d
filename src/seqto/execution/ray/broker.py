"""The process that is the Ray driver of a command: it gives jobs to actors and files to nodes.

It is a process of its own, since Ray ends its driver's process when the head of the cluster is
gone, and writes to its terminal: the main process, which has the journal, must see neither. The
two speak in frames of JSON over a socket, as a local worker does with the main process.

    main                                   broker
    open   ─ set-up of a run, its folder ▶
    submit ─ job ───────────────────────▶  schedule → actor.run
           ◀──────────────── done, error ─
    stop, cancel, close ────────────────▶
           ◀─── workers: how many, refused ─
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqto.execution import codec
from seqto.execution.executor import CANCELLED
from seqto.execution.files import WORK, FileRef, LocalFiles
from seqto.execution.jobs import WorkerSetup, job_from_json
from seqto.execution.local.frames import Frame, Wire
from seqto.execution.needs import NamedFiles, needs_device, setup_files
from seqto.execution.ray.contents import Contents
from seqto.execution.ray.nodes import Nodes, is_bug
from seqto.execution.ray.schedule import MOST_LOSSES, Schedule, Task, WorkerSlot
from seqto.files import write_file
from seqto.records import LOST, Failure, Json

SENDINGS = 4  # times that contents are sent for one job before it counts as failed
IDLE_S = 60.0  # without a worker that may run a waiting job, before the job is given up
SETTLED_S = 2.0  # the same where workers are there and no more are starting


@dataclass(slots=True)
class Run:
    """One study's share of the broker."""

    name: str
    setup: Json
    setup_files: tuple[FileRef, ...]
    files: LocalFiles
    limits: Json
    named: NamedFiles
    jobs: dict[int, Json] = field(default_factory=dict)  # that are not done


class Broker:
    """Reads requests, feeds workers, tells what came of the jobs."""

    def __init__(self, stream: socket.socket, options: Json) -> None:
        self._wire = Wire(stream)
        self._options = options
        self._runs: dict[str, Run] = {}
        self._schedule = Schedule(
            needs_resource=bool(options["resource"]), driver_host=options["host"]
        )
        self._contents = Contents(options["folder"], options["token"])
        self._nodes = Nodes(options, self._schedule, changed=self._workers_changed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stranded_at: float | None = None
        self._ended = asyncio.Event()

    async def serve(self) -> None:
        """Work until main hangs up."""
        loop = asyncio.get_running_loop()
        try:
            self._nodes.connect()
        except Exception as error:
            self._send("fatal", {"message": _first_line(error)})
            return
        loop.add_reader(self._wire.socket.fileno(), self._read)
        watcher = asyncio.create_task(self._watch())
        try:
            await self._ended.wait()
        finally:
            watcher.cancel()
            loop.remove_reader(self._wire.socket.fileno())
            self._nodes.disconnect()
            self._contents.close()

    # ------------------------------------------------------------------------------- requests

    def _read(self) -> None:
        try:
            while (frame := self._wire.read()) is not None:
                self._handle(frame)
        except (EOFError, ConnectionError):
            self._ended.set()

    def _handle(self, frame: Frame) -> None:
        body = frame.body
        if frame.kind == "open":
            self._open(body)
        elif frame.kind == "submit":
            job = job_from_json(body["job"])
            self._runs[body["run"]].jobs[body["number"]] = body["job"]
            task = Task(body["number"], body["run"], needs_device(job), bool(body["alone"]))
            self._schedule.put(task)
        elif frame.kind == "close":
            self._close(body["run"])
        elif frame.kind in ("stop", "cancel"):
            self._ask(frame.kind, body["number"])
        self._dispatch()

    def _open(self, body: Json) -> None:
        elsewhere = {name: Path(path) for name, path in body["elsewhere"].items()}
        files = LocalFiles(Path(body["root"]), elsewhere)
        setup: WorkerSetup = codec.decode(WorkerSetup, body["setup"])
        self._runs[body["run"]] = Run(
            body["run"],
            body["setup"],
            setup_files(setup),
            files,
            body["limits"],
            NamedFiles(files),
        )
        self._workers_changed()

    def _close(self, run: str) -> None:
        self._runs.pop(run, None)
        self._schedule.close(run)
        self._keep(self._nodes.forget(run))

    def _ask(self, what: str, number: int) -> None:
        if what == "stop":
            for worker in self._schedule.workers.values():
                if worker.task is not None and worker.task.number == number:
                    self._nodes.actor(worker).stop.remote(number)
            return
        cancelled = self._schedule.cancel(number)
        if isinstance(cancelled, Task):
            self._done(cancelled, {"failure": CANCELLED.to_json()})
        elif isinstance(cancelled, WorkerSlot):
            self._nodes.actor(cancelled).cancel.remote(number)

    # ----------------------------------------------------------------------------------- jobs

    def _dispatch(self) -> None:
        while (chosen := self._schedule.next()) is not None:
            self._keep(self._run(*chosen))

    async def _run(self, task: Task, worker: WorkerSlot) -> None:
        """Run one job on one worker, whatever becomes of it."""
        reply: Json | None
        try:
            reply = await self._reply(task, worker)
        except Exception as error:
            if is_bug(error):
                reply = {"error": {"bug": str(error)}}
            else:
                reply = await self._after_loss(task, worker, error)
        if worker.task is task:
            self._schedule.finish(worker)
        if reply is not None:
            self._conclude(task, worker, reply)
        self._dispatch()

    async def _reply(self, task: Task, worker: WorkerSlot) -> Json:
        run = self._runs[task.run]
        job = run.jobs[task.number]
        refs = (*run.setup_files, *run.named.of_job(job_from_json(job)))
        order = {
            "number": task.number,
            "run": task.run,
            "job": job,
            "setup": run.setup,
            "limits": run.limits,
            "files": [ref.to_json() for ref in refs],
        }
        store = self._nodes.store_of(worker)
        for _ in range(SENDINGS):
            sent = await self._contents.for_store(store, refs, run.files)
            reply: Json = await self._nodes.actor(worker).run.remote(order, sent)
            self._contents.sent(store, sent)
            if "missing" not in reply:
                return reply
            self._contents.lost(store, reply["missing"])
        names = [ref.name for ref in refs if ref.sha256 in reply["missing"]]
        text = f"{names[0]!r} did not arrive at {worker.node} in {SENDINGS} sendings"
        return {"failure": Failure(LOST, text).to_json()}

    async def _after_loss(self, task: Task, worker: WorkerSlot, error: Exception) -> Json | None:
        """Give the job of a lost worker to another one, or return that it has failed."""
        reason = _first_line(error)
        if self._schedule.workers.get(worker.name) is worker:
            self._schedule.remove(worker.name)
        self._nodes.lost(worker)
        return self._again(task, worker, f"the worker on {worker.node} was lost: {reason}")

    def _again(self, task: Task, worker: WorkerSlot, message: str) -> Json | None:
        task.losses += 1
        if task.losses >= MOST_LOSSES or task.run not in self._runs:
            return {"failure": Failure(LOST, message).to_json()}
        task.avoid |= {worker.name}
        self._schedule.put(task, first=True)
        return None

    def _conclude(self, task: Task, worker: WorkerSlot, reply: Json) -> None:
        failure = reply.get("failure")
        if failure is not None and failure["stage"] == LOST and task.losses == 0:
            # a device that has disappeared: another one may still be there
            if self._again(task, worker, failure["message"]) is None:
                if not self._schedule.stranded():
                    return
                self._schedule.cancel(task.number)
            self._done(task, reply, worker)
            return
        if "error" in reply and "bug" not in reply["error"]:
            self._refuse(task, worker, reply["error"])
            return
        self._done(task, reply, worker)

    def _refuse(self, task: Task, worker: WorkerSlot, error: Json) -> None:
        """Note that a worker cannot be set up for a run; without others the run ends."""
        if self._schedule.workers.get(worker.name) is worker:
            self._schedule.remove(worker.name)
        self._nodes.refuse(worker, f"cannot be set up: {error['message']}")
        if any(self._schedule.workers):
            self._schedule.put(task, first=True)
        else:
            self._done(task, {"error": error}, worker)

    def _done(self, task: Task, reply: Json, worker: WorkerSlot | None = None) -> None:
        run = self._runs.get(task.run)
        if run is None or run.jobs.pop(task.number, None) is None:
            return
        body = {k: v for k, v in reply.items() if k != "files"}
        if reply.get("files"):
            body["result"] = self._adopt(run, task, body["result"], reply["files"])
        node = {} if worker is None else self._nodes.describe(worker)
        self._send("done", {"run": task.run, "number": task.number, "node": node, **body})

    def _adopt(self, run: Run, task: Task, result: Json, contents: dict[str, bytes]) -> Json:
        """Put the files that a worker has made into the run folder; return the result with them."""
        adopted = dict(result)
        for key, value in result.items():
            if not isinstance(value, dict):
                continue
            if value.get("sha256") in contents and "name" in value:
                adopted[key] = self._placed(run, task, FileRef.from_json(value), contents).to_json()
            else:
                adopted[key] = self._adopt(run, task, value, contents)
        return adopted

    def _placed(self, run: Run, task: Task, ref: FileRef, contents: dict[str, bytes]) -> FileRef:
        name = f"{WORK}/{Path(ref.name).name}-{task.number}"
        arrived = run.files.named(f"{name}.part")
        write_file(arrived, contents[ref.sha256])
        placed = FileRef(ref.sha256, ref.size_bytes, name)
        run.files.receive(placed, arrived)
        return placed

    # --------------------------------------------------------------------------------- workers

    async def _watch(self) -> None:
        """Look for nodes that have come, and for jobs that nobody can run."""
        while True:
            await self._nodes.look()
            self._dispatch()
            self._end_stranded()
            await asyncio.sleep(self._nodes.interval_s)

    def _workers_changed(self) -> None:
        body = {"count": len(self._schedule.workers), "refusal": self._nodes.refusal()}
        self._send("workers", body)

    def _end_stranded(self) -> None:
        stranded = self._schedule.stranded()
        if not stranded:
            self._stranded_at = None
            return
        self._stranded_at = self._stranded_at or time.monotonic()
        settled = not self._nodes.starting and self._schedule.workers
        if time.monotonic() - self._stranded_at < (SETTLED_S if settled else IDLE_S):
            return
        for task in stranded:
            self._schedule.cancel(task.number)
            self._done(task, self._stranded_reply(task))

    def _stranded_reply(self, task: Task) -> Json:
        """Return a failure of this job, or an error that ends the run since no such job can run."""
        if task.avoid:  # what it was lost on was the last of its kind
            return {"failure": Failure(LOST, "no other worker is left that may run it").to_json()}
        if task.alone and any(not w.times for w in self._schedule.workers.values()):
            message = "no worker has this machine's type of CPU: times are not measured"
            return {"failure": Failure("time", message).to_json()}
        message = self._nodes.why_not(device=task.device)
        return {"error": {**Failure("load", message).to_json(), "type": "DeviceError"}}

    # ---------------------------------------------------------------------------------- frames

    def _send(self, kind: str, body: Json) -> None:
        self._wire.queue(Frame(kind, body))
        with contextlib.suppress(ConnectionError):
            self._wire.flush()

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:300]


def main(channel_fd: int) -> None:
    stream = socket.socket(fileno=channel_fd)
    stream.set_inheritable(False)  # Ray's processes must not hold it open
    wire = Wire(stream)
    stream.setblocking(True)
    while (frame := wire.read()) is None:
        time.sleep(0.005)
    os.environ.update(frame.body["environment"])
    sys.modules.setdefault("seqto.execution.ray.broker", sys.modules["__main__"])
    asyncio.run(_serve(stream, json.loads(json.dumps(frame.body["options"]))))


async def _serve(stream: socket.socket, options: Json) -> None:
    await Broker(stream, options).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]))

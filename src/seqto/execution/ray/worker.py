"""A worker of a Ray cluster, as the actor's class.

The actor supervises one worker process of this machine's own executor. A model that crashes,
hangs or eats the memory ends that process; the actor lives on, and the failure reads as it does
on one machine. What travels between driver and actor is JSON, bytes and references to objects.
"""

from __future__ import annotations

import os
import platform
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from seqto.devices.environment import environment
from seqto.execution import codec
from seqto.execution.executor import Done
from seqto.execution.files import FileRef, LocalFiles
from seqto.execution.jobs import WorkerSetup, job_from_json, result_to_json
from seqto.execution.local.executor import LocalExecutor
from seqto.execution.local.worker_process import failure_json
from seqto.execution.needs import refs_in
from seqto.execution.ray.node_files import ContentLostError, NodeFiles
from seqto.records import Failure, Json

TICK_S = 0.1  # how often a running job is looked at for requests to end it
KEPT_RUNS = 2  # runs whose worker process is kept for the next job


@dataclass(slots=True)
class _Call:
    order: Json
    contents: dict[str, Sequence[Any]]
    answer: Future[Json] = field(default_factory=Future)


class RemoteWorker:
    """Runs one job after the other; `stop` and `cancel` come in from other threads."""

    target: ClassVar[str | None] = None  # another handler of jobs, for tests and benchmarks

    def __init__(self, token: str) -> None:
        self._files = NodeFiles.open(token)
        self._executors: dict[str, LocalExecutor] = {}  # by run, the last used last
        self._setups: dict[str, Json] = {}
        self._asked: dict[int, str] = {}  # job number → stop or cancel
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        # worker processes end with the thread that started them: it must live as long as we do
        threading.Thread(target=self._serve, daemon=True, name="seqto-jobs").start()

    def hello(self) -> Json:
        """Return the worker's host, processor and versions."""
        return {
            "host": host_identity(),
            "name": platform.node(),
            "store": f"{host_identity()}:{self._files.identity}",
            "environment": environment(),
            "pid": os.getpid(),
        }

    def run(self, order: Json, contents: dict[str, Sequence[Any]]) -> Json:
        """Run a job.

        {result, note, seconds, files} where it went well, else {failure, …}, {missing: hashes}
        where contents must be sent first, or {error} where no job of this run can be run here.
        """
        call = _Call(order, contents)
        self._calls.put(call)
        return call.answer.result()

    def stop(self, number: int) -> None:
        self._asked.setdefault(number, "stop")

    def cancel(self, number: int) -> None:
        self._asked[number] = "cancel"

    def forget(self, run: str) -> None:
        """Let go of a run that has ended."""
        call = _Call({"forget": run}, {})
        self._calls.put(call)
        call.answer.result()

    def leave(self) -> None:
        """End the worker process and remove the files of this command from the host."""
        for run in list(self._executors):
            self.forget(run)
        self._files.remove()

    # ------------------------------------------------------------------------- the job thread

    def _serve(self) -> None:
        while True:
            call = self._calls.get()
            try:
                call.answer.set_result(self._answer(call))
            except ContentLostError as error:
                call.answer.set_result({"missing": [error.sha256]})
            except Exception as error:
                call.answer.set_result({"error": failure_json(error)})

    def _answer(self, call: _Call) -> Json:
        order = call.order
        if "forget" in order:
            self._close(order["forget"])
            self._files.forget(order["forget"])
            return {}
        refs = [FileRef.from_json(ref) for ref in order["files"]]
        self._files.receive(call.contents, read_object)
        missing = self._files.missing(refs)
        if missing:
            return {"missing": missing}
        files = self._files.mirror(order["run"], refs)
        if "setup" in order:
            self._setups[order["run"]] = order["setup"]
        executor = self._executor(order["run"], files, order["limits"])
        return self._reply(self._run_job(executor, order), files)

    def _executor(self, run: str, files: LocalFiles, limits: Json) -> LocalExecutor:
        executor = self._executors.pop(run, None)
        if executor is None:
            for old in list(self._executors)[: 1 - KEPT_RUNS]:
                self._close(old)
            setup: WorkerSetup = codec.decode(WorkerSetup, self._setups[run])
            executor = LocalExecutor(setup, files, slots=1, target=self.target, **limits)
        self._executors[run] = executor
        return executor

    def _run_job(self, executor: LocalExecutor, order: Json) -> Done:
        number = order["number"]
        handle = executor.submit(job_from_json(order["job"]))
        try:
            while True:
                asked = self._asked.pop(number, None)
                if asked is not None:
                    (executor.cancel if asked == "cancel" else executor.stop)(handle)
                for done in executor.wait(TICK_S):
                    return done
        except Exception:
            self._close(order["run"])  # a pool that raised is not used again
            raise
        finally:
            self._asked.pop(number, None)

    def _reply(self, done: Done, files: LocalFiles) -> Json:
        reply: Json = {"seconds": done.seconds, "note": dict(done.note)}
        if isinstance(done.outcome, Failure):
            return {**reply, "failure": done.outcome.to_json()}
        contents: dict[str, bytes] = {}
        for ref in refs_in(done.outcome):
            path = files.path(ref)
            contents[ref.sha256] = path.read_bytes()
            self._files.keep(ref, path)
        return {**reply, "result": result_to_json(done.outcome), "files": contents}

    def _close(self, run: str) -> None:
        executor = self._executors.pop(run, None)
        if executor is not None:
            executor.close()


def read_object(part: Any) -> Any:
    """Return the bytes of a part: an object of the cluster, or a file of the shared folder."""
    if isinstance(part, str):
        return Path(part).read_bytes()
    import ray

    return memoryview(ray.get(part, timeout=60.0))


def host_identity() -> str:
    """Name the host whose cores this process shares; containers of one host have the same."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return boot.read_text(encoding="ascii").strip()
    except OSError:
        return platform.node()

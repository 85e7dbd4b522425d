"""The executor of a Ray cluster, as the main process sees it (broker.py has the other side)."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from seqto.errors import ConfigError, DeviceError
from seqto.execution import codec
from seqto.execution.executor import Done, Handle
from seqto.execution.files import LocalFiles
from seqto.execution.jobs import Job, WorkerSetup, job_to_json, result_from_json
from seqto.execution.local.frames import Frame, Wire
from seqto.execution.local.pool import error_of
from seqto.execution.ray.node_files import sweep
from seqto.execution.ray.worker import RemoteWorker, host_identity
from seqto.records import Failure, Json

CONNECT_S = 10.0  # until somebody answers at the cluster's address

START_S = 180.0  # for the first worker to join
CLOSE_S = 20.0  # for the broker to end Ray
OBJECT_STORE_BYTES = 512 << 20  # of a cluster that we start; files travel in parts
HEAD_LOST_S = 45  # Ray gives up a head that does not answer after so long
LAST_OUTPUT_BYTES = 2000
WORKER = f"{RemoteWorker.__module__}:{RemoteWorker.__name__}"


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Settings of [executor]: the cluster, and what it is used for."""

    address: str | None = None  # None: one of this machine alone is started
    folder: str | None = None  # shared by all nodes; None: files go through the object store
    resource: str | None = None  # workers that have the device: nodes with seqto_device_NAME
    other_cpus: str = "refuse"  # or "loss"
    jobs: int = 0  # most workers; 0: one per CPU of the cluster


class RayCluster:
    """One connection to a cluster, shared by the runs of a command. Use it in a `with` block."""

    def __init__(
        self, settings: ClusterSettings, *, worker: str = WORKER, interval_s: float = 2.0
    ) -> None:
        """`worker`: "package.module:Class" of the actors; new nodes are looked for by interval."""
        if find_spec("ray") is None:
            raise ConfigError("executor ray needs Ray: pip install 'seqto[ray]'")
        self.settings = settings
        token = secrets.token_hex(8)
        sweep(Path(tempfile.gettempdir()))
        # short, since Ray makes sockets below it, whose paths have at most 107 characters
        self._temporary = Path(tempfile.gettempdir()) / f"seqto-head-{token[:8]}"
        self._numbers = itertools.count(1)
        self._runs: dict[str, RayExecutor] = {}
        self._send_lock = threading.Lock()
        self._changed = threading.Condition()
        self.workers = 0
        self._refusal = ""  # why no node of the cluster may be used
        self._fatal: str | None = None
        self._closed = False
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        self._process, self._wire = _start_broker(self._output)
        options = {
            "address": settings.address,
            "folder": settings.folder,
            "resource": settings.resource,
            "other_cpus": settings.other_cpus,
            "jobs": settings.jobs,
            "cpus": settings.jobs or os.cpu_count() or 1,
            "token": token,
            "temporary": str(self._temporary),
            "host": host_identity(),
            "object_store_bytes": OBJECT_STORE_BYTES,
            "worker": worker,
            "interval_s": interval_s,
        }
        self._send("setup", {"options": options, "environment": _ray_environment(settings)})
        self._reader = threading.Thread(target=self._read, daemon=True, name="seqto-ray")
        self._reader.start()

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def executor(
        self,
        setup: WorkerSetup,
        files: LocalFiles,
        *,
        timeout_s: float = 120.0,
        memory_bytes: int | None = None,
    ) -> RayExecutor:
        """Open the cluster for one run; returns when the first worker is there."""
        self._check_reachable()
        executor = RayExecutor(self, files, name=f"run{next(self._numbers)}")
        self._runs[executor.name] = executor
        self._send(
            "open",
            {
                "run": executor.name,
                "root": str(files.root.resolve()),
                "elsewhere": {n: str(p.resolve()) for n, p in files.elsewhere.items()},
                "setup": codec.encode(setup),
                "limits": {"timeout_s": timeout_s, "memory_bytes": memory_bytes},
            },
        )
        self.wait_for_workers()
        return executor

    def _check_reachable(self) -> None:
        """Raise where nobody listens at the address: Ray itself would try for minutes."""
        host, colon, port = (self.settings.address or "").removeprefix("ray://").rpartition(":")
        if not colon or not port.isdecimal():
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
        except (OSError, OverflowError) as error:
            raise DeviceError(
                f"Ray cluster {self.where} cannot be reached: {error}; check the address, and that "
                "`ray start --head` runs there"
            ) from error

    def wait_for_workers(self, count: int = 1, *, timeout_s: float = START_S) -> None:
        """Wait until so many workers have joined."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self.workers < count:
                self.check()
                in_time = self._changed.wait(max(0.0, deadline - time.monotonic()))
                if not in_time or (self._refusal and not self.workers):
                    self.check()
                    late = f"{self.workers} of {count} workers joined within {timeout_s:.0f} s"
                    raise DeviceError(
                        self._refusal or f"Ray cluster {self.where}: {late}; are its CPUs in use?"
                    )

    @property
    def where(self) -> str:
        return f"at {self.settings.address}" if self.settings.address else "of this machine"

    def check(self) -> None:
        """Raise if the cluster is gone."""
        if self._fatal is not None:
            raise DeviceError(self._fatal)

    def abort(self, reason: str) -> None:
        """Let every run of this command end with an error, e.g. after Ctrl-C."""
        self._gone(reason)

    def request(self, kind: str, body: Json) -> None:
        self.check()
        self._send(kind, body)

    def forget(self, name: str) -> None:
        if self._runs.pop(name, None) is not None and self._fatal is None:
            with contextlib.suppress(OSError):
                self._send("close", {"run": name})

    def close(self) -> None:
        """End the broker, which ends the actors, and Ray itself where we have started it."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError):
            self._wire.socket.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(CLOSE_S)
        self._reader.join(CLOSE_S)
        self._wire.socket.close()
        self._output.close()
        shutil.rmtree(self._temporary, ignore_errors=True)

    # --------------------------------------------------------------------------------- frames

    def _send(self, kind: str, body: Json) -> None:
        with self._send_lock:
            self._wire.queue(Frame(kind, body))
            try:
                self._wire.flush()
            except ConnectionError:
                self.check()  # the reader knows more; without it, it will

    def _read(self) -> None:
        """Hand frames to the runs until the broker has gone; in a thread of its own."""
        poll = select.poll()
        poll.register(self._wire.socket, select.POLLIN)
        try:
            while True:
                poll.poll()
                while (frame := self._wire.read()) is not None:
                    self._hand_out(frame)
        except (OSError, EOFError, ValueError):
            self._gone(None)

    def _hand_out(self, frame: Frame) -> None:
        body = frame.body
        if frame.kind == "done":
            run = self._runs.get(body["run"])
            if run is not None:
                run.arrived.put(body)
        elif frame.kind == "workers":
            with self._changed:
                self.workers, self._refusal = body["count"], body["refusal"]
                self._changed.notify_all()
        elif frame.kind == "fatal":
            self._gone(body["message"])

    def _gone(self, reason: str | None) -> None:
        if not self._closed and self._fatal is None:
            said = reason or self._last_line()
            what = "cannot be reached" if reason else "is gone"
            self._fatal = (
                f"the Ray cluster {self.where} {what}{f' ({said})' if said else ''}: the same "
                "command continues the run when it is back, or here with --executor local"
            )
        with self._changed:
            self._changed.notify_all()
        for run in list(self._runs.values()):
            run.arrived.put(None)

    def _last_line(self) -> str:
        """Return the end of what Ray has written, where it says why it ended."""
        self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, self._output.tell() - LAST_OUTPUT_BYTES))
        lines = self._output.read().decode("utf-8", "replace").splitlines()
        relevant = [line for line in lines if "GCS" in line or "raylet" in line.lower()]
        return " ".join((relevant or [""])[-1].split())[-200:]


class RayExecutor:
    """The jobs of one run on a cluster."""

    def __init__(self, cluster: RayCluster, files: LocalFiles, *, name: str) -> None:
        self.files, self.name = files, name
        self.arrived: queue.SimpleQueue[Json | None] = queue.SimpleQueue()
        self._cluster = cluster
        self._running: set[int] = set()
        self._submitted = 0

    @property
    def slots(self) -> int:
        return max(1, self._cluster.workers)

    def submit(self, job: Job, *, alone: bool = False) -> Handle:
        self._submitted += 1
        number = self._submitted
        body = {"run": self.name, "number": _number(self.name, number)}
        self._cluster.request("submit", {**body, "job": job_to_json(job), "alone": alone})
        self._running.add(number)
        return Handle(number)

    def wait(self, timeout_s: float | None = None) -> list[Done]:
        if not self._running:
            return []
        try:
            first = self.arrived.get(timeout=timeout_s)
        except queue.Empty:
            return []
        bodies = [first]
        with contextlib.suppress(queue.Empty):
            while True:
                bodies.append(self.arrived.get_nowait())
        self._cluster.check()
        return [self._done(body) for body in bodies if body is not None]

    def stop(self, handle: Handle) -> None:
        self._ask("stop", handle)

    def cancel(self, handle: Handle) -> None:
        self._ask("cancel", handle)

    def close(self) -> None:
        self._cluster.forget(self.name)

    def _ask(self, what: str, handle: Handle) -> None:
        if handle.number in self._running:
            self._cluster.request(what, {"number": _number(self.name, handle.number)})

    def _done(self, body: Json) -> Done:
        number = body["number"] % _RUN_STEP
        self._running.discard(number)
        if "error" in body:
            raise error_of(body["error"], f"Ray cluster {self._cluster.where}")
        outcome = (
            Failure.from_json(body["failure"])
            if "failure" in body
            else result_from_json(body["result"])
        )
        seconds, note = body.get("seconds", 0.0), body.get("note", {})
        return Done(Handle(number), outcome, seconds, note, body["node"])


_RUN_STEP = 1 << 32


def _number(run: str, number: int) -> int:
    """Return a job's number that differs from those of all runs' jobs."""
    return int(run.removeprefix("run")) * _RUN_STEP + number


def _start_broker(output: IO[bytes]) -> tuple[subprocess.Popen[bytes], Wire]:
    ours, theirs = socket.socketpair()
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    command = [sys.executable, "-P", "-m", "seqto.execution.ray.broker", str(theirs.fileno())]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,  # Ctrl-C in the terminal is main's alone
            env={**os.environ, "PYTHONPATH": path, **_QUIET},
        )
    finally:
        theirs.close()
    return process, Wire(ours)


_HEAD_LOST = "RAY_gcs_rpc_server_reconnect_timeout_s"
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_COLOR_PREFIX": "0",
}


def _ray_environment(settings: ClusterSettings) -> dict[str, Any]:
    """Return variables that Ray reads when it is imported."""
    common = {**_QUIET, _HEAD_LOST: os.environ.get(_HEAD_LOST, str(HEAD_LOST_S))}
    if settings.address is not None:
        return common
    return {
        **common,
        # with the first, Ray binds to 127.0.0.1 alone; it is its way for laptops
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # other users of this machine cannot use our cluster, and no file goes to the home folder
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }

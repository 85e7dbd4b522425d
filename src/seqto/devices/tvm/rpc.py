"""The connection to a TVM device: own local servers, one shared connection, retry after a loss.

A TVM RPC server serves one connection at a time, a phone's too. All sessions of a process that
go to the same place therefore share one `Link`. A link that is lost gets a new generation: who
finds that the generation moved loads its program again and repeats only the step that failed.

Run as a module this file is the local server itself: it ends, with all its children, when the
process that started it goes away, whatever way that process ended.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from seqto.errors import DeviceError

LOOPBACK = "127.0.0.1"


_START_LIMIT_S = 60.0  # a Python that imports tvm on a loaded machine


_PING_LIMIT_S = 20.0


T = TypeVar("T")


class LinkLostError(Exception):
    """The other end is gone or does not answer; trying again may help."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Endpoint of the device: an address, a tracker with a key, or a server of our own."""

    address: str | None = None
    tracker: str | None = None
    key: str = ""
    load_library: str | None = None
    session_timeout_s: float = 600.0
    connect_timeout_s: float = 60.0
    retries: int = 3
    backoff_s: float = 1.0

    def __str__(self) -> str:
        if self.tracker:
            return f"key {self.key!r} of tracker {self.tracker}"
        return self.address or "the local RPC server"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of `phone:9090` or `[::1]:9090`; ValueError when it is neither."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not of the form host:port")
    return host.strip("[]"), int(port)


def within(seconds: float, call: Callable[[], T]) -> T:
    """Return the call's result, or LinkLostError when it takes longer.

    A vanished peer never ends a blocking receive inside the C++ client, so the call runs in a
    thread that is left behind when its time is over; the study's worker process bounds how
    many of these there can be.
    """
    answer: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answer.put((True, call()))
        except BaseException as error:  # handed to the caller, whatever it is
            answer.put((False, error))

    threading.Thread(target=work, daemon=True, name="seqto-tvm-rpc").start()
    try:
        good, value = answer.get(timeout=seconds)
    except queue.Empty:
        raise LinkLostError(f"no answer within {seconds:g} s") from None
    if not good:
        raise value
    result: T = value
    return result


# ----------------------------------------------------------------------------- our own servers


class LocalServer:
    """An RPC server on 127.0.0.1 in its own process group."""

    def __init__(self, *, load_library: str | None = None, port: int = 0) -> None:
        command = [sys.executable, "-m", "seqto.devices.tvm.rpc", str(port), load_library or ""]
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        # safe path: a file tvm.py in the working directory must not be taken for the library
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        try:
            line = within(_START_LIMIT_S, self._first_line)
            self.port = int(line)
        except (LinkLostError, ValueError) as error:
            self.stop()
            raise DeviceError(
                "the local TVM RPC server did not start"
                + (f" with the library {load_library!r}" if load_library else "")
                + "; start it by hand to see why: python -m tvm.exec.rpc_server --host 127.0.0.1",
                stage="load",
            ) from error

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def _first_line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the whole tree; the listening process is a grandchild, not our child."""
        for process in _tree(self._process.pid):
            with contextlib.suppress(Exception):  # gone meanwhile
                process.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _tree(pid: int) -> list[Any]:
    import psutil

    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _serve(port: int, load_library: str | None) -> None:
    """Run the server: say the port, wait until the starter's pipe closes, end everything."""
    from tvm import rpc

    # what TVM's processes write must not fill the pipe that nobody reads after the first line
    starter = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    for _ in range(20):
        chosen_port = port or free_port()
        try:
            server = rpc.Server(
                LOOPBACK,
                chosen_port,
                chosen_port + 1,
                load_library=load_library,
                silent=True,
                no_fork=False,
            )
            break
        except Exception:  # somebody took the port between asking and binding
            if port:
                raise
    else:
        raise RuntimeError("no free port")
    starter.write(f"{server.port}\n")
    starter.flush()
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


# ------------------------------------------------------------------------------ one connection


class Link:
    """The connection of this process to one endpoint, with its retries."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.generation = 0
        self.threads = 0
        self.users = 0
        self._remote: Any = None
        self._server: LocalServer | None = None

    def attempt(self, step: Callable[[Any], T], *, stage: str, doing: str) -> T:
        """Call `step(remote)` until it succeeds or the tries are used up.

        Only a lost link is tried again: when the link still answers after a failure, the
        failure is the step's own and goes to the caller as it is.
        """
        lost: BaseException | None = None
        for number in range(self.endpoint.retries + 1):
            if number:
                time.sleep(self.endpoint.backoff_s * 2 ** (number - 1))
            try:
                remote = self._connected()
            except DeviceError:
                raise
            except Exception as error:
                lost = error
                continue
            try:
                return within(self.endpoint.session_timeout_s, partial(step, remote))
            except Exception as error:
                if not isinstance(error, LinkLostError) and self._answers():
                    raise
                lost = error
                self.drop()
        last = (str(lost).strip().splitlines() or ["no reason given"])[-1]
        raise DeviceError(
            f"lost the RPC link to {self.endpoint} while {doing}, {self.endpoint.retries + 1} "
            f"tries failed, the last with: {last[:300]}. Is the server running and reachable, and "
            f"is it free (it serves one connection at a time)?",
            stage=stage,
        ) from lost

    def drop(self) -> None:
        """Forget the connection; the next attempt makes a new one, and a new server if ours."""
        remote, self._remote = self._remote, None
        self.threads = 0
        if remote is not None:
            with contextlib.suppress(Exception):
                within(_PING_LIMIT_S, remote._sess.get_function("CloseRPCConnection"))
        if self._server is not None:
            # a session that crashed ends the listening thread of TVM's server: take a fresh one
            self._server.stop()
            self._server = None

    def release(self) -> None:
        """Count one user fewer.

        Without users the connection is closed, so that others can use the device; our server stays.
        """
        self.users -= 1
        if self.users > 0:
            return
        remote, self._remote = self._remote, None
        self.threads = 0
        if remote is not None:
            with contextlib.suppress(Exception):
                within(_PING_LIMIT_S, remote._sess.get_function("CloseRPCConnection"))

    def _connected(self) -> Any:
        if self._remote is None:
            endpoint = self.endpoint
            if not endpoint.tracker and not endpoint.address:
                self._start_server()
            self._remote = within(endpoint.connect_timeout_s, self._connect)
            self.generation += 1
        return self._remote

    def _start_server(self) -> None:
        if self._server is not None and not self._server.alive():
            self._server.stop()
            self._server = None
        if self._server is None:
            self._server = LocalServer(load_library=self.endpoint.load_library)

    def _connect(self) -> Any:
        from tvm import rpc

        endpoint = self.endpoint
        # whole seconds: the server reads the figure from the connection's key
        limit = max(1, round(endpoint.session_timeout_s))
        if endpoint.tracker:
            where = host_and_port(endpoint.tracker)
            # asked first, because TVM's client waits a minute for a tracker and leaks sockets
            socket.create_connection(where, timeout=endpoint.connect_timeout_s).close()
            with contextlib.closing(rpc.connect_tracker(*where)) as tracker:
                return tracker.request(endpoint.key, session_timeout=limit, max_retry=1)
        if endpoint.address:
            return rpc.connect(
                *host_and_port(endpoint.address), endpoint.key, session_timeout=limit
            )
        assert self._server is not None
        return rpc.connect(LOOPBACK, self._server.port, session_timeout=limit)

    def _answers(self) -> bool:
        remote = self._remote
        if remote is None:
            return False
        try:
            within(_PING_LIMIT_S, lambda: remote.get_function("tvm.rpc.server.upload"))
        except Exception:
            return False
        return True


_LINKS: dict[Endpoint, Link] = {}


def link_to(endpoint: Endpoint) -> Link:
    """Return this process's link to an endpoint, counted as used once more."""
    link = _LINKS.setdefault(endpoint, Link(endpoint))
    link.users += 1
    return link


def shut_down() -> None:
    """Close all links of this process and end its servers; also done at exit."""
    for link in _LINKS.values():
        link.drop()
    _LINKS.clear()


atexit.register(shut_down)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2] or None)

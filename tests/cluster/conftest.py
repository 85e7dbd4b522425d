"""Clusters of Ray nodes on this machine, each a set of processes of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import runs

HERE = Path(__file__).parent


class Nodes:
    """The nodes that the program ray_nodes.py has started."""

    def __init__(self) -> None:
        # tokens must be known to all: none is written to the home folder
        self.environment = {"RAY_AUTH_MODE": "disabled"}
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "ray_nodes.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**runs.environment(HERE), **self.environment},
        )
        self.address = ""

    def add(self, cpus: int = 1, **resources: float) -> int:
        found = self._ask(do="add", cpus=cpus, resources=resources)
        self.address = found["address"]
        return int(found["node"])

    def kill(self, node: int) -> None:
        self._ask(do="kill", node=node)

    def pids(self, node: int) -> list[int]:
        return list(self._ask(do="pids", node=node)["pids"])

    def actors(self, node: int) -> list[int]:
        """Return the processes of our workers on a node."""
        found = []
        for pid in self.pids(node):
            if re.match(r"ray::\w*Worker\b", " ".join(_command(pid))):
                found.append(pid)
        return found

    def pause(self, node: int) -> Callable[[], None]:
        """Stop all processes of a node; the function that is returned lets them go on."""
        pids = self.pids(node)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)

        def go_on() -> None:
            for pid in pids:
                if psutil.pid_exists(pid):
                    os.kill(pid, signal.SIGCONT)

        return go_on

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _ask(self, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(command), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the cluster's program has ended"
        return json.loads(line)


def _command(pid: int) -> list[str]:
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Three nodes with one CPU each, shared by the tests that leave them whole."""
    made = Nodes()
    try:
        for _ in range(3):
            made.add()
        yield made
    finally:
        made.close()


@pytest.fixture
def own_nodes() -> Iterator[Nodes]:
    """A cluster for a test that kills it; it starts empty."""
    made = Nodes()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # the driver is on 127.0.0.1 too


def wait_until(what: Callable[[], Any], *, seconds: float = 60.0) -> Any:
    """Wait for the first true answer and return it; fail after some time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} is not so after {seconds:g} s")

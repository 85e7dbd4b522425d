"""TVM's servers and the links to them: killed, silent, expired, found by a tracker."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tvm_models import exact, float_model, pictures, static_model
from tvm_rooms import opened, tvm_test

from seqto.devices.tvm import rpc
from seqto.devices.tvm.device import Tvm, preset
from seqto.devices.tvm.rpc import LOOPBACK, LocalServer, free_port
from seqto.errors import DeviceError

pytestmark = pytest.mark.usefixtures("no_server_outlives_the_tests")


class Trapped(np.ndarray[Any, Any]):
    """An array that does something when a certain row is read: a cable pulled in mid-run."""

    row: int
    spring: Callable[[], None] | None

    def __array_finalize__(self, other: Any) -> None:
        self.spring = None

    def __getitem__(self, where: Any) -> Any:
        if self.spring and isinstance(where, slice) and where.start == self.row:
            spring, self.spring = self.spring, None
            spring()
        return super().__getitem__(where)


def trapped(values: Any, row: int, spring: Callable[[], None]) -> Any:
    array = values.view(Trapped)
    array.row, array.spring = row, spring
    return array


def kill_tree(pid: int) -> None:
    root = psutil.Process(pid)
    for process in [*root.children(recursive=True), root]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


@tvm_test
def test_a_server_killed_in_mid_run_and_restarted_loses_nothing(
    llvm: Tvm, server: LocalServer
) -> None:
    feeds = pictures(8)
    others: list[LocalServer] = []

    def kill_and_restart() -> None:
        server.stop()
        others.append(LocalServer(port=server.port))

    there = dataclasses.replace(llvm, address=server.address)
    try:
        with opened(there, static_model()) as session:
            x = trapped(feeds["x"], 4, kill_and_restart)
            (answer,) = session.run({"x": x})
            assert others  # it was killed
            assert session._link.generation == 2
    finally:
        for other in others:
            other.stop()
    np.testing.assert_allclose(answer, exact(static_model(), feeds)[0], atol=1e-4)


@tvm_test
def test_our_own_server_is_replaced_when_it_dies(device: Tvm) -> None:
    feeds = pictures(4)
    with opened(device, static_model()) as session:
        dead = session._link._server.pid
        x = trapped(feeds["x"], 2, lambda: kill_tree(dead))
        (answer,) = session.run({"x": x})
        assert session._link._server.pid != dead
    np.testing.assert_allclose(answer, exact(static_model(), feeds)[0], atol=1e-4)


@tvm_test
def test_a_server_that_never_comes_is_an_error_in_time(llvm: Tvm) -> None:
    nobody = dataclasses.replace(llvm, address=f"{LOOPBACK}:{free_port()}", retries=2)
    with opened(llvm, float_model()):  # compiled, so that only the waiting is timed
        pass
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    started = time.monotonic()
    with pytest.raises(DeviceError, match="3 tries") as caught:
        nobody.open(float_model())
    assert time.monotonic() - started < 10
    assert caught.value.stage == "load"
    assert {p.pid for p in psutil.Process().children(recursive=True)} <= before


@tvm_test
def test_a_server_that_stops_answering_is_an_error_in_time(
    llvm: Tvm, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "_PING_LIMIT_S", 1.0)
    there = dataclasses.replace(
        llvm, address=server.address, retries=1, session_timeout_s=4, connect_timeout_s=2
    )
    root = psutil.Process(server.pid)
    with opened(there, float_model()) as session:
        for process in [*root.children(recursive=True), root]:
            process.suspend()
        started = time.monotonic()
        with pytest.raises(DeviceError, match="lost the RPC link") as caught:
            session.run(pictures(2))
        assert time.monotonic() - started < 15
    assert caught.value.stage == "run"


@tvm_test
def test_a_session_that_expires_is_opened_again(llvm: Tvm, server: LocalServer) -> None:
    there = dataclasses.replace(llvm, address=server.address, session_timeout_s=2)
    with opened(there, float_model()) as session:
        session.run(pictures(1))
        time.sleep(3)
        assert session.run(pictures(1))[0].shape == (1, 4, 8, 8)


@tvm_test
def test_servers_listen_on_the_loopback_only(llvm: Tvm) -> None:
    with opened(llvm, float_model()) as session:
        root = psutil.Process(session._link._server.pid)
        tree = {p.pid for p in [root, *root.children(recursive=True)]}
        mine = [c for c in psutil.net_connections("inet") if c.pid in tree]
        listening = [c.laddr.ip for c in mine if c.status == psutil.CONN_LISTEN]
        assert listening
        assert {c.laddr.ip for c in mine} == {LOOPBACK}


@tvm_test
def test_a_killed_process_leaves_no_server_behind(compiled_models: str) -> None:
    code = f"""
        import os, signal
        from seqto.devices.tvm.device import Tvm
        session = Tvm(cache={compiled_models!r}).open({float_model()!r})
        print(session._link._server.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    root = str(Path(rpc.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    group = int(done.stdout)
    for _ in range(100):
        if not [p for p in psutil.process_iter() if _group_of(p.pid) == group]:
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"processes of group {group} are still there")


def _group_of(pid: int) -> int | None:
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:  # ended; init has to collect it
            return None
        return os.getpgid(pid)
    except (psutil.Error, ProcessLookupError):
        return None


def wait_for_port(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=1):
            return
        time.sleep(0.1)
    pytest.fail(f"nobody listens on port {port}")


@tvm_test
def test_a_device_is_found_by_tracker_and_key(llvm: Tvm) -> None:
    port = free_port()
    place = ["--host", LOOPBACK, "--port", str(port)]
    at_tracker = ["--tracker", f"{LOOPBACK}:{port}", "--key", "phone", "--no-fork"]
    mine = free_port()
    as_server = ["--host", LOOPBACK, "--port", str(mine), "--port-end", str(mine + 1), *at_tracker]
    commands = [
        [sys.executable, "-m", "tvm.exec.rpc_tracker", *place, "--port-end", str(port + 1)],
        [sys.executable, "-m", "tvm.exec.rpc_server", *as_server, "--custom-addr", LOOPBACK],
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(command, **quiet) for command in commands]  # type: ignore[call-overload]
    try:
        wait_for_port(port)
        found = dataclasses.replace(llvm, tracker=f"{LOOPBACK}:{port}", key="phone")
        with opened(found, float_model()) as session:
            assert session.run(pictures(1))[0].shape == (1, 4, 8, 8)
    finally:
        for process in running:
            kill_tree(process.pid)
            process.wait()


@tvm_test
def test_for_a_phone_the_library_is_arm_code_linked_by_the_given_linker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # stands in for the NDK's clang++: keeps the first object, which shows what was compiled
    linker = tmp_path / "clang++"
    linker.write_text(
        f"#!{sys.executable}\n"
        "import shutil, sys\n"
        "objects = [a for a in sys.argv if a.endswith('.o')]\n"
        "if '-o' in sys.argv:\n"
        "    shutil.copy(objects[0], sys.argv[sys.argv.index('-o') + 1])\n"
    )
    linker.chmod(0o755)
    phone = dataclasses.replace(
        preset("opencl-mali-android"),
        cross_compiler=str(linker),
        address=f"{LOOPBACK}:{free_port()}",
        cache=str(tmp_path / "cache"),
        retries=0,
    )
    with pytest.raises(DeviceError, match="lost the RPC link"):
        phone.open(float_model())
    (library,) = (tmp_path / "cache").iterdir()
    header = library.read_bytes()[:20]
    assert header[:4] == b"\x7fELF"
    assert int.from_bytes(header[18:20], "little") == 183  # EM_AARCH64
    usable, reason = phone.usable()
    assert not usable
    assert "nobody answers" in reason

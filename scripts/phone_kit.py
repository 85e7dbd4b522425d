#!/usr/bin/env python3
"""Check step by step what tuning on a phone needs, and say what is missing.

    python scripts/phone_kit.py --tracker 127.0.0.1:9190 --key pixel

adb, a phone, the NDK, TVM, the tracker, a server of that key, and the answers of a first model on
the phone against ONNX Runtime here. The first step that fails ends it: the later ones need it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

TOLERANCE = 1e-3  # of the outputs' spread


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is needed: `check` returns what was found, or raises Missing."""

    name: str
    check: Callable[[], str]


class Missing(Exception):  # noqa: N818  (a message for the user, not a bug)
    """Something is missing; the message says what to do."""


def connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Desk:
    """The outside world, so that tests can put another in its place."""

    which: Callable[[str], str | None] = shutil.which
    run: Callable[[Sequence[str]], str] = lambda command: (
        subprocess.run(list(command), capture_output=True, text=True, check=True, timeout=30).stdout
    )
    environment: Callable[[str], str | None] = os.environ.get
    has_module: Callable[[str], bool] = lambda name: find_spec(name) is not None
    connects: Callable[[str, int], bool] = connects


def adb(desk: Desk) -> str:
    path = desk.which("adb")
    if path is None:
        raise Missing("adb is not on the PATH: install Android's platform-tools")
    return path


def phone(desk: Desk) -> str:
    lines = desk.run(["adb", "devices"]).splitlines()[1:]
    rows = [line.split() for line in lines if line.strip()]
    ready = [row[0] for row in rows if row[1:] == ["device"]]
    if ready:
        return ", ".join(ready)
    if any("unauthorized" in row for row in rows):
        raise Missing("a phone is attached but not authorized: accept the question on its screen")
    raise Missing("adb sees no phone: attach one, and switch on USB debugging")


def ndk(desk: Desk) -> str:
    compiler = desk.environment("TVM_NDK_CC")
    if not compiler:
        raise Missing(
            "TVM_NDK_CC is not set: let it name the NDK's compiler, such as "
            ".../toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android28-clang++"
        )
    if not Path(compiler).is_file():
        raise Missing(f"TVM_NDK_CC names {compiler!r}, which is no file")
    return compiler


def tvm(desk: Desk) -> str:
    if not desk.has_module("tvm"):
        raise Missing("TVM is not installed: pip install 'seqto[tvm]'")
    return "installed"


def tracker(desk: Desk, address: str) -> str:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise Missing(f"--tracker {address!r} is not host:port")
    if not desk.connects(host, int(port)):
        raise Missing(
            f"nobody listens at {address}: start it with "
            f"python -m tvm.exec.rpc_tracker --host {host} --port {port}"
        )
    return address


def server(free_servers: Callable[[], int], key: str) -> str:
    try:
        free = free_servers()
    except Exception as error:
        raise Missing(f"the tracker does not answer: {error}") from error
    if not free:
        raise Missing(
            f"no free server with key {key!r}: start the RPC app on the phone (or "
            f"tvm_rpc server --tracker=… --key={key}), and end other programs that use it"
        )
    return f"{free} free"


def first_model(answers_differ: Callable[[], float]) -> str:
    try:
        moved = answers_differ()
    except Exception as error:
        raise Missing(f"a first model does not run there: {error}") from error
    if moved > TOLERANCE:
        raise Missing(f"its answers differ by {moved:.2g} of their spread from ONNX Runtime's")
    return f"answers differ by {moved:.1g} of their spread"


def check(steps: Sequence[Step], say: Callable[[str], None] = print) -> bool:
    """Run the steps in their order until one fails."""
    for number, step in enumerate(steps, 1):
        try:
            say(f"{number}. {step.name}: {step.check()}")
        except Missing as missing:
            say(f"{number}. {step.name}: MISSING. {missing}")
            return False
        except (OSError, subprocess.SubprocessError) as error:
            say(f"{number}. {step.name}: MISSING. {error}")
            return False
    say("ready: seqto tune model.onnx --device tvm")
    return True


def steps_of(desk: Desk, options: argparse.Namespace) -> list[Step]:
    return [
        Step("adb", lambda: adb(desk)),
        Step("phone", lambda: phone(desk)),
        Step("NDK", lambda: ndk(desk)),
        Step("TVM", lambda: tvm(desk)),
        Step("tracker", lambda: tracker(desk, options.tracker)),
        Step(
            f"server {options.key!r}",
            lambda: server(lambda: _free(options.tracker, options.key), options.key),
        ),
        Step("first model", lambda: first_model(lambda: _difference(options))),
    ]


def _free(address: str, key: str) -> int:
    from tvm import rpc

    host, _, port = address.rpartition(":")
    queue = rpc.connect_tracker(host, int(port)).summary()["queue_info"].get(key, {})
    return int(queue.get("free", 0))


def _difference(options: argparse.Namespace) -> float:
    import numpy as np

    from seqto.plugins import device_from_json
    from seqto.testing.fakes import small_feeds, small_model

    there = {
        "kind": "tvm",
        "target": {"kind": "llvm", "mtriple": options.triple},
        "tracker": options.tracker,
        "key": options.key,
        "cross_compiler": os.environ["TVM_NDK_CC"],
    }
    found = []
    for settings in (there, {"kind": "ort"}):
        with device_from_json(settings).open(small_model()) as session:
            found.append(np.asarray(session.run(small_feeds(2))[0], dtype=np.float64))
    return float(np.abs(found[0] - found[1]).max() / max(found[1].std(), 1e-9))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracker", default="127.0.0.1:9190", metavar="HOST:PORT")
    parser.add_argument("--key", default="android", help="of the phone's RPC server")
    parser.add_argument("--triple", default="aarch64-linux-android", help="of the phone's CPU")
    options = parser.parse_args()
    return 0 if check(steps_of(Desk(), options)) else 1


if __name__ == "__main__":
    raise SystemExit(main())

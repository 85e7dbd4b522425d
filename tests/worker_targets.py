"""Tiny jobs for the tests of the local pool; each function is a target."""

from __future__ import annotations

import builtins
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import seqto.errors
from seqto.execution.local.worker_process import Channel, Handler

Json = dict[str, Any]


def echo(setup: Json) -> Handler:
    """Send `setup` and the job back. With `until`, end when that file exists."""

    def handle(job: Json, _channel: Channel) -> Json:
        while "until" in job and not Path(job["until"]).exists():
            time.sleep(0.01)
        return {"job": job, "setup": setup, "pid": os.getpid(), "numpy": "numpy" in sys.modules}

    return handle


def count(setup: Json) -> Handler:
    """Send numbers up to `n`, until asked to stop."""

    def handle(job: Json, channel: Channel) -> Json:
        sent = 0
        while sent < job["n"] and not channel.stopped:
            channel.send({"number": sent})
            sent += 1
        return {"sent": sent}

    return handle


def flood(setup: Json) -> Handler:
    """Send the job's long text back, some times as a message and then as the result."""

    def handle(job: Json, channel: Channel) -> Json:
        for _ in range(job["times"]):
            channel.send({"text": job["text"]})
        return {"text": job["text"]}

    return handle


def misbehave(setup: Json) -> Handler:
    """Do the one bad thing that the job names."""
    held: list[bytearray] = []

    def handle(job: Json, channel: Channel) -> Json:
        what = job["what"]
        if what == "segfault":
            print("[native] about to fall", file=sys.stderr)
            ctypes.string_at(0)
        elif what == "signal":
            channel.send(job.get("tells", {}))
            channel.send({})
            os.kill(os.getpid(), getattr(signal, job["name"]))
        elif what == "exit":
            os._exit(job["code"])
        elif what == "hang":
            time.sleep(600)
        elif what == "hold the GIL":
            ctypes.PyDLL(None).sleep(600)
        elif what == "eat":
            held.append(bytearray(b"x" * job["bytes"]))
            time.sleep(600)
        elif what == "raise":
            kind = getattr(seqto.errors, job["type"], None) or getattr(builtins, job["type"])
            raise kind(job["message"], **job.get("fields", {}))
        elif what == "noise":
            for number in range(job["lines"]):
                print("noise", number)
                os.write(2, b"\xff\x00native noise\n")
        elif what == "unsendable":
            return {"value": object()}
        elif what == "child":
            return {"pid": _sleeper().pid}
        elif what == "child, then die":
            channel.send({"pid": _sleeper(keeps_files=True).pid})
            os.kill(os.getpid(), signal.SIGABRT)
        return {"what": what}

    return handle


def fails_to_set_up(setup: Json) -> Handler:
    with Path(setup["tally"]).open("a") as tally:
        tally.write("x")
    if "type" in setup:
        raise getattr(seqto.errors, setup["type"])(setup["message"])
    if "signal" in setup:
        os.kill(os.getpid(), setup["signal"])
    raise KeyError(setup["message"])


def hangs_in_setup(setup: Json) -> Handler:
    print("looking for a licence server")
    time.sleep(600)
    raise AssertionError


def _sleeper(*, keeps_files: bool = False) -> subprocess.Popen[bytes]:
    sockets = [int(p.name) for p in Path("/proc/self/fd").iterdir() if p.is_socket()]
    return subprocess.Popen(["sleep", "600"], pass_fds=sockets if keeps_files else ())


def environment(_setup: Json) -> Handler:
    """Send a variable of the worker's environment back."""

    def handle(job: Json, _channel: Channel) -> Json:
        return {"value": os.environ.get(job["name"])}

    return handle


def litter(setup: Json) -> Handler:
    """Be killed with a temporary folder, or tell where one would be made."""

    def handle(job: Json, _channel: Channel) -> Json:
        if job["killed"]:
            Path(tempfile.mkdtemp(prefix="seqto-profile-"), "events.json").write_text("[]")
            os.kill(os.getpid(), signal.SIGKILL)
        return {"folder": tempfile.gettempdir()}

    return handle

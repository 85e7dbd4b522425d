"""The other tools of peers.py: their packages, how each is run, and what it says.

Environments are made on the first call, from pinned packages, and used again afterwards. Telemetry
of the tools is off.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zoo
from measure import run_metered
from peer_programs.peer_settings import STOCK_MODES

Json = dict[str, Any]
PACKAGES: Mapping[str, Sequence[str]] = {
    "nncf": ("nncf==3.4.0", "openvino==2026.4.1", "onnx==1.23.2", "onnxruntime==1.31.1"),
    # plain torch would bring gigabytes of CUDA along
    "aimet": ("aimet-onnx==2.42.0", "torch==2.13.0"),
    # the last version with ONNX models; it needs an older onnx and numpy
    "inc": (
        "neural-compressor==2.6",
        "onnx==1.16.2",
        "onnxruntime==1.19.2",
        "numpy<2",
        "setuptools<80",
        "six==1.17.0",
    ),
    # olive imports requests and does not ask for it
    "olive": ("olive-ai==0.13.0", "torch==2.13.0", "onnxruntime==1.23.2", "requests==2.32.5"),
    "quark": ("amd-quark==0.13", "torch==2.13.0", "onnxruntime==1.31.1"),
    "stock": ("onnxruntime==1.31.1", "onnx==1.23.2", "sympy==1.14.0"),
}
QUIET = {
    "NNCF_CI": "1",
    "OLIVE_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "NO_ALBUMENTATIONS_UPDATE": "1",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One way to use one peer; `needs_classes`: its search compares top-1 answers."""

    peer: str
    mode: str
    title: str
    needs_classes: bool = False


TOOLS: Mapping[str, Tool] = {
    "nncf": Tool("nncf", "quantize", "NNCF, quantize"),
    "nncf control": Tool("nncf", "control", "NNCF, accuracy control", needs_classes=True),
    "aimet": Tool("aimet", "amp", "AIMET, mixed precision", needs_classes=True),
    "inc": Tool("inc", "static", "neural-compressor, static", needs_classes=True),
    "inc tune": Tool("inc", "tune", "neural-compressor, tuned", needs_classes=True),
    "olive": Tool("olive", "tensor", "Olive, static per tensor"),
    "olive channel": Tool("olive", "channel", "Olive, static per channel"),
    "quark": Tool("quark", "INT8_CNN_DEFAULT", "Quark, INT8_CNN_DEFAULT"),
    "quark xint8": Tool("quark", "XINT8", "Quark, XINT8"),
    "quark adaround": Tool("quark", "U8S8_AAWS_ADAROUND", "Quark, U8S8 with AdaRound"),
    **{f"stock {mode}": Tool("stock", mode, f"ONNX Runtime, {mode}") for mode in STOCK_MODES},
}


def run_tool(
    name: str,
    spec: Json,
    *,
    environments: Path,
    limit_s: float,
    limit_cpu_s: float | None = None,
) -> Json:
    """Return what a tool says of its run, or why there is nothing to say."""
    tool = TOOLS[name]
    python, reason = environment(tool.peer, environments)
    if python is None:
        return {"error": reason}
    answer, result = Path(spec["answer"]), Path(spec["result"])
    for old in (answer, result):
        old.unlink(missing_ok=True)
    spec_file, log = answer.with_suffix(".spec.json"), answer.with_suffix(".log")
    spec_file.write_text(json.dumps(spec), encoding="utf-8")
    # a folder of its own: names in this one would hide the packages of a peer
    script = str(zoo.HERE / "peer_programs" / f"peer_{tool.peer}.py")
    command = ["env", *(f"{key}={value}" for key, value in QUIET.items()), python, script]
    limits = {"limit_s": limit_s, "limit_cpu_s": limit_cpu_s}
    metered = run_metered([*command, str(spec_file)], **limits, log=log)
    if metered["timed_out"]:
        result.unlink(missing_ok=True)
        spent = f"{limit_s / 60:g} minutes"
        if limit_cpu_s is not None and metered["wall_s"] < limit_s:
            spent = f"{limit_cpu_s / 60:g} CPU minutes"
        return {"error": f"not done after {spent}", "metered": metered}
    if metered["returncode"] != 0 or not answer.is_file():
        result.unlink(missing_ok=True)
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = words[-1] if words else "without a word"
        why = f"ended with code {metered['returncode']}: {last[:200]}"
        return {"error": why, "metered": metered}
    told: Json = json.loads(answer.read_text(encoding="utf-8"))
    return {**told, "metered": metered}


def environment(peer: str, folder: Path) -> tuple[str | None, str]:
    """Return the peer's Python, made where it is missing; None and the reason where that fails."""
    place = folder / peer
    python = str(place / "bin" / "python")
    done = place / "installed.txt"
    wanted = "\n".join(PACKAGES[peer])
    if done.is_file() and done.read_text(encoding="utf-8") == wanted:
        return python, ""
    zoo.note(f"making the environment of {peer}: {' '.join(PACKAGES[peer])}")
    python = new_environment(place)
    words = [python, "-m", "pip", "install", "--quiet", *PACKAGES[peer]]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        lines = [x for x in made.stderr.splitlines() if x.startswith("ERROR")]
        return None, f"cannot be installed: {lines[0] if lines else 'no reason given'}"
    done.write_text(wanted, encoding="utf-8")
    return python, ""


def new_environment(place: Path) -> str:
    """Return the Python of a new environment."""
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    return str(place / "bin" / "python")

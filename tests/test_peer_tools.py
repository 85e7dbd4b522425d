"""A peer that cannot be installed, fails or does not end is a row with its reason."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import peer_tools  # noqa: E402
import zoo  # noqa: E402


@pytest.fixture
def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a program of our own as the peer `nncf`, in this Python."""
    monkeypatch.setattr(zoo, "HERE", tmp_path)
    monkeypatch.setattr(peer_tools, "environment", lambda *_: (sys.executable, ""))
    spec = {"answer": str(tmp_path / "a.json"), "result": str(tmp_path / "a.onnx")}

    def run(program: str, limit_s: float = 60.0, **more: float) -> dict[str, Any]:
        (tmp_path / "peer_programs").mkdir(exist_ok=True)
        (tmp_path / "peer_programs" / "peer_nncf.py").write_text(program, encoding="utf-8")
        found = peer_tools.run_tool("nncf", spec, environments=tmp_path, limit_s=limit_s, **more)
        return dict(found)

    return run


def test_what_a_peer_tells_is_its_row(peer: Any) -> None:
    program = (
        "import json, sys, pathlib\n"
        "spec = json.loads(pathlib.Path(sys.argv[1]).read_text())\n"
        "pathlib.Path(spec['answer']).write_text(json.dumps({'seconds': 2.5}))\n"
    )
    told = peer(program)
    assert told["seconds"] == 2.5
    assert told["metered"]["returncode"] == 0


def test_a_peer_that_fails_has_its_last_words(peer: Any) -> None:
    told = peer("raise SystemExit('no kernel for this op')")
    assert told["error"] == "ended with code 1: no kernel for this op"


def test_a_peer_that_does_not_end_is_stopped(peer: Any) -> None:
    told = peer("import time\ntime.sleep(600)", limit_s=0.3)
    assert told["error"] == "not done after 0.005 minutes"
    assert told["metered"]["timed_out"]


def test_a_peer_that_takes_too_much_cpu_is_stopped(peer: Any) -> None:
    told = peer("while True:\n    pass", limit_cpu_s=0.3)
    assert told["error"] == "not done after 0.005 CPU minutes"
    assert told["metered"]["timed_out"]
    assert told["metered"]["cpu_s"] >= 0.3


def test_a_peer_that_waits_takes_no_cpu(peer: Any) -> None:
    program = "import time\ntime.sleep(1.0)\nraise SystemExit('seen')"
    assert peer(program, limit_cpu_s=0.9)["error"] == "ended with code 1: seen"


def test_telemetry_of_the_peers_is_off(peer: Any) -> None:
    program = (
        "import os, sys\n"
        "assert os.environ['OLIVE_DISABLE_TELEMETRY'] == '1' and os.environ['NNCF_CI'] == '1'\n"
        "sys.exit('seen')\n"
    )
    assert peer(program)["error"] == "ended with code 1: seen"


def test_what_cannot_be_installed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (str(tmp_path / "there-is-no-such-file.whl"),)
    monkeypatch.setattr(peer_tools, "PACKAGES", {"nncf": wanted})
    monkeypatch.setattr(peer_tools, "new_environment", lambda place: sys.executable)
    python, reason = peer_tools.environment("nncf", tmp_path)
    assert python is None
    assert reason.startswith("cannot be installed: ")


def test_every_tool_has_a_program_and_pinned_packages() -> None:
    for tool in peer_tools.TOOLS.values():
        assert (ROOT / "benchmarks" / "peer_programs" / f"peer_{tool.peer}.py").is_file()
        assert all(any(c in p for c in "=<") for p in peer_tools.PACKAGES[tool.peer])

"""The GitHub action: its description, and its shell logic without GitHub."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import runs

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
SCRIPT = ROOT / "scripts" / "action"
# instead of the command: it writes down its words, and answers as it is told to
FAKE = """\
#!{python}
import os, pathlib, sys
words = sys.argv[1:]
with open(os.environ["SAID"], "a") as said:
    print(repr(words), file=said)
if words[0] == "tune":
    out = pathlib.Path(words[words.index("--out") + 1])
    if os.environ.get("TUNE", "0") in ("0", "3"):
        out.mkdir(parents=True, exist_ok=True)
        (out / "journal.jsonl").write_text("{{}}")
print(f"output of {{words[0]}}")
raise SystemExit(int(os.environ.get(words[0].upper(), "0")))
"""


def run(folder: Path, **given: str) -> tuple[int, str, dict[str, str], list[list[str]]]:
    """Run the script with a fake command: exit code, summary, outputs, calls."""
    (folder / "bin").mkdir(exist_ok=True)
    fake = folder / "bin" / "seqto"
    fake.write_text(FAKE.format(python=sys.executable))
    fake.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "SAID": str(folder / "said"),
        "SEQTO_MODEL": "model.onnx",
        "SEQTO_DATA": "pictures/",
        **given,
    }
    done = subprocess.run(
        ["bash", str(SCRIPT)], cwd=folder, env=environment, check=False, capture_output=True
    )
    summary = folder / "summary.md"
    said = folder / "said"
    calls = [eval(x) for x in said.read_text().splitlines()] if said.exists() else []
    outputs = dict(x.split("=", 1) for x in (folder / "output").read_text().splitlines())
    return done.returncode, summary.read_text() if summary.exists() else "", outputs, calls


def test_a_tuning_writes_the_summary_and_names_its_folder(tmp_path: Path) -> None:
    code, summary, outputs, calls = run(tmp_path, SEQTO_ARGS="--max-loss\n 2% \n\n--preset\nraw")
    assert code == 0
    assert summary == "output of report\n"
    assert outputs == {"run": "seqto-run", "code": "0"}
    assert calls[0] == [
        *("tune", "model.onnx", "--data", "pictures/", "--out", "seqto-run"),
        *("--max-loss", "2%", "--preset", "raw"),
    ]
    assert [call[0] for call in calls] == ["tune", "report"]


def test_no_input_is_read_as_shell(tmp_path: Path) -> None:
    evil = "$(touch pwned) `touch pwned`; touch pwned & \"'"
    _, _, _, calls = run(tmp_path, SEQTO_MODEL=evil, SEQTO_ARGS=evil, SEQTO_OUT="a b")
    assert calls[0] == ["tune", evil, "--data", "pictures/", "--out", "a b", evil.strip()]
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("tuned", "compared", "code", "called"),
    [
        ("0", "0", 0, True),
        ("0", "3", 3, True),
        ("3", "0", 3, True),
        ("3", "3", 3, True),
        ("2", "0", 2, False),
    ],
)
def test_both_gates_give_the_exit_code(
    tmp_path: Path, tuned: str, compared: str, code: int, called: bool
) -> None:
    found, summary, outputs, calls = run(
        tmp_path, SEQTO_BASELINE="old", SEQTO_MARGIN="0.2", TUNE=tuned, COMPARE=compared
    )
    assert found == code
    assert outputs["code"] == str(code)
    assert ("output of compare" in summary) == called
    compare = [call for call in calls if call[0] == "compare"]
    assert compare == ([["compare", "old", "seqto-run", "--fail-if-worse", "0.2"]] * called)


def test_a_check_says_its_figures_and_keeps_its_gate(tmp_path: Path) -> None:
    code, summary, _, calls = run(
        tmp_path, SEQTO_COMMAND="check", SEQTO_AGAINST="float.onnx", CHECK="3"
    )
    assert code == 3
    assert "output of check" in summary
    words = ["check", "model.onnx", "--against", "float.onnx", "--data", "pictures/"]
    assert calls == [words]


@pytest.mark.parametrize("given", [{"SEQTO_COMMAND": "check"}, {"SEQTO_COMMAND": "rm"}])
def test_wrong_inputs_end_the_step(tmp_path: Path, given: dict[str, str]) -> None:
    code, _, outputs, calls = run(tmp_path, **given)
    assert code == 2
    assert outputs["code"] == "2"
    assert calls == []


def test_the_script_works_with_the_real_command(tmp_path: Path) -> None:
    runs.write_config(tmp_path, batch=1)
    environment = {
        **runs.environment(),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "SEQTO_COMMAND": "check",
        "SEQTO_MODEL": "net.onnx",
        "SEQTO_AGAINST": "net.onnx",
        "SEQTO_DATA": "samples.npz",
        "SEQTO_ARGS": "--within\n1%\n--set\ndevice.latency_s=0.01",
    }
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "seqto"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m seqto "$@"\n')
    program.chmod(0o755)
    environment["PATH"] = f"{tmp_path / 'bin'}{os.pathsep}{environment['PATH']}"
    done = subprocess.run(
        ["bash", str(SCRIPT)], cwd=tmp_path, env=environment, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert "of answers change" in (tmp_path / "summary.md").read_text()


# --------------------------------------------------------------------------------- the description


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ACTION["runs"]["steps"]
    return found


def test_every_input_that_is_used_is_declared_and_reaches_the_script() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    used = set(re.findall(r"inputs\.([\w-]+)", text))
    assert used == set(ACTION["inputs"])
    script = SCRIPT.read_text(encoding="utf-8")
    (own,) = [s for s in steps() if s.get("id") == "seqto"]
    for name in own["env"]:
        assert name in script
    assert set(re.findall(r"SEQTO_\w+", script)) <= set(own["env"])


def test_no_input_is_written_into_a_shell_line() -> None:
    for step in steps():
        assert "${{" not in step.get("run", "")
        assert ("run" in step) == ("shell" in step)

"""The phone kit names the first thing that is missing; adb, NDK and tracker are stand-ins."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@pytest.fixture(scope="module")
def kit() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "phone_kit.py"
    spec = importlib.util.spec_from_file_location("phone_kit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["phone_kit"] = module
    spec.loader.exec_module(module)
    return module


PHONE = "List of devices attached\nR58M123\tdevice\n"


def desk(kit: ModuleType, compiler: Path, **other: Any) -> Any:
    good = {
        "which": lambda name: f"/bin/{name}",
        "run": lambda _command: PHONE,
        "environment": lambda _name: str(compiler),
        "has_module": lambda _name: True,
        "connects": lambda _host, _port: True,
    }
    return kit.Desk(**{**good, **other})


def checked(kit: ModuleType, made: Any, *, free: int = 1, moved: float = 1e-6) -> list[str]:
    options = SimpleNamespace(tracker="127.0.0.1:9190", key="pixel", triple="")
    steps = kit.steps_of(made, options)[:5]
    steps.append(kit.Step("server", lambda: kit.server(lambda: free, "pixel")))
    steps.append(kit.Step("first model", lambda: kit.first_model(lambda: moved)))
    said: list[str] = []
    kit.check(steps, said.append)
    return said


def test_a_desk_with_everything_is_ready(kit: ModuleType, tmp_path: Path) -> None:
    compiler = tmp_path / "clang++"
    compiler.touch()
    said = checked(kit, desk(kit, compiler))
    assert len(said) == 8
    assert said[-1].startswith("ready")
    assert "R58M123" in said[1]


@pytest.mark.parametrize(
    ("change", "step", "message"),
    [
        ({"which": lambda _name: None}, 1, "platform-tools"),
        ({"run": lambda _command: "List of devices attached\n"}, 2, "USB debugging"),
        ({"run": lambda _command: "List\nR58\tunauthorized\n"}, 2, "accept the question"),
        ({"environment": lambda _name: None}, 3, "TVM_NDK_CC is not set"),
        ({"environment": lambda _name: "/nowhere/clang"}, 3, "is no file"),
        ({"has_module": lambda _name: False}, 4, "seqto[tvm]"),
        ({"connects": lambda _host, _port: False}, 5, "rpc_tracker"),
    ],
)
def test_the_first_thing_that_is_missing_is_named(
    kit: ModuleType, tmp_path: Path, change: Any, step: int, message: str
) -> None:
    compiler = tmp_path / "clang++"
    compiler.touch()
    said = checked(kit, desk(kit, compiler, **change))
    assert len(said) == step
    assert "MISSING" in said[-1]
    assert message in said[-1]


def test_no_free_server_and_other_answers_are_said(kit: ModuleType, tmp_path: Path) -> None:
    compiler = tmp_path / "clang++"
    compiler.touch()
    assert "no free server" in checked(kit, desk(kit, compiler), free=0)[-1]
    assert "differ by 0.5" in checked(kit, desk(kit, compiler), moved=0.5)[-1]

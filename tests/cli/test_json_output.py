"""What commands print with --json fits the published schema."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry, Resource

import runs
from finished_run import Done, finished_run
from finished_run import seqto as command
from inline_runs import run_inline
from seqto.cli.options import COMMANDS

ASSETS = resources.files("seqto.report") / "assets"
OUTPUT, REPORT = (
    json.loads((ASSETS / f"{name}.schema.json").read_text("utf-8")) for name in ("output", "report")
)
REGISTRY: Any = Registry().with_resources(
    (name, Resource.from_contents(schema))
    for name, schema in (("output.schema.json", OUTPUT), ("report.schema.json", REPORT))
)
NO_OUTPUT = {"serve", "completion", "mcp"}  # a page, a script, a protocol of its own
WORDS = (
    ("tune", "tune --config tune.toml --out new --max-trials 2 --json"),
    ("dry_run", "tune --config tune.toml --out other --dry-run --json"),
    ("analyze", "analyze --config tune.toml --out layers --json"),
    ("diagnose", "diagnose --config tune.toml --out why --json"),
    ("report", "report out --format json"),
    ("export", "export out -o a.onnx --json"),
    ("export", "export out -o b.onnx --card --json"),
    ("export", "export net.onnx --mode weight -o c.onnx --json"),
    ("push", "push out --repo me/net --dry-run --json"),
    ("compare", "compare out out --json"),
    ("devices", "devices --json"),
    ("init", "init net.onnx -o fresh.toml --json"),
    ("check", "check net.onnx --against net.onnx --config tune.toml --json"),
    ("apply", "apply out net.onnx -o d.onnx --json"),
    ("inspect", "inspect net.onnx --json"),
    ("status", "status out --json"),
    ("picks", "picks out --json"),
)


def check(name: str, value: Any) -> None:
    schema = {"$ref": f"output.schema.json#/$defs/{name}"}
    jsonschema.Draft202012Validator(schema, registry=REGISTRY).validate(value)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    with pytest.MonkeyPatch.context() as patch:
        run_inline(patch)
        return finished_run(tmp_path_factory.mktemp("json"))


@pytest.fixture
def folder(done: Done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(done.config.parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_schema_is_one_and_has_every_command() -> None:
    jsonschema.Draft202012Validator.check_schema(OUTPUT)
    assert set(OUTPUT["$defs"]) == {*COMMANDS, "dry_run"} - NO_OUTPUT - {"demo"}  # demo is a tune
    assert {name for name, _ in WORDS} == set(OUTPUT["$defs"])


@pytest.mark.usefixtures("inline", "folder")
@pytest.mark.parametrize(
    ("name", "words"), WORDS, ids=[f"{n}-{i}" for i, (n, _) in enumerate(WORDS)]
)
def test_what_a_command_prints_fits(name: str, words: str) -> None:
    code, out, err = command(*words.split())
    assert (code, err) == (0, "")
    values = [json.loads(out)] if name == "report" else [json.loads(x) for x in out.splitlines()]
    assert values
    for value in values:
        check(name, value)


@pytest.mark.usefixtures("folder")
def test_the_schema_refuses_what_it_does_not_know() -> None:
    value = json.loads(command("status", "out", "--json")[1])
    for wrong in ({**value, "more": 1}, {**value, "status": "ready"}, {"folder": "x"}):
        with pytest.raises(jsonschema.ValidationError):
            check("status", wrong)


@pytest.mark.parametrize("word", ["status", "picks"])
def test_a_folder_that_is_no_run_is_one_line(word: str, tmp_path: Path) -> None:
    code, out, err = command(word, tmp_path, "--json")
    assert (code, out) == (2, "")
    assert "no run folder" in err


def test_the_picks_are_those_of_the_report(done: Done) -> None:
    rows = json.loads(command("picks", done.out, "--json")[1])
    report = done.report
    assert {p: r["trial"] for r in rows for p in r["picks"]} == report["recommended"]
    for row in rows:
        assert row["sha256"] == report["trials"][row["trial"]]["sha256"]


def test_inspect_tells_inputs_and_layers(tmp_path: Path) -> None:
    runs.write_config(tmp_path)
    found = json.loads(command("inspect", tmp_path / "net.onnx", "--json")[1])
    assert found["inputs"][0]["name"] == "x"
    assert found["layers"]
    code, out, _ = command("inspect", tmp_path / "net.onnx")
    assert code == 0
    assert "input 'x'" in out

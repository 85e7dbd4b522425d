"""`seqto mcp`, driven by the client of the protocol's own library over stdin and stdout."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import runs
from finished_run import Done, finished_run
from finished_run import seqto as command
from inline_runs import run_inline
from seqto.cli.mcp_server import Commands, Folders, OutsideError
from seqto.errors import ConfigError

pytest.importorskip("mcp")
pytestmark = pytest.mark.xdist_group("mcp")

TOOLS = {"inspect", "dry_run", "start", "status", "picks", "compare", "export"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """A folder with a net, samples and a finished run `out`."""
    with pytest.MonkeyPatch.context() as patch:
        run_inline(patch)
        return finished_run(tmp_path_factory.mktemp("agent"))


def talk(folder: Path, ask: Callable[[Any], Awaitable[None]]) -> None:
    """Start a server for one folder, let `ask` speak to it, end it."""
    import anyio
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    async def session() -> None:
        parameters = StdioServerParameters(
            command=sys.executable,
            args=["-m", "seqto", "mcp", str(folder)],
            env=runs.environment(),
        )
        async with Client(stdio_client(parameters)) as client:
            await ask(client)

    anyio.run(session)


async def answer(client: Any, tool: str, **given: Any) -> tuple[bool, str]:
    found = await client.call_tool(tool, given)
    return bool(found.is_error), "".join(part.text for part in found.content)


def test_tools_answer_with_the_json_of_the_command_line(done: Done) -> None:
    folder = done.config.parent
    seen: dict[str, tuple[bool, str]] = {}

    async def ask(client: Any) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.description for tool in tools)
        seen["inspect"] = await answer(client, "inspect", model="net.onnx")
        seen["status"] = await answer(client, "status", run="out")
        seen["picks"] = await answer(client, "picks", run="out")
        seen["compare"] = await answer(client, "compare", before="out", after="out")
        seen["export"] = await answer(client, "export", run="out", output="q.onnx", pick="small")
        seen["wrong pick"] = await answer(client, "export", run="out", output="r.onnx", pick="huge")
        seen["outside"] = await answer(client, "inspect", model="../other.onnx")
        seen["absolute"] = await answer(client, "inspect", model="/etc/hostname")

    talk(folder, ask)
    for tool, words in {
        "inspect": ("inspect", folder / "net.onnx"),
        "status": ("status", folder / "out"),
        "picks": ("picks", folder / "out"),
        "compare": ("compare", folder / "out", folder / "out"),
    }.items():
        failed, text = seen[tool]
        assert not failed, text
        assert json.loads(text) == json.loads(command(*words, "--json")[1])
    failed, text = seen["export"]
    assert not failed, text
    assert json.loads(text)["size_bytes"] == (folder / "q.onnx").stat().st_size
    assert seen["wrong pick"][0]
    assert "no pick 'huge'" in seen["wrong pick"][1]
    for name in ("outside", "absolute"):
        assert seen[name][0]
        assert "outside of the folders" in seen[name][1]


@pytest.mark.slow
def test_a_study_is_started_watched_and_ends(tmp_path: Path) -> None:
    runs.write_config(tmp_path, batch=1)
    states: list[Any] = []

    async def ask(client: Any) -> None:
        given = {"model": "net.onnx", "data": "random:420", "out": "new"}
        failed, text = await answer(client, "dry_run", **given)
        assert not failed, text
        assert json.loads(text)["layers"]
        failed, text = await answer(client, "start", **given, max_trials=2)
        assert not failed, text
        states.append(json.loads(text))
        end = time.monotonic() + 300
        while states[-1]["status"] == "running" and time.monotonic() < end:
            time.sleep(0.5)
            states.append(json.loads((await answer(client, "status", run="new"))[1]))
        failed, text = await answer(client, "start", **{**given, "data": "gone/"})
        assert failed, text

    talk(tmp_path, ask)
    assert states[-1]["status"] in ("done", "budget")
    assert states[-1]["counts"]["trials"] == 2


# ------------------------------------------------------------------------------------ the folders


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    (tmp_path / "mine" / "m.onnx").write_bytes(b"m")
    (tmp_path / "mine2").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("k")
    return tmp_path / "mine"


def test_paths_inside_are_taken(inner: Path) -> None:
    folders = Folders.of([str(inner), str(inner.parent / "mine2")])
    assert folders.path("m.onnx") == str(inner / "m.onnx")
    assert folders.path("deep/../m.onnx") == str(inner / "m.onnx")
    assert folders.path(str(inner.parent / "mine2" / "new")) == str(inner.parent / "mine2" / "new")
    assert folders.data("random:12") == "random:12"


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "../secret",
        "../mine3",
        "/",
        "/etc/passwd",
        "deep/../../secret/key",
        "",
        "a\0b",
        "~/../..",
    ],
)
def test_paths_outside_are_refused(inner: Path, path: str) -> None:
    folders = Folders.of([str(inner)])
    if path == "~/../..":  # a name as any other: no shell reads it
        assert folders.path("~/x") == str(inner / "~" / "x")
        return
    with pytest.raises(OutsideError):
        folders.path(path)


@pytest.mark.parametrize("link", ["file", "folder", "deep/link", "chain"])
def test_links_that_lead_out_are_refused(inner: Path, link: str) -> None:
    target = inner.parent / "secret" / ("key" if link == "file" else "")
    (inner / link).symlink_to(target)
    folders = Folders.of([str(inner)])
    asked = [link, f"{link}/key"] if link != "file" else [link]
    if link == "deep/link":
        asked.append("deep")  # a folder of data with a link inside
    if link == "chain":
        (inner / "first").symlink_to(inner / "chain")
        asked.append("first/key")
    for path in asked:
        with pytest.raises(OutsideError):
            folders.path(path)


def test_a_loop_of_links_is_refused(inner: Path) -> None:
    (inner / "a").symlink_to(inner / "b")
    (inner / "b").symlink_to(inner / "a")
    with pytest.raises(OutsideError):
        Folders.of([str(inner)]).path("a")


def test_a_link_that_stays_inside_is_taken(inner: Path) -> None:
    (inner / "deep" / "again.onnx").symlink_to(inner / "m.onnx")
    assert Folders.of([str(inner)]).path("deep/again.onnx") == str(inner / "m.onnx")


@pytest.mark.parametrize("data", ["hub:x/y", "random:", "random:-1", "../secret"])
def test_data_are_files_inside_or_random(inner: Path, data: str) -> None:
    folders = Folders.of([str(inner)])
    if data.startswith(("hub", "random")):
        assert folders.data(data).startswith(str(inner))  # a name of a file, and there is none
        return
    with pytest.raises(OutsideError):
        folders.data(data)


@pytest.mark.parametrize("model", ["*.onnx", "deep", "gone.onnx", "hub:onnxmodelzoo/x"])
def test_a_model_is_one_file(inner: Path, model: str) -> None:
    with pytest.raises(ConfigError, match="is no file"):
        Folders.of([str(inner)]).file(model)


def test_the_error_of_a_command_is_its_line(inner: Path) -> None:
    with pytest.raises(ConfigError, match="is no run folder"):
        Commands(Folders.of([str(inner)])).run("status", str(inner), "--json")


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    code, _, err = command("mcp", tmp_path / "none")
    assert code == 2
    assert "is no folder" in err
    assert err.count("\n") == 1


def test_without_the_library_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    code, _, err = command("mcp", tmp_path)
    assert code == 2
    assert "seqto[mcp]" in err


def test_a_study_cannot_be_started_twice(inner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with its client, also where Ctrl-C is ignored (as below a shell's `&`)."""
    import subprocess

    monkeypatch.setattr("seqto.cli.mcp_server.INTERRUPT_S", 0.5)
    commands = Commands(Folders.of([str(inner)]))
    waiting = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with open(os.devnull, "rb") as nothing:
        commands.running["run"] = (waiting, nothing)
        with pytest.raises(ConfigError, match="running already"):
            commands.start("run", "tune")
        commands.close()
    assert waiting.poll() is not None

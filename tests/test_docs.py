"""What the documents say is run: commands, Python blocks, settings, links, reference pages.

A temporary folder stands in for the reader's: `model.onnx` and `pictures/` are a small net and
small pictures, and `runs/model` is the run that the README's command makes. Blocks of a page run in
their order. The reader's minutes are cut to seconds by settings that are added to every tuning (few
trials, short timing, no diagnosis). Commands that need no shell run in this process, without plots.
What costs much and was run for one page is not run again for the next.

A block that cannot be run here has `<!-- not run: reason -->` before it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import tomllib
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nets
import runs
from net_builder import Net
from seqto import config
from seqto.cli.main import main
from seqto.devices.ort import OrtSession
from seqto.study.build_plugins import check_settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WORKFLOW = ROOT / "docs" / "ci-workflow.yml"
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<reason>[^\n]+?) -->\n\s*)?"
    r"^(?P<indent>[ \t]*)```(?P<language>[\w-]*)\n(?P<body>.*?)^(?P=indent)```",
    re.MULTILINE | re.DOTALL,
)
SHELL = ("sh", "console", "bash", "shell")
PROGRAMS = r"^\s*(?:\$ )?(?:seqto|pip|make|apt|apt-get|adb|python|python3|pytest|git|docker) "
PICTURES = 420
TUNE_MODEL = "seqto tune model.onnx --data pictures/ --preset imagenet-torch --out runs/model"
WRAPPER = """\
#!{python}
import sys

from seqto.cli.main import main

words = sys.argv[1:]
if words[0] in ("tune", "demo"):
    words += ["--set", "device.latency_s=0.01", "--set", "analysis.diagnose=false"]
    words += [] if "--max-trials" in words else ["--max-trials", "3"]
raise SystemExit(main(words))
"""
SHORT_TUNE = """\
import functools
import seqto
short = {"device__latency_s": 0.01, "analysis__diagnose": False, "search__max_trials": 3}
seqto.tune = functools.partial(seqto.tune, **short)
"""
COSTLY = ("seqto tune", "seqto analyze", "seqto diagnose")
WORKED: set[str] = set()  # costly commands that were run already
pytestmark = pytest.mark.xdist_group("docs")  # pages share the reader's folder and WORKED


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    body: str
    reason: str | None

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    return [
        Block(
            name,
            text.count("\n", 0, found.start("language")) + 1,
            found["language"],
            textwrap.dedent(found["body"]),
            found["reason"],
        )
        for found in BLOCK.finditer(text)
    ]


def commands_of(block: Block) -> list[str]:
    """Return single commands: continued lines are one; a console shows them behind `$ `."""
    joined = block.body.replace("\\\n", " ")
    lines = [re.sub(r"\s+#\s.*$", "", line).strip() for line in joined.splitlines()]
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [" ".join(line.split()) for line in lines if line and not line.startswith("#")]


def shell_commands(path: Path) -> list[str]:
    found = [b for b in blocks_of(path) if b.language in SHELL and b.reason is None]
    return [command for block in found for command in commands_of(block)]


def workflow_commands() -> list[str]:
    """Return the `seqto` lines of the workflow, continued ones joined."""
    text = WORKFLOW.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return [line.removeprefix("run: ") for line in lines if re.match(r"(run: )?seqto ", line)]


def is_slow(command: str) -> bool:
    return command.startswith("seqto demo")


WITH_COMMANDS = [p for p in PAGES if any(not is_slow(c) for c in shell_commands(p))]
WITH_PYTHON = [
    p for p in PAGES if any(b.language == "python" and b.reason is None for b in blocks_of(p))
]
SLOW = sorted({c for p in PAGES for c in shell_commands(p) if is_slow(c)})


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# ------------------------------------------------------------------------------ the reader's folder


def reader_net() -> Any:
    """x (N×3×224×224) ─ Conv/16 ─ Relu ─ Conv ─ Relu ─ GlobalAveragePool ─ Flatten ─ Gemm ─ y."""
    net = Net(seed=3)
    x = net.add("Relu", [net.conv("x", (3, 8), strides=[16, 16])])
    x = net.add("Relu", [net.conv(x, (8, 8))])
    x = net.add("Flatten", [net.add("GlobalAveragePool", [x])])
    net.gemm(x, (8, nets.CLASSES), output="y")
    return net.model({"x": ["N", 3, 224, 224]}, {"y": ["N", nets.CLASSES]})


def fill(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True)
    wrapper = folder / "bin" / "seqto"
    wrapper.write_text(WRAPPER.format(python=sys.executable))
    wrapper.chmod(0o755)
    nets.save(reader_net(), folder / "model.onnx")
    (folder / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for i in range(PICTURES):
        tint = rng.integers(0, 256, (1, 1, 3))
        pixels = np.clip(tint + rng.integers(-30, 30, (20, 24, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"p{i:03}.png")


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one command of ours in this process; what needs a shell gets one."""
    if command.startswith("seqto ") and not set(command) & set("|&;<>$`*\n\\"):
        return run_here(shlex.split(command, comments=True)[1:], folder)
    environment = runs.environment()
    environment["PATH"] = os.pathsep.join([str(folder / "bin"), environment["PATH"]])
    environment["GITHUB_STEP_SUMMARY"] = str(folder / "summary.md")
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def run_here(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    out, err = io.StringIO(), io.StringIO()
    if words[0] in ("tune", "demo"):
        words = [*words, "--set", "device.latency_s=0.01", "--set", "analysis.diagnose=false"]
        words += [] if "--max-trials" in words else ["--max-trials", "3"]
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        code = main(words)
    return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())


def must_work(command: str, folder: Path) -> None:
    if command.startswith("seqto serve "):
        must_serve(command, folder)
        return
    if command in WORKED:
        return
    done = run(command, folder)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
    if command.startswith(COSTLY):
        WORKED.add(command)


def must_serve(command: str, folder: Path) -> None:
    """It says where, it answers there, and Ctrl-C ends it."""
    server = subprocess.Popen(
        [sys.executable, "-m", "seqto", *command.split()[1:]],
        cwd=folder,
        env=runs.environment(),
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=runs.hears_ctrl_c,  # noqa: PLW1509  (no threads here)
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[0]
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.status == 200
    finally:
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.stdout.close()


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after the README's command was run there for the first time."""
    folder = tmp_path_factory.mktemp("reader")
    fill(folder)
    must_work(TUNE_MODEL, folder)
    return folder


@pytest.fixture
def reader(tuned: Path, tmp_path: Path) -> Path:
    """A copy of it, with the accepted journal that the workflow compares with."""
    shutil.copytree(tuned / "runs", tmp_path / "runs")
    for name in ("bin", "model.onnx", "pictures"):
        (tmp_path / name).symlink_to(tuned / name)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "baseline").mkdir()
    shutil.copy(tuned / "runs" / "model" / "journal.jsonl", tmp_path / "baseline")
    return tmp_path


@pytest.fixture(autouse=True, scope="module")
def _steady_times() -> Iterator[None]:
    """Let every run of a model take a millisecond: no gate of a page may hang on how busy it is.

    The pages' `compare --fail-if-worse` compares latencies of models that take microseconds.
    """

    def time_ms(session: OrtSession, feeds: Any) -> float:
        session.run(feeds)
        return 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OrtSession, "time_ms", time_ms)
        yield


# ---------------------------------------------------------------------------------------- the tests


def test_the_command_that_the_documents_begin_with_is_the_readmes() -> None:
    assert TUNE_MODEL in shell_commands(ROOT / "README.md")


@pytest.mark.usefixtures("inline")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=name_of)
def test_every_command_of_a_page_works(page: Path, reader: Path) -> None:
    for command in shell_commands(page):
        if not is_slow(command):
            must_work(command, reader)


@pytest.mark.usefixtures("inline")
def test_the_commands_of_the_workflow_work(reader: Path) -> None:
    commands = workflow_commands()
    words = [command.split()[1] for command in commands]
    assert words == ["tune", "compare", "report"]
    assert "--max-loss" in commands[0]
    assert "--fail-if-worse" in commands[1]
    for command in commands:
        must_work(command, reader)
    assert "balanced" in (reader / "summary.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("command", SLOW)
def test_slow_commands_work(command: str, reader: Path) -> None:
    must_work(command, reader)


@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_python_blocks_of_a_page_run_one_after_the_other(page: Path, reader: Path) -> None:
    blocks = [b for b in blocks_of(page) if b.language == "python" and b.reason is None]
    script = reader / "page.py"
    script.write_text("\n".join([SHORT_TUNE, *(b.body for b in blocks)]))
    if "model-int8.onnx" in script.read_text():
        must_work("seqto export runs/model --pick balanced -o model-int8.onnx", reader)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=reader,
        env=runs.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_settings_in_a_page_are_settings(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "toml" and block.reason is None:
            check_settings(config.make(tomllib.loads(block.body)))


def test_no_command_hides_in_a_block_without_a_language() -> None:
    for page in PAGES:
        for block in blocks_of(page):
            hidden = re.search(PROGRAMS, block.body, re.MULTILINE)
            if block.language not in (*SHELL, "python", "text") and hidden:
                pytest.fail(f"{block.place}: {hidden[0].strip()}: mark the block as sh or text")


def test_what_is_not_run_says_why() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        reasons = [b.reason for b in blocks_of(page) if b.reason]
        assert len(reasons) == text.count("<!-- not run:"), f"{page}: a comment without a block"
        assert all(len(reason) > 10 for reason in reasons)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor and file.suffix == ".md":  # of a picture it names the theme
            assert anchor in anchors_of(file), f"{page.name}: {target}"


def anchors_of(page: Path) -> set[str]:
    """Return headings as GitHub makes anchors of them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_reference_pages_are_up_to_date() -> None:
    script = ROOT / "scripts" / "make_reference"
    loader = SourceFileLoader("make_reference", str(script))
    spec = spec_from_loader("make_reference", loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    for path, text in module.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"run scripts/make_reference: {path.name}"


def test_the_device_in_the_how_to_is_the_example() -> None:
    source = (ROOT / "examples" / "own_device.py").read_text(encoding="utf-8")
    assert source in (ROOT / "docs" / "how-to-add-a-device.md").read_text(encoding="utf-8")

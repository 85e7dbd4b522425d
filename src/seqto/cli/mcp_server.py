"""`seqto mcp`: commands of seqto for agents, over stdin and stdout (extra `mcp`).

A tool runs the command line in a process of its own and answers with the JSON that it prints; what
the command refuses is the tool's error, in the same line. Paths must lie in the folders that were
named when the server was started: names, `..` and links that lead out of them are refused, also
links inside of a folder that is read.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from seqto.errors import ConfigError
from seqto.files import shown
from seqto.record.own_files import JOURNAL

GATE = 3  # exit code of a command that has answered, where a bound is not kept
COMMAND_TIMEOUT_S = 900.0
INTERRUPT_S = 30  # that an interrupted study may take to write its report
START_TIMEOUT_S = 300.0  # until a run has written its first line
MOST_ENTRIES = 200_000  # of a folder, whose links are looked at
INSTRUCTIONS = (
    "Quantize ONNX models with measured figures. Begin with inspect, then dry_run, then start; ask "
    "status until its status is no longer 'running'; picks has the recommended trials, export "
    "writes one of them. Paths are relative to the first folder that the server may use."
)


class OutsideError(ConfigError):
    """A path that leads out of the folders that the server may use."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders that the server may read and write, resolved."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> Folders:
        roots = []
        for name in names:
            path = Path(name)
            if not path.is_dir():
                raise ConfigError(f"{shown(name)} is no folder: give folders that are there")
            roots.append(path.resolve())
        return cls(tuple(roots))

    def path(self, text: str) -> str:
        """Return an absolute path inside; relative ones begin in the first folder."""
        if "\0" in text or not text:
            raise OutsideError(f"{text!r} is no path")
        try:
            path = (self.roots[0] / text).resolve()
        except (OSError, RuntimeError) as error:  # a loop of links
            raise OutsideError(
                f"{shown(text)} cannot be followed: is it a loop of links?"
            ) from error
        if not self._holds(path):
            names = ", ".join(str(root) for root in self.roots)
            raise OutsideError(
                f"{shown(text)} is outside of the folders that this server may use ({names}): "
                "choose a path inside, or start it with that folder too"
            )
        if path.is_dir():
            self._check_links(path)
        return str(path)

    def file(self, text: str) -> str:
        """Return the path of one file inside; a pattern or a folder would name several."""
        path = self.path(text)
        if not Path(path).is_file():
            raise ConfigError(f"{shown(text)} is no file")
        return path

    def data(self, text: str) -> str:
        """Return data as --data takes them; only files, folders and random inputs."""
        kind, colon, count = text.partition(":")
        if colon and kind == "random" and count.isascii() and count.isdigit():
            return text
        return self.path(text)

    def _holds(self, path: Path) -> bool:
        return any(path.is_relative_to(root) for root in self.roots)

    def _check_links(self, folder: Path) -> None:
        entries = 0
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                entries += 1
                entry = Path(parent, name)
                if entry.is_symlink() and not self._holds(entry.resolve()):
                    raise OutsideError(
                        f"{shown(entry)} is a link that leads out of the folders that this server "
                        "may use: remove it"
                    )
            if entries > MOST_ENTRIES:
                raise OutsideError(f"{shown(folder)} has more than {MOST_ENTRIES:,} entries")


@dataclass(slots=True)
class Commands:
    """Runs commands, and keeps the studies that were started."""

    folders: Folders
    running: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = field(default_factory=dict)

    def run(self, *words: str) -> str:
        """Return what a command prints; its one line on stderr is the error."""
        try:
            done = subprocess.run(
                self._command(words),
                cwd=self.folders.roots[0],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ConfigError(f"seqto {words[0]} took more than {error.timeout:.0f} s") from error
        if done.returncode not in (0, GATE):
            raise ConfigError(_last_line(done.stderr) or f"exit code {done.returncode}")
        return done.stdout.decode("utf-8", "replace").strip()

    def start(self, out: str, *words: str) -> str:
        """Start a study in the background; returns its status once it has begun."""
        if self._alive(out):
            raise ConfigError(f"{shown(out)} is running already: ask for its status")
        journal = Path(out, JOURNAL)
        before = _size(journal)  # of an earlier call: says nothing about this one
        errors = tempfile.TemporaryFile()  # noqa: SIM115  (open for as long as the study runs)
        process = subprocess.Popen(
            self._command(words),
            cwd=self.folders.roots[0],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        self.running[out] = (process, errors)
        end = time.monotonic() + START_TIMEOUT_S
        while process.poll() is None and time.monotonic() < end:
            if _size(journal) > before:
                break
            time.sleep(0.1)
        if process.poll() not in (None, 0, GATE):
            errors.seek(0)
            raise ConfigError(_last_line(errors.read()) or f"exit code {process.returncode}")
        return self.run("status", out, "--json")

    def close(self) -> None:
        """Interrupt what still runs, as Ctrl-C does: the same call goes on with it later."""
        for out, (process, _) in self.running.items():
            if self._alive(out):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGINT)
        for process, errors in self.running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(INTERRUPT_S)
            process.kill()
            process.wait()
            errors.close()

    def _alive(self, out: str) -> bool:
        known = self.running.get(out)
        return known is not None and known[0].poll() is None

    @staticmethod
    def _command(words: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "seqto", *words]


def _size(journal: Path) -> int:
    """Return the bytes of a journal up to its last whole line; 0 where there is none."""
    try:
        return journal.read_bytes().rfind(b"\n") + 1
    except OSError:
        return 0


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].removeprefix("seqto: ") if lines else ""


def make_server(commands: Commands) -> Any:
    """Return the server with its tools."""
    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError as error:
        raise ConfigError("seqto mcp needs the package mcp: pip install 'seqto[mcp]'") from error
    server = MCPServer("seqto", instructions=INSTRUCTIONS, log_level="WARNING")
    for tool in Tools(commands).all():
        server.add_tool(_refusing(tool), structured_output=False)
    return server


def _refusing(tool: Any) -> Any:
    """Return the tool with refusals as the protocol has them."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    def answered(*args: Any, **kwargs: Any) -> str:
        try:
            text: str = tool(*args, **kwargs)
        except ConfigError as error:
            raise ToolError(str(error)) from error
        return text

    return answered


class Tools:
    """One method a tool; its docstring is what an agent reads."""

    def __init__(self, commands: Commands) -> None:
        self.commands, self.folders = commands, commands.folders

    def all(self) -> list[Any]:
        return [
            *(self.inspect, self.dry_run, self.start, self.status),
            *(self.picks, self.compare, self.export),
        ]

    def inspect(self, model: str) -> str:
        """Return inputs, outputs, layers and the likely task of an .onnx file."""
        return self.commands.run("inspect", self.folders.file(model), "--json")

    def dry_run(self, model: str, data: str, *, out: str, preset: str = "") -> str:
        """Return what a study would do and how long it would take; nothing is written.

        data: a folder of pictures, an .npz file, a table of texts, or random:COUNT.
        """
        return self.commands.run(*self._tune(model, data, out=out, preset=preset), "--dry-run")

    def start(
        self,
        model: str,
        data: str,
        *,
        out: str,
        preset: str = "",
        max_minutes: float | None = None,
        max_trials: int | None = None,
        want: str = "",
        max_loss: str = "",
        max_size: str = "",
    ) -> str:
        """Start a study in a new folder, or go on with one; returns its status at once.

        want: smallest, fastest or lowest-loss. max_loss, e.g. 1%; max_size, e.g. 4MB.
        """
        words = self._tune(model, data, out=out, preset=preset)
        options = {
            "--max-minutes": max_minutes,
            "--max-trials": max_trials,
            "--want": want,
            "--max-loss": max_loss,
            "--max-size": max_size,
        }
        words += [f"{name}={value}" for name, value in options.items() if value not in (None, "")]
        return self.commands.start(self.folders.path(out), *words)

    def status(self, run: str) -> str:
        """Return how far a study is: status, counts, the recommendation so far."""
        return self.commands.run("status", self.folders.path(run), "--json")

    def picks(self, run: str) -> str:
        """Return the recommended trials of a study with their figures."""
        return self.commands.run("picks", self.folders.path(run), "--json")

    def compare(self, before: str, after: str, *, margin: float = 0.0) -> str:
        """Compare the recommended models of two studies; margin is a share, e.g. 0.02."""
        words = [self.folders.path(before), self.folders.path(after)]
        return self.commands.run("compare", *words, f"--fail-if-worse={margin}", "--json")

    def export(self, run: str, output: str, *, pick: str = "", trial: int | None = None) -> str:
        """Write the model of a recommended trial, or of a trial by its number, to an .onnx file."""
        words = ["export", self.folders.path(run), f"--output={self.folders.path(output)}"]
        words += [f"--pick={pick}"] if pick else []
        words += [] if trial is None else [f"--trial={trial}"]
        return self.commands.run(*words, "--json")

    def _tune(self, model: str, data: str, *, out: str, preset: str) -> list[str]:
        words = ["tune", self.folders.file(model), f"--data={self.folders.data(data)}"]
        words += [f"--out={self.folders.path(out)}", "--json"]
        return [*words, f"--preset={preset}"] if preset else words


def serve(names: Sequence[str]) -> None:
    """Serve until the client closes stdin; studies that still run are interrupted."""
    commands = Commands(Folders.of(names))
    server = make_server(commands)
    try:
        server.run("stdio")
    finally:
        commands.close()

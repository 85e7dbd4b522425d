"""The commands: parse, call one function of seqto.api, print.

It catches SeqtoError and nothing else: anything else is a bug and shows itself. Exit codes: 0 done,
2 bad input, 3 no trial meets the goal (or a comparison got worse), 130 Ctrl-C. What a command
needs is imported in its function, so that `seqto --help` is quick.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import errno
import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqto.cli.options import make_parser
from seqto.errors import ConfigError, SeqtoError
from seqto.files import given_path, read_path, shown

if TYPE_CHECKING:
    from seqto.api import Result, SavedModel
    from seqto.records import Json
    from seqto.study.setup import RunSetup

EXIT_BAD_INPUT = 2


EXIT_GATE = 3


EXIT_SOME_FAILED = 4


EXIT_INTERRUPTED = 130


RESUMED = ("tune", "demo")  # commands that continue where they were interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the `seqto` command."""
    if arguments is None and sys.getfilesystemencoding() == "ascii":
        _start_again_in_utf8()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may hold what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _run(arguments)
        finally:  # also when argparse ends the program
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader has left: what it wanted to see, it has seen
        _discard_output()
        return 0
    except OSError as error:
        if not _is_output_error(error):
            raise
        _discard_output()
        print(f"seqto: cannot write to the standard output: {error.strerror}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return code


def _start_again_in_utf8() -> None:
    """Replace this process by one whose file names are UTF-8; what it prints stays ASCII.

    Python does so itself in the C locale unless PYTHONUTF8=0 and PYTHONCOERCECLOCALE=0 are set.
    ONNX Runtime takes UTF-8 names only.
    """
    encoding = os.environ.get("PYTHONIOENCODING") or "ascii:backslashreplace"
    environment = {**os.environ, "PYTHONUTF8": "1", "PYTHONIOENCODING": encoding}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _run(arguments: Sequence[str] | None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.version:
        return print_version()
    if options.command is None:
        parser.print_help()
        return EXIT_BAD_INPUT
    try:
        code: int = COMMANDS[options.command](options)
    except SeqtoError as error:
        print(f"seqto: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        more = "; the same command continues the run" if options.command in RESUMED else ""
        print(f"seqto: interrupted{more}", file=sys.stderr)
        return EXIT_INTERRUPTED
    return code


def _is_output_error(error: OSError) -> bool:
    """Return whether an error comes from writing to the standard output, not to a named file."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EFBIG)


def _discard_output() -> None:
    """Send the rest of the output nowhere: at its end the interpreter would fail on it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError, ValueError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_version() -> int:
    from seqto.devices.environment import version

    print(f"seqto {version()}")
    return 0


# ------------------------------------------------------------------------------------- commands


def tune(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.progress import watch
    from seqto.cli.settings import overrides_from
    from seqto.report import wording
    from seqto.report.terminal import runs_table

    out = given_path(options.out, "--out")
    _check_tracker(options)
    given: dict[str, Any] = {"config": options.config, "settings": overrides_from(options)}
    if options.dry_run:
        for described in api.dry_run(options.models, out=out, **given):
            print(json.dumps(described.to_json()) if options.json else described)
        return 0

    @contextlib.contextmanager
    def watched(setup: RunSetup) -> Iterator[RunSetup]:
        quiet = options.quiet or setup.out != out  # of several, a line each when they are done
        with (
            watch(setup, quiet=quiet, as_json=options.json) as shown_run,
            _tracked(options, shown_run) as tracked_run,
        ):
            yield tracked_run

    def finished(result: Result) -> None:
        if Path(result.folder) == out:
            _print_result(result, as_json=options.json)
        elif not options.json:
            name = Path(result.folder).name
            print(f"seqto: {name}: {wording.recommendation(result.report)}", file=sys.stderr)

    with _live_page(options, out):
        results = api.tune_models(
            options.models, out=out, watch=watched, finished=finished, **given
        )
    if len(results.outcomes) > 1 and not options.json:
        rows = [(r.folder, r.report) for r in results.done.values()]
        _print(runs_table(rows, failed=list(results.failed)))
    for sentence in results.not_written:
        print(f"seqto: {sentence}", file=sys.stderr)
    for name, error in results.failed.items():
        print(f"seqto: {name}: {error}", file=sys.stderr)
    code = _exit_code(list(results.done.values()))
    return EXIT_SOME_FAILED if results.failed else code


def demo(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.progress import watch
    from seqto.cli.settings import overrides_from

    out = given_path(options.out, "--out")
    _check_tracker(options)

    @contextlib.contextmanager
    def watched(setup: RunSetup) -> Iterator[RunSetup]:
        with (
            watch(setup, quiet=options.quiet, as_json=options.json) as shown_run,
            _tracked(options, shown_run) as tracked_run,
        ):
            yield tracked_run

    with _live_page(options, out):
        result = api.run_demo(out, settings=overrides_from(options), watch=watched)
    _print_result(result, as_json=options.json)
    return _exit_code([result])


def analyze(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.settings import overrides_from
    from seqto.report.terminal import layers_table

    given = overrides_from(options)
    found = api.analyze_models(
        options.models, out=options.out, config=options.config, settings=given
    )
    for folder, report in found.items():
        if options.json:
            print(json.dumps(report["model"]["layers"]))
        else:
            _print(layers_table(report))
            print(f"written: {Path(folder) / 'analysis.json'}, {Path(folder) / 'plots'}")
    return 0


def diagnose(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.settings import overrides_from
    from seqto.report.diagnosis import build_diagnosis
    from seqto.report.terminal_diagnosis import diagnosis_summary

    given = overrides_from(options)
    found = api.diagnose_models(
        options.models, out=options.out, config=options.config, settings=given
    )
    for folder, findings in found.items():
        if options.json:
            print(json.dumps(findings))
        else:
            diagnosis = build_diagnosis(findings)
            assert diagnosis is not None
            _print(diagnosis_summary(diagnosis))
            print(f"written: {Path(folder) / 'diagnosis.json'}")
    return 0


def report(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.report import csv_file, markdown, terminal

    folder = str(options.folder)
    if options.format == "all":
        result = api.write_report(folder, examples=not options.no_examples)
        _print(terminal.summary(result.report, folder=folder))
        for problem in result.problems:
            print(f"seqto: {problem}", file=sys.stderr)
        return _exit_code([dataclasses.replace(result, met_goal=None)])  # no gate: a rewrite
    if options.format == "sensitivities":
        print(json.dumps(api.read_sensitivities(folder)))
        return 0
    content = api.read_report(folder)
    if options.format == "md":
        print(markdown.summary(content, folder=folder, picture=options.picture))
    elif options.format == "csv":
        print(csv_file.front_csv(content), end="")
    else:
        print(json.dumps(content, indent=1))
    return 0


def export(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.settings import overrides_from
    from seqto.record.own_files import JOURNAL

    source, output = read_path(options.source, "source"), given_path(options.output, "--output")
    if not (source / JOURNAL).is_file():
        if options.trial is not None or options.pick is not None or options.exact:
            raise ConfigError(
                f"{shown(source)} is no run folder: --trial, --pick and --exact need one"
            )
        if options.card is not None:
            raise ConfigError(f"{shown(source)} is no run folder: --card needs measured figures")
        return _quantize(options, output)
    given = overrides_from(options)
    if given:
        raise ConfigError(
            f"{source} is a run folder, whose trials are rebuilt as they were measured: "
            f"{next(iter(given))} cannot change them; to quantize anew, give the model file"
        )
    if options.card is not None:
        if options.exact:
            raise ConfigError(
                "--card writes into the model's metadata, --exact changes nothing of it: "
                "leave one of them out"
            )
        return _export_with_card(options, source, output)
    saved = api.export(source, output, trial=options.trial, pick=options.pick, exact=options.exact)
    _print_saved(saved, output, f"trial {saved.trial}", as_json=options.json)
    return 0


def _export_with_card(options: argparse.Namespace, source: Path, output: Path) -> int:
    from seqto import api

    saved, card = api.export_with_card(
        source, output, card=options.card or None, trial=options.trial, pick=options.pick
    )
    more = {"card": str(card)}
    _print_saved(saved, output, f"trial {saved.trial}", as_json=options.json, more=more)
    if not options.json:
        print(f"card → {card}")
    return 0


def _print_saved(
    saved: SavedModel, output: Path, what: str, *, as_json: bool, more: Json | None = None
) -> None:
    if as_json:
        print(json.dumps({**dataclasses.asdict(saved), **(more or {})}))
    else:
        print(f"{what}: {saved.size_bytes:,} bytes → {output}")
        if saved.notes_bytes:
            print(
                f"{saved.notes_bytes:,} of them are notes that Netron shows; "
                "--exact writes the measured file"
            )
        if saved.holds:
            print(saved.holds)


def _quantize(options: argparse.Namespace, output: Path) -> int:
    from seqto import api
    from seqto.cli.settings import overrides_from

    saved = api.quantize(options.source, output, settings=overrides_from(options))
    _print_saved(saved, output, f"{saved.layers} layers quantized", as_json=options.json)
    return 0


def compare(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.report.compare import compare_table, verdict_sentence

    margin = options.fail_if_worse
    result = api.compare(options.before, options.after, margin=margin or 0.0, page=options.page)
    if options.json:
        print(json.dumps(result))
    else:
        _print(compare_table(result))
        print(verdict_sentence(result))
        if options.page is not None:
            print(f"page → {options.page}")
    return EXIT_GATE if margin is not None and result["worse"] else 0


def serve(options: argparse.Namespace) -> int:
    from seqto import api

    server = api.serve(options.folder, port=options.port)
    print(f"{server.url}  (Ctrl-C ends it)", flush=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        server.shutdown()
    return 0


def devices(options: argparse.Namespace) -> int:
    from rich.table import Table
    from rich.text import Text

    from seqto import api
    from seqto.devices.available import NOT_BUILT_IN

    found = api.list_devices()
    if options.json:
        print(json.dumps([{"device": n, "usable": u, "why": why} for n, u, why in found]))
        return 0
    table = Table("device", "usable", "why")
    # as text: brackets in a reason ("seqto[tvm]") are no markup
    for name, usable, reason in sorted(found, key=lambda row: not row[1]):
        if usable or reason != NOT_BUILT_IN:
            table.add_row(Text(name), "yes" if usable else "no", Text(reason))
    _print(table)
    absent = [name.split("'")[1] for name, _, reason in found if reason == NOT_BUILT_IN]
    if absent:
        _print(Text(f"providers {NOT_BUILT_IN}: {', '.join(absent)}"))
    return 0


def init(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.settings import data_source

    path = given_path(options.output, "--output")
    data = data_source(options.data) if options.data else None
    described = api.init(options.model, path, data=data)
    if options.json:
        print(json.dumps({"config": str(path), "dry_run": described.to_json()}))
        return 0
    print(f"written: {path}")
    print(described)
    print(f"next: seqto tune --config {path} --out runs/{path.stem}")
    return 0


def check(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.settings import overrides_from
    from seqto.report.checked import checked_json, checked_lines

    given = overrides_from(options)
    found = api.check(options.model, against=options.against, config=options.config, settings=given)
    print(json.dumps(checked_json(found)) if options.json else "\n".join(checked_lines(found)))
    return EXIT_GATE if found.missed else 0


def apply(options: argparse.Namespace) -> int:
    from seqto import api
    from seqto.cli.settings import overrides_from
    from seqto.report.wording import measured_sentence

    done = api.apply(
        options.folder,
        options.model,
        given_path(options.output, "--output"),
        trial=options.trial,
        pick=options.pick,
        settings=overrides_from(options),
    )
    saved = done.saved
    who = f"the plan of trial {saved.trial}"
    sentence = measured_sentence(done.report, done.trial, who=who)
    if options.json:
        answer = {"saved": dataclasses.asdict(saved), "trial": done.trial, "sentence": sentence}
        print(json.dumps(answer))
        return 0
    print(sentence)
    print(f"plan of trial {saved.trial}: {saved.size_bytes:,} bytes → {options.output}")
    return 0


def of_programs(options: argparse.Namespace) -> int:
    from seqto.cli.programs import COMMANDS as THESE

    return THESE[options.command](options)


def completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise ConfigError("completion needs shtab: pip install 'seqto[completion]'") from error
    print(shtab.complete(make_parser(), shell=options.shell))
    return 0


COMMANDS = {
    "tune": tune,
    "demo": demo,
    "analyze": analyze,
    "diagnose": diagnose,
    "report": report,
    "export": export,
    "push": of_programs,
    "compare": compare,
    "serve": serve,
    "devices": devices,
    "init": init,
    "check": check,
    "apply": apply,
    "inspect": of_programs,
    "status": of_programs,
    "picks": of_programs,
    "mcp": of_programs,
    "completion": completion,
}


# ------------------------------------------------------------------------------- common parts


def _print_result(result: Result, *, as_json: bool) -> None:
    from seqto.report.terminal import summary

    if as_json:
        line = {"event": "result", "folder": result.folder, "recommended": result.recommended}
        print(json.dumps({**line, "front": list(result.front)}))
    else:
        _print(summary(result.report, folder=result.folder))


def _check_tracker(options: argparse.Namespace) -> None:
    """Refuse a tracker that cannot be used before anything is done."""
    if options.mlflow is not None:
        from seqto.publish.mlflow import check_tracker

        check_tracker(options.mlflow)


def _tracked(options: argparse.Namespace, setup: RunSetup) -> AbstractContextManager[RunSetup]:
    """Record the run in MLflow, if the user asks for it."""
    if options.mlflow is None:
        return contextlib.nullcontext(setup)
    from seqto.publish.mlflow import tracked

    return tracked(
        setup, options.mlflow, warn=lambda text: print(f"seqto: {text}", file=sys.stderr)
    )


@contextlib.contextmanager
def _live_page(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Serve the live page meanwhile, if the user asks for it."""
    if not getattr(options, "serve", False):
        yield
        return
    from seqto.report.live import start

    server = start(folder, port=0)
    print(f"live page: http://127.0.0.1:{server.server_address[1]}/", file=sys.stderr)
    try:
        yield
    finally:
        server.shutdown()


def _exit_code(results: Sequence[Result]) -> int:
    """Return 3 for a goal that is not met, then 2 for results that could not be written."""
    from seqto.report.wording import goal_sentence

    for sentence in [s for r in results for s in r.not_written]:
        print(f"seqto: {sentence}", file=sys.stderr)
    for result in [r for r in results if r.met_goal is False]:
        print(f"seqto: {goal_sentence(result.report)}", file=sys.stderr)
    if any(r.met_goal is False for r in results):
        return EXIT_GATE
    return EXIT_BAD_INPUT if any(r.not_written for r in results) else 0


def _print(content: Any) -> None:
    from rich.console import Console

    class Terminal(Console):
        def on_broken_pipe(self) -> None:  # rich would end the program with exit code 1
            raise BrokenPipeError

    Terminal().print(content, crop=False)  # a command to copy may be wider than the window


if __name__ == "__main__":
    raise SystemExit(main())

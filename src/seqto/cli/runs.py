"""Commands about runs: tune, demo, report, compare, serve."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from seqto import api
from seqto.api import Result
from seqto.cli.exit_codes import BAD_INPUT, GATE, SOME_FAILED
from seqto.cli.progress import watch
from seqto.cli.settings import overrides_from
from seqto.cli.show import show
from seqto.files import given_path
from seqto.publish import mlflow
from seqto.report import csv_file, live, markdown, terminal, wording
from seqto.report.compare import compare_table, verdict_sentence
from seqto.study.setup import RunSetup


def tune(options: argparse.Namespace) -> int:
    out = given_path(options.out, "--out")
    _check_tracker(options)
    sources: dict[str, Any] = {"config": options.config, "settings": overrides_from(options)}
    if options.dry_run:
        for described in api.dry_run(options.models, out=out, **sources):
            print(json.dumps(described.to_json()) if options.json else described)
        return 0

    def watched(setup: RunSetup) -> AbstractContextManager[RunSetup]:
        # of several, a line each when they are done
        return _watched(options, setup, quiet=options.quiet or setup.out != out)

    def finished(result: Result) -> None:
        if Path(result.folder) == out:
            _print_result(result, as_json=options.json)
        elif not options.json:
            name = Path(result.folder).name
            print(f"seqto: {name}: {wording.recommendation(result.report)}", file=sys.stderr)

    with _live_page(options, out):
        results = api.tune_models(
            options.models, out=out, watch=watched, finished=finished, **sources
        )
    if len(results.outcomes) > 1 and not options.json:
        rows = [(r.folder, r.report) for r in results.done.values()]
        show(terminal.runs_table(rows, failed=list(results.failed)))
    for sentence in results.not_written:
        print(f"seqto: {sentence}", file=sys.stderr)
    for name, error in results.failed.items():
        print(f"seqto: {name}: {error}", file=sys.stderr)
    code = _exit_code(list(results.done.values()))
    return SOME_FAILED if results.failed else code


def demo(options: argparse.Namespace) -> int:
    out = given_path(options.out, "--out")
    _check_tracker(options)

    def watched(setup: RunSetup) -> AbstractContextManager[RunSetup]:
        return _watched(options, setup, quiet=options.quiet)

    with _live_page(options, out):
        result = api.run_demo(out, settings=overrides_from(options), watch=watched)
    _print_result(result, as_json=options.json)
    return _exit_code([result])


def report(options: argparse.Namespace) -> int:
    folder = str(options.folder)
    if options.format == "all":
        result = api.write_report(folder, examples=not options.no_examples)
        show(terminal.summary(result.report, folder=folder))
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


def compare(options: argparse.Namespace) -> int:
    margin = options.fail_if_worse
    result = api.compare(options.before, options.after, margin=margin or 0.0, page=options.page)
    if options.json:
        print(json.dumps(result))
    else:
        show(compare_table(result))
        print(verdict_sentence(result))
        if options.page is not None:
            print(f"page → {options.page}")
    return GATE if margin is not None and result["worse"] else 0


def serve(options: argparse.Namespace) -> int:
    server = api.serve(options.folder, port=options.port)
    print(f"{server.url}  (Ctrl-C ends it)", flush=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        server.shutdown()
    return 0


def _print_result(result: Result, *, as_json: bool) -> None:
    if as_json:
        line = {"event": "result", "folder": result.folder, "recommended": result.recommended}
        print(json.dumps({**line, "front": list(result.front)}))
    else:
        show(terminal.summary(result.report, folder=result.folder))


@contextlib.contextmanager
def _watched(options: argparse.Namespace, setup: RunSetup, *, quiet: bool) -> Iterator[RunSetup]:
    """Show the progress of a run and record it, as the user asks."""
    with (
        watch(setup, quiet=quiet, as_json=options.json) as shown_run,
        _tracked(options, shown_run) as tracked_run,
    ):
        yield tracked_run


def _check_tracker(options: argparse.Namespace) -> None:
    """Refuse a tracker that cannot be used before anything is done."""
    if options.mlflow is not None:
        mlflow.check_tracker(options.mlflow)


def _tracked(options: argparse.Namespace, setup: RunSetup) -> AbstractContextManager[RunSetup]:
    """Record the run in MLflow, if the user asks for it."""
    if options.mlflow is None:
        return contextlib.nullcontext(setup)
    return mlflow.tracked(
        setup, options.mlflow, warn=lambda text: print(f"seqto: {text}", file=sys.stderr)
    )


@contextlib.contextmanager
def _live_page(options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Serve the live page meanwhile, if the user asks for it."""
    if not getattr(options, "serve", False):
        yield
        return
    server = live.start(folder, port=0)
    print(f"live page: http://127.0.0.1:{server.server_address[1]}/", file=sys.stderr)
    try:
        yield
    finally:
        server.shutdown()


def _exit_code(results: Sequence[Result]) -> int:
    """Return 3 for a goal that is not met, then 2 for results that could not be written."""
    for sentence in [s for r in results for s in r.not_written]:
        print(f"seqto: {sentence}", file=sys.stderr)
    for result in [r for r in results if r.met_goal is False]:
        print(f"seqto: {wording.goal_sentence(result.report)}", file=sys.stderr)
    if any(r.met_goal is False for r in results):
        return GATE
    return BAD_INPUT if any(r.not_written for r in results) else 0

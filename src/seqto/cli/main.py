"""The commands. Catches SeqtoError and nothing else: anything else is a bug and shows itself.

Exit codes: 0 done, 2 bad input, 3 no trial meets --max-loss (or a comparison got worse),
130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqto.cli.options import make_parser, settings_from, settings_overrides
from seqto.errors import ConfigError, SeqtoError
from seqto.files import given_path

if TYPE_CHECKING:
    from seqto.api import Result
    from seqto.config import Settings
    from seqto.record.replay import RunState

EXIT_BAD_INPUT = 2


EXIT_GATE = 3


EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The `seqto` command."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return EXIT_BAD_INPUT
    try:
        code: int = RUN[options.command](options)
    except SeqtoError as error:
        print(f"seqto: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("seqto: interrupted; the same command goes on from here", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 0
    return code


# ------------------------------------------------------------------------------------- commands


def run_tune(options: argparse.Namespace) -> int:
    from seqto.record.own_files import check_run_folder

    settings = settings_from(options)
    jobs = _jobs(options, settings)
    for job in jobs:  # all of them before the first is begun
        check_run_folder(job.out)
    if options.dry_run:
        from seqto.cli.dry_run import describe

        for job in jobs:
            print(describe(job))
        return 0
    results = [_tuned(options, job) for job in jobs]
    if len(results) > 1 and not options.json:
        from rich.console import Console

        from seqto.report.terminal import runs_table

        Console().print(runs_table([(r.folder, r.report) for r in results]))
    return _exit_code(results)


def _exit_code(results: Sequence[Result]) -> int:
    """The gate first; then 2 for results that could not be written, which are named."""
    for sentence in [s for r in results for s in r.not_written]:
        print(f"seqto: {sentence}", file=sys.stderr)
    if any(r.met_max_loss is False for r in results):
        return EXIT_GATE
    return EXIT_BAD_INPUT if any(r.not_written for r in results) else 0


def _jobs(options: argparse.Namespace, settings: Settings) -> list[Any]:
    import dataclasses

    from seqto.model.sources import parse_source
    from seqto.study.setup import check_settings, fetch, make_job

    check_settings(settings)
    paths = options.models or ([settings.model.path] if settings.model.path else [])
    if not paths:
        raise ConfigError("no model: name one, or give --config with model.path")
    found = []
    for path in paths:
        own = dataclasses.replace(settings, model=dataclasses.replace(settings.model, path=path))
        found += [(fetched, own) for fetched in fetch(own, parse_source)]
    out = given_path(options.out, "--out")
    several = len(found) > 1
    names = _distinct([fetched.name for fetched, _ in found])
    return [
        make_job(fetched, out / name if several else out, own)
        for (fetched, own), name in zip(found, names, strict=True)
    ]


def _distinct(names: list[str]) -> list[str]:
    """Folder names: nothing of a model's name may leave the run folder."""
    safe = ["".join(c if c.isalnum() or c in "-_.+" else "-" for c in n).strip(".") for n in names]
    taken = {n.casefold() for n in safe if n and _count(safe, n) == 1}
    found = []
    for i, name in enumerate(safe):
        own = name
        if not name or _count(safe, name) > 1:
            own = f"{name or 'model'}-{i}"
            while own.casefold() in taken:
                own += "-"
            taken.add(own.casefold())
        found.append(own)
    return found


def _count(names: list[str], name: str) -> int:
    """How many of them are one folder on a disk that does not tell capitals apart."""
    return sum(n.casefold() == name.casefold() for n in names)


def _tuned(options: argparse.Namespace, job: Any) -> Result:
    from seqto.api import run
    from seqto.cli.progress import watch

    with watch(job, quiet=options.quiet, as_json=options.json) as watched:
        server = _live(options, job)
        try:
            result = run(watched)
        finally:
            if server is not None:
                server.shutdown()
    _show(options, result)
    return result


def _live(options: argparse.Namespace, job: Any) -> Any:
    if not getattr(options, "serve", False):
        return None
    from seqto.report.live import start

    server = start(job.out, port=0)
    print(f"live page: http://127.0.0.1:{server.server_address[1]}/", file=sys.stderr)
    return server


def _show(options: argparse.Namespace, result: Result) -> None:
    if options.json:
        picks = dict(result.recommended)
        line = {"event": "result", "folder": result.folder, "recommended": picks}
        print(json.dumps({**line, "front": list(result.front)}))
        return
    from rich.console import Console

    from seqto.report.terminal import summary

    Console().print(summary(result.report, folder=result.folder))


def run_demo(options: argparse.Namespace) -> int:
    from seqto.demo.run import demo_job

    options.config = None
    job = demo_job(given_path(options.out, "--out"), settings_overrides(options))
    return _exit_code([_tuned(options, job)])


def run_analyze(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqto.report.terminal import layers_table
    from seqto.study.one_shot import analyze

    settings = settings_from(options)
    for job in _jobs(options, settings):
        report = analyze(job)
        if options.json:
            print(json.dumps(report["model"]["layers"]))
        else:
            Console().print(layers_table(report))
            print(f"written: {job.out / 'analysis.json'}, {job.out / 'plots'}")
    return 0


def run_diagnose(options: argparse.Namespace) -> int:
    from seqto.study.diagnose import sentences
    from seqto.study.one_shot import diagnose_job

    settings = settings_from(options)
    for job in _jobs(options, settings):
        findings = diagnose_job(job)
        if options.json:
            print(json.dumps(findings))
        else:
            print("\n".join(sentences(findings)))
    return 0


def run_report(options: argparse.Namespace) -> int:
    from seqto.api import write_outputs
    from seqto.report import csv_file, markdown
    from seqto.report.view import build_report

    folder = Path(options.folder)
    state = _state(folder)
    if options.format == "all":
        result = write_outputs(folder, state)
        from rich.console import Console

        from seqto.report.terminal import summary

        Console().print(summary(result.report, folder=str(folder)))
        for problem in result.problems:
            print(f"seqto: {problem}", file=sys.stderr)
        return _exit_code([result])
    report = build_report(state)
    if options.format == "md":
        print(markdown.summary(report, folder=str(folder)))
    elif options.format == "csv":
        print(csv_file.front_csv(report), end="")
    else:
        print(json.dumps(report, indent=1))
    return 0


def _state(folder: Path) -> RunState:
    from seqto.record.own_files import JOURNAL
    from seqto.record.replay import read_state

    if not (folder / JOURNAL).is_file():
        raise ConfigError(f"{str(folder)!r} is no run folder: it has no {JOURNAL}")
    return read_state(folder / JOURNAL)


def run_export(options: argparse.Namespace) -> int:
    from seqto.assembly.rebuild import rebuild
    from seqto.files import write_file
    from seqto.report.models import pick
    from seqto.selection.recommend import recommend
    from seqto.study.export_path import check_output

    source, output = Path(options.source), given_path(options.output, "--output")
    check_output(output, source)
    if not source.is_dir() or not (source / "journal.jsonl").is_file():
        if options.trial is not None or options.pick is not None:
            raise ConfigError(f"{str(source)!r} is no run folder: --trial and --pick need one")
        return _export_without_run(options, output)
    said = settings_overrides(options)
    if said:
        raise ConfigError(
            f"{source} is a run folder, whose trials are rebuilt as they were measured: "
            f"{next(iter(said))} cannot change them; to quantize anew, give the model file"
        )
    state = _state(source)
    number = options.trial
    if number is None:
        number = pick(recommend(state).picks, options.pick or "balanced")
    if number not in state.trials:
        last = max(state.trials, default=-1)
        raise ConfigError(f"no trial {number} in {source}: it has 0 to {last}")
    data = rebuild(source, state.trials[number].to_json())
    check_output(output, source)  # again: another program may have written it since
    write_file(output, data, error=ConfigError)
    print(f"trial {number}: {len(data):,} bytes → {output}")
    return 0


def _export_without_run(options: argparse.Namespace, output: Path) -> int:
    from seqto.study.one_shot import quantize_once, settings_for_one

    options.models, options.config = [options.source], None
    options.out = str(output.parent)
    (job,) = _jobs(options, settings_for_one(settings_from(options)))
    made = quantize_once(job, output)
    print(f"{made['layers']} layers quantized: {made['size_bytes']:,} bytes → {output}")
    return 0


def run_compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqto.report.compare import compare, compare_table, verdict_sentence
    from seqto.report.view import build_report

    reports = [build_report(_state(Path(f))) for f in (options.before, options.after)]
    margin = options.fail_if_worse
    result = compare(reports[0], reports[1], margin=0.0 if margin is None else margin)
    Console().print(compare_table(result))
    print(verdict_sentence(result))
    return EXIT_GATE if margin is not None and result["worse"] else 0


def run_serve(options: argparse.Namespace) -> int:
    from seqto.report.live import start

    folder = Path(options.folder)
    if not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is no folder")
    server = start(folder, port=options.port)
    print(f"http://127.0.0.1:{server.server_address[1]}/  (Ctrl-C ends it)", flush=True)
    try:
        server.wait()
    except KeyboardInterrupt:
        server.shutdown()
    return 0


def run_devices(_options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from seqto.devices.available import usable_devices

    table = Table("device", "usable", "why")
    for name, usable, reason in usable_devices():
        # as text: brackets in a reason ("seqto[tvm]") are no markup
        table.add_row(Text(name), "yes" if usable else "no", Text(reason))
    Console().print(table)
    return 0


RUN = {
    "tune": run_tune,
    "demo": run_demo,
    "analyze": run_analyze,
    "diagnose": run_diagnose,
    "report": run_report,
    "export": run_export,
    "compare": run_compare,
    "serve": run_serve,
    "devices": run_devices,
}


if __name__ == "__main__":
    raise SystemExit(main())

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

from seqto.errors import ConfigError, SeqtoError

if TYPE_CHECKING:
    from seqto.config import Settings
    from seqto.contracts import Json, Result

EXIT_BAD_INPUT = 2
EXIT_GATE = 3
EXIT_INTERRUPTED = 130

# option → setting; what has no option of its own is reached with --set
OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--mode": ("quantize.mode", str, "static, dynamic or weight"),
    "--strategy": ("search.strategy", str, "frontier, stepwise or evolve"),
    "--order": ("search.order", str, "stepwise: worst, reverse or random"),
    "--device": ("device.kind", str, "ort, tvm, or a plug-in"),
    "--seed": ("search.seed", int, "of the strategy"),
    "--jobs": ("search.jobs", int, "workers; 0 = one a core"),
    "--max-trials": ("search.max_trials", int, "end after this many trials"),
    "--max-minutes": ("search.max_minutes", float, "end after this time, then report"),
    "--max-loss": ("search.max_loss", float, "gate: exit 3 when no trial loses as little"),
    "--max-opset": ("constraints.max_opset", int, "highest opset of the result"),
}
LIST_OPTIONS: dict[str, tuple[str, str]] = {
    "--objectives": ("search.objectives", "of loss, size, latency, accuracy_drop"),
    "--exclude": ("quantize.exclude", "nodes or layers that stay float"),
    "--skip": ("quantize.skip", "rules: depthwise, first, last"),
    "--transforms": ("quantize.transforms", "equalize, smooth-0.5, denormals, bias-correction"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The `seqto` command."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    if not hasattr(options, "run"):
        parser.print_help()
        return EXIT_BAD_INPUT
    try:
        code: int = options.run(options)
    except SeqtoError as error:
        print(f"seqto: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("seqto: interrupted; the same command goes on from here", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 0
    return code


class _Version(argparse.Action):
    """Looks the version up only when somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from seqto.identity import version

        print(f"seqto {version()}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seqto",
        description="Selective post-training quantization of ONNX models, measured on your device.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    _add_tune(commands)
    _add_demo(commands)
    _add_analyze(commands)
    _add_report(commands)
    _add_export(commands)
    _add_compare(commands)
    _add_serve(commands)
    _add_devices(commands)
    return parser


def _add(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(run=run)
    return parser


def _add_tune(commands: Any) -> None:
    parser = _add(commands, "tune", run_tune, "search, measure, report")
    _model_options(parser)
    parser.add_argument("--out", required=True, help="run folder; the same one again resumes")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--serve", action="store_true", help="show the live page while running")
    _output_options(parser)


def _add_demo(commands: Any) -> None:
    parser = _add(commands, "demo", run_demo, "the main job on an embedded model, no download")
    parser.add_argument("--out", default="seqto-demo", help="run folder (default: seqto-demo)")
    _setting_options(parser)
    _output_options(parser)


def _add_analyze(commands: Any) -> None:
    parser = _add(commands, "analyze", run_analyze, "layer analysis only: table, JSON, plot")
    _model_options(parser)
    parser.add_argument("--out", required=True, help="folder for the analysis")
    _output_options(parser)
    diagnose = _add(commands, "diagnose", run_diagnose, "name the causes of the loss, and cures")
    _model_options(diagnose)
    diagnose.add_argument("--out", required=True, help="run folder")
    _output_options(diagnose)


def _add_report(commands: Any) -> None:
    parser = _add(commands, "report", run_report, "make the report again from a run folder alone")
    parser.add_argument("folder", help="a run folder")
    parser.add_argument("--format", choices=("all", "md", "json", "csv"), default="all")


def _add_export(commands: Any) -> None:
    parser = _add(commands, "export", run_export, "rebuild a trial's model, bit for bit")
    parser.add_argument("source", help="a run folder, or a model (with --exclude and --data)")
    parser.add_argument("-o", "--output", required=True, help="the .onnx file to write")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--trial", type=int, help="number of the trial")
    group.add_argument(
        "--pick", help="balanced (default), loss, size, latency, drop_in, small or fast"
    )
    _data_options(parser)
    _setting_options(parser)


def _add_compare(commands: Any) -> None:
    parser = _add(commands, "compare", run_compare, "two runs side by side")
    parser.add_argument("before", help="a run folder; its journal.jsonl is enough")
    parser.add_argument("after", help="another one")
    parser.add_argument(
        "--fail-if-worse", type=float, metavar="MARGIN", help="exit 3 beyond this margin"
    )


def _add_serve(commands: Any) -> None:
    parser = _add(commands, "serve", run_serve, "the live page of a run, or of a folder of runs")
    parser.add_argument("folder", help="a run folder, or one that holds several")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")


def _add_devices(commands: Any) -> None:
    _add(commands, "devices", run_devices, "what is usable here, and why the rest is not")


def _model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", help="files, folders, patterns or hub:OWNER/NAME")
    parser.add_argument("--config", help="a TOML file; command-line options override it")
    _data_options(parser)
    _setting_options(parser)


def _data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", help="a folder of pictures, an .npz, or random:COUNT")
    parser.add_argument("--labels", help="a CSV of file and class")
    parser.add_argument("--preset", help="preprocessing, e.g. imagenet-torch")


def _setting_options(parser: argparse.ArgumentParser) -> None:
    for option, (dotted, kind, text) in OPTIONS.items():
        parser.add_argument(option, dest=dotted, type=kind, help=text)
    for option, (dotted, text) in LIST_OPTIONS.items():
        parser.add_argument(option, dest=dotted, nargs="+", help=text)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting"
    )


def _output_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument("-q", "--quiet", action="store_true", help="print the result only")
    group.add_argument("--json", action="store_true", help="one JSON object a line")


def settings_from(options: argparse.Namespace) -> Settings:
    """Config file, then options, then --set: the later wins."""
    from seqto import config

    tables = config.read_toml(options.config) if getattr(options, "config", None) else {}
    return config.make(tables, settings_overrides(options))


def _split(dotted: str, item: str) -> list[str]:
    """Commas separate too, but a node's name may hold one."""
    return [item] if dotted == "quantize.exclude" else [x for x in item.split(",") if x]


def _data_overrides(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    data = getattr(options, "data", None)
    if data:
        if data.startswith("random:"):
            try:
                found["data.random"] = int(data.removeprefix("random:"))
            except ValueError as error:
                raise ConfigError(f"--data {data!r}: write random:COUNT") from error
        elif data.endswith((".npz", ".npy")):
            found["data.arrays"] = data
        else:
            found["data.images"] = data
    if getattr(options, "labels", None):
        found["data.labels"] = options.labels
    if getattr(options, "preset", None):
        found["data.preprocess.preset"] = options.preset
    return found


# ------------------------------------------------------------------------------------- commands


def run_tune(options: argparse.Namespace) -> int:
    settings = settings_from(options)
    jobs = _jobs(options, settings)
    if options.dry_run:
        from seqto.dry_run import describe

        for job in jobs:
            print(describe(job))
        return 0
    results = [_tuned(options, job) for job in jobs]
    if len(results) > 1 and not options.json:
        from rich.console import Console

        from seqto.reports.terminal import runs_table

        Console().print(runs_table([(r.folder, r.report) for r in results]))
    return EXIT_GATE if any(r.met_max_loss is False for r in results) else 0


def _jobs(options: argparse.Namespace, settings: Settings) -> list[Any]:
    import dataclasses

    from seqto.job import fetch, make_job
    from seqto.sources import parse_source

    paths = options.models or ([settings.model.path] if settings.model.path else [])
    if not paths:
        raise ConfigError("no model: name one, or give --config with model.path")
    found = []
    for path in paths:
        own = dataclasses.replace(settings, model=dataclasses.replace(settings.model, path=path))
        found += [(fetched, own) for fetched in fetch(own, parse_source)]
    out = Path(options.out)
    several = len(found) > 1
    names = _distinct([fetched.name for fetched, _ in found])
    return [
        make_job(fetched, out / name if several else out, own)
        for (fetched, own), name in zip(found, names, strict=True)
    ]


def _distinct(names: list[str]) -> list[str]:
    """Folder names: nothing of a model's name may leave the run folder."""
    safe = ["".join(c if c.isalnum() or c in "-_.+" else "-" for c in n).strip(".") for n in names]
    return [n if n and safe.count(n) == 1 else f"{n or 'model'}-{i}" for i, n in enumerate(safe)]


def _tuned(options: argparse.Namespace, job: Any) -> Result:
    from seqto.screen import watch
    from seqto.tune import run

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
    from seqto.serve import start

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

    from seqto.reports.terminal import summary

    Console().print(summary(result.report, folder=result.folder))


def run_demo(options: argparse.Namespace) -> int:
    from seqto.demo_run import demo_job

    options.config = None
    job = demo_job(Path(options.out), settings_overrides(options))
    result = _tuned(options, job)
    return EXIT_GATE if result.met_max_loss is False else 0


def settings_overrides(options: argparse.Namespace) -> dict[str, Any]:
    """Only what was said on the command line, as dotted keys."""
    from seqto import config

    said = {d: getattr(options, d, None) for d, _, _ in OPTIONS.values()}
    found = {dotted: value for dotted, value in said.items() if value is not None}
    for dotted, _ in LIST_OPTIONS.values():
        if (items := getattr(options, dotted, None)) is not None:
            found[dotted] = [x for item in items for x in _split(dotted, item)]
    found.update(_data_overrides(options))
    found.update(dict(config.parse_assignment(text) for text in options.set))
    return found


def run_analyze(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqto.once import analyze
    from seqto.reports.terminal import layers_table

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
    from seqto.diagnose import diagnose_job, sentences

    settings = settings_from(options)
    for job in _jobs(options, settings):
        findings = diagnose_job(job)
        if options.json:
            print(json.dumps(findings))
        else:
            print("\n".join(sentences(findings)))
    return 0


def run_report(options: argparse.Namespace) -> int:
    from seqto.reports import csv_file, json_file, markdown
    from seqto.tune import write_outputs

    folder = Path(options.folder)
    events = _events(folder)
    if options.format == "all":
        result = write_outputs(folder, events)
        from rich.console import Console

        from seqto.reports.terminal import summary

        Console().print(summary(result.report, folder=str(folder)))
        return 0
    report = json_file.build_report(events)
    if options.format == "md":
        print(markdown.summary(report, folder=str(folder)))
    elif options.format == "csv":
        print(csv_file.front_csv(report), end="")
    else:
        print(json.dumps(report, indent=1))
    return 0


def _events(folder: Path) -> list[Json]:
    from seqto.journal import read_events
    from seqto.tune import JOURNAL

    if not (folder / JOURNAL).is_file():
        raise ConfigError(f"{str(folder)!r} is no run folder: it has no {JOURNAL}")
    return read_events(folder / JOURNAL)


def run_export(options: argparse.Namespace) -> int:
    from seqto.export import pick, rebuild
    from seqto.model import write_atomically
    from seqto.reports.json_file import build_report

    source, output = Path(options.source), Path(options.output)
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
    events = _events(source)
    trials = {e["trial"]["number"]: e["trial"] for e in events if e["event"] == "trial"}
    number = options.trial
    if number is None:
        number = pick(build_report(events), options.pick or "balanced")
    if number not in trials:
        raise ConfigError(f"no trial {number} in {source}: it has 0 to {max(trials, default=-1)}")
    data = rebuild(source, trials[number])
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, data)
    print(f"trial {number}: {len(data):,} bytes → {output}")
    return 0


def _export_without_run(options: argparse.Namespace, output: Path) -> int:
    from seqto.once import quantize_once, settings_for_one

    options.models, options.config = [options.source], None
    options.out = str(output.parent)
    (job,) = _jobs(options, settings_for_one(settings_from(options)))
    made = quantize_once(job, output)
    print(f"{made['layers']} layers quantized: {made['size_bytes']:,} bytes → {output}")
    return 0


def run_compare(options: argparse.Namespace) -> int:
    from rich.console import Console

    from seqto.reports.compare import compare, compare_table, verdict_sentence
    from seqto.reports.json_file import build_report

    reports = [build_report(_events(Path(f))) for f in (options.before, options.after)]
    margin = options.fail_if_worse
    result = compare(reports[0], reports[1], margin=0.0 if margin is None else margin)
    Console().print(compare_table(result))
    print(verdict_sentence(result))
    return EXIT_GATE if margin is not None and result["worse"] else 0


def run_serve(options: argparse.Namespace) -> int:
    from seqto.serve import start

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

    from seqto.devices_here import usable_devices

    table = Table("device", "usable", "why")
    for name, usable, reason in usable_devices():
        # as text: brackets in a reason ("seqto[tvm]") are no markup
        table.add_row(Text(name), "yes" if usable else "no", Text(reason))
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

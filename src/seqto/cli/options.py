"""The words of the command line: commands, options, and the settings that they stand for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from seqto.errors import ConfigError
from seqto.selection.objectives import OBJECTIVES

if TYPE_CHECKING:
    from seqto.config import Settings

# option → setting; what has no option of its own is reached with --set
OPTIONS: dict[str, tuple[str, Any, str]] = {
    "--mode": ("quantize.mode", str, "static, dynamic or weight"),
    "--strategy": ("search.strategy", str, "frontier, stepwise or evolve"),
    "--order": ("search.order", str, "stepwise: worst, reverse or random"),
    "--output-name": ("task.output", str, "the output of the model that is judged"),
    "--device": ("device.kind", str, "ort, tvm, or a plug-in"),
    "--seed": ("search.seed", int, "of the strategy"),
    "--jobs": ("search.jobs", int, "workers; 0 = one a core"),
    "--max-trials": ("search.max_trials", int, "end after this many trials"),
    "--max-minutes": ("search.max_minutes", float, "end after this time, then report"),
    "--max-loss": ("search.max_loss", float, "gate: exit 3 when no trial loses as little"),
    "--max-opset": ("constraints.max_opset", int, "highest opset of the result"),
}


LIST_OPTIONS: dict[str, tuple[str, str]] = {
    "--objectives": ("search.objectives", f"of {', '.join(OBJECTIVES)}"),
    "--exclude": ("quantize.exclude", "nodes or layers that stay float"),
    "--skip": ("quantize.skip", "rules: depthwise, first, last"),
    "--transforms": ("quantize.transforms", "equalize, smooth-0.5, denormals, bias-correction"),
}


class _Version(argparse.Action):
    """Looks the version up only when somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        from seqto.record.environment import version

        print(f"seqto {version()}")
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seqto",
        description="Selective post-training quantization of ONNX models, measured on your device.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _add_tune(commands)
    _add_demo(commands)
    _add_analyze(commands)
    _add_report(commands)
    _add_export(commands)
    _add_compare(commands)
    _add_serve(commands)
    _add_devices(commands)
    return parser


def _add(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    return parser


def _add_tune(commands: Any) -> None:
    parser = _add(commands, "tune", "search, measure, report")
    _model_options(parser)
    parser.add_argument("--out", required=True, help="run folder; the same one again resumes")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done")
    parser.add_argument("--serve", action="store_true", help="show the live page while running")
    _output_options(parser)


def _add_demo(commands: Any) -> None:
    parser = _add(commands, "demo", "the main job on an embedded model, no download")
    parser.add_argument("--out", default="seqto-demo", help="run folder (default: seqto-demo)")
    _setting_options(parser)
    _output_options(parser)


def _add_analyze(commands: Any) -> None:
    parser = _add(commands, "analyze", "layer analysis only: table, JSON, plot")
    _model_options(parser)
    parser.add_argument("--out", required=True, help="folder for the analysis")
    _output_options(parser)
    diagnose = _add(commands, "diagnose", "name the causes of the loss, and cures")
    _model_options(diagnose)
    diagnose.add_argument("--out", required=True, help="run folder")
    _output_options(diagnose)


def _add_report(commands: Any) -> None:
    parser = _add(commands, "report", "make the report again from a run folder alone")
    parser.add_argument("folder", help="a run folder")
    parser.add_argument("--format", choices=("all", "md", "json", "csv"), default="all")


def _add_export(commands: Any) -> None:
    parser = _add(commands, "export", "rebuild a trial's model, bit for bit")
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
    parser = _add(commands, "compare", "two runs side by side")
    parser.add_argument("before", help="a run folder; its journal.jsonl is enough")
    parser.add_argument("after", help="another one")
    parser.add_argument(
        "--fail-if-worse", type=float, metavar="MARGIN", help="exit 3 beyond this margin"
    )


def _add_serve(commands: Any) -> None:
    parser = _add(commands, "serve", "the live page of a run, or of a folder of runs")
    parser.add_argument("folder", help="a run folder, or one that holds several")
    parser.add_argument("--port", type=int, default=0, help="0 = any free one")


def _add_devices(commands: Any) -> None:
    _add(commands, "devices", "what is usable here, and why the rest is not")


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


# ------------------------------------------------------------------------------------- settings


def settings_from(options: argparse.Namespace) -> Settings:
    """Config file, then options, then --set: the later wins."""
    from seqto import config

    tables = config.read_toml(options.config) if getattr(options, "config", None) else {}
    return config.make(tables, settings_overrides(options))


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

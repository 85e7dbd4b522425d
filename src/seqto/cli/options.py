"""The commands and options of the command line, and the setting that each option stands for.

It imports no other room of the package, so that `seqto --help` is quick. The defaults in the
help texts are those of config/settings.py; a test compares them.
"""

from __future__ import annotations

import argparse
from typing import Any

from seqto.cli.option_groups import (
    add_data_options,
    add_json,
    add_model_options,
    add_option,
    add_set,
    add_setting_options,
    add_within,
    names_of_group,
    output_group,
    titled_group,
)
from seqto.cli.option_table import (
    EXPORT,
    GOAL,
    MODEL,
    OPTIONS,
    OTHER,
    SEARCH,
)

EXIT_CODES = """\
exit codes:
  0    done
  2    bad input: one line says what is wrong and what to do
  3    no trial meets the goal, or compare --fail-if-worse found it worse
  4    of several models some could not be tuned: one line says why for each
  130  interrupted; tune and demo continue with the same command"""


TUNE_EXAMPLES = """\
examples:
  seqto tune model.onnx --data pictures/ --preset imagenet-torch --out run
  seqto tune model.onnx --data random:100 --out runs/quick --max-minutes 2
  seqto tune --config tune.toml --out runs/model --max-loss 2%
  seqto tune model.onnx --data pictures/ --out run --want smallest --within 1%
  seqto tune models/*.onnx --data samples.npz --out runs --objectives loss size
  seqto tune model.onnx --data pictures/ --out runs/model --dry-run"""


EXPORT_EXAMPLES = """\
examples:
  seqto export runs/model -o model-int8.onnx
  seqto export runs/model --trial 3 -o trial-3.onnx
  seqto export model.onnx --data pictures/ --skip first last -o model-int8.onnx
  seqto export model.onnx --mode weight -o model-weights-int8.onnx"""


PUSH_EXAMPLES = """\
examples:
  seqto push runs/model --repo me/model-int8 --dry-run
  seqto push runs/model --pick small --repo me/model-int8 --public"""


INIT_EXAMPLES = """\
examples:
  seqto init model.onnx
  seqto init model.onnx --data pictures/ -o model.toml"""


CHECK = ("--device", "--output-name")


CHECK_EXAMPLES = """\
examples:
  seqto check model-int8.onnx --against model.onnx --data pictures/ --within 1%
  seqto check model-int8.onnx --against model.onnx --config tune.toml --json"""


APPLY_EXAMPLES = """\
examples:
  seqto apply runs/model retrained.onnx -o retrained-int8.onnx
  seqto apply runs/model retrained.onnx --pick small --data new/ -o small.onnx"""


COMPLETION_EXAMPLES = """\
bash: eval "$(seqto completion bash)"     in ~/.bashrc
zsh:  eval "$(seqto completion zsh)"      in ~/.zshrc, after compinit
fish: seqto completion fish > ~/.config/fish/completions/seqto.fish"""


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seqto",
        description="Selective post-training quantization of ONNX models, measured on your device.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    _add_tune(commands)
    _add_demo(commands)
    _add_analyze(commands)
    _add_diagnose(commands)
    _add_report(commands)
    _add_export(commands)
    _add_push(commands)
    _add_compare(commands)
    _add_serve(commands)
    _add_devices(commands)
    _add_init(commands)
    _add_check(commands)
    _add_apply(commands)
    _add_inspect(commands)
    _add_status(commands)
    _add_picks(commands)
    _add_mcp(commands)
    _add_completion(commands)
    return parser


def _add(
    commands: Any, name: str, text: str, *, usage: str = "", examples: str = ""
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text,
        usage=f"seqto {name} {usage}" if usage else None,
        epilog=examples or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _add_tune(commands: Any) -> None:
    parser = _add(
        commands,
        "tune",
        "search for the best plans, measure them, write the report",
        usage="[MODEL ...] --out FOLDER [options]",
        examples=TUNE_EXAMPLES,
    )
    add_model_options(parser)
    add_setting_options(parser)
    group = output_group(parser, "run folder; a folder that is given again is resumed")
    group.add_argument("--dry-run", action="store_true", help="print what would be done")
    group.add_argument("--serve", action="store_true", help="serve the live page while running")
    _add_mlflow(group)
    group.add_argument(
        "--no-examples", action="store_true", help="leave samples that changed out of the page"
    )


def _add_demo(commands: Any) -> None:
    parser = _add(commands, "demo", "tune an embedded model, without a download", usage="[options]")
    add_setting_options(parser, hidden=("--output-name",))
    _add_mlflow(output_group(parser, "run folder", default="seqto-demo"))


def _add_mlflow(group: Any) -> None:
    group.add_argument(
        "--mlflow",
        nargs="?",
        const="",
        metavar="URI",
        help="record the run in MLflow, at this tracking server or in this folder (default: not "
        "recorded; without URI: MLFLOW_TRACKING_URI)",
    )


def _add_analyze(commands: Any) -> None:
    parser = _add(
        commands,
        "analyze",
        "rank the layers by their error: table, JSON, plot",
        usage="[MODEL ...] --out FOLDER [options]",
    )
    add_model_options(parser)
    add_setting_options(parser, hidden=(*names_of_group(SEARCH), *names_of_group(GOAL)))
    output_group(parser, "folder for the analysis; it may be a run folder")


def _add_diagnose(commands: Any) -> None:
    parser = _add(
        commands,
        "diagnose",
        "find the causes of the loss, and remedies",
        usage="[MODEL ...] --out FOLDER [options]",
    )
    add_model_options(parser)
    add_setting_options(parser, hidden=(*names_of_group(SEARCH), *names_of_group(GOAL)))
    output_group(parser, "folder for the diagnosis; it may be a run folder")


def _add_report(commands: Any) -> None:
    parser = _add(commands, "report", "write the report again from a run folder alone")
    parser.add_argument("folder", metavar="FOLDER", help="a run folder")
    parser.add_argument(
        "--format",
        choices=("all", "md", "json", "csv", "sensitivities"),
        default="all",
        help="all: write every file; md, json, csv: print; sensitivities: print what `tune --from` "
        "takes (default: all)",
    )
    parser.add_argument(
        "--no-examples", action="store_true", help="leave samples that changed out of the page"
    )
    parser.add_argument(
        "--picture",
        metavar="ADDRESS",
        help="of md: where the picture of the front is, e.g. the address of an uploaded file; "
        "none: leave it out (default: plots/front.svg in FOLDER)",
    )


def _add_export(commands: Any) -> None:
    parser = _add(
        commands,
        "export",
        "write the model of a trial, or quantize a model without a search",
        usage="SOURCE -o FILE [options]",
        examples=EXPORT_EXAMPLES,
    )
    parser.add_argument("source", metavar="SOURCE", help="a run folder, or a model")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the .onnx file to write"
    )
    run = parser.add_argument_group("from a run folder")
    trial = run.add_mutually_exclusive_group()
    trial.add_argument("--trial", type=int, metavar="N", help="number of the trial")
    trial.add_argument(
        "--pick",
        metavar="NAME",
        help="a name that the report shows: balanced, drop-in, small, fast, lowest-loss, "
        "goal (default: the goal's, else balanced)",
    )
    run.add_argument(
        "--exact",
        action="store_true",
        help="write the measured file bit for bit (default: its nodes get notes with their "
        "scheme, which Netron shows)",
    )
    parser.add_argument(
        "--card",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a model card beside the model, and where it comes from into the model's "
        "metadata (default: no card; without FILE: OUTPUT with the ending .md)",
    )
    add_json(parser)
    model = parser.add_argument_group("from a model")
    add_data_options(model, labels=False)
    for option in OPTIONS:
        if option.name in EXPORT:
            add_option(model, option)
    add_set(model)


def _add_push(commands: Any) -> None:
    parser = _add(
        commands,
        "push",
        "upload a trial's model, its card and the report to a repository of the hub",
        usage="RUN --repo OWNER/NAME [options]",
        examples=PUSH_EXAMPLES,
    )
    parser.add_argument("folder", metavar="RUN", help="a run folder")
    parser.add_argument(
        "--repo", required=True, metavar="OWNER/NAME", help="repository of the hub (required)"
    )
    trial = parser.add_mutually_exclusive_group()
    trial.add_argument("--trial", type=int, metavar="N", help="number of the trial")
    trial.add_argument(
        "--pick", metavar="NAME", help="a recommended trial (default: the goal's, else balanced)"
    )
    parser.add_argument("--public", action="store_true", help="a new repository is public")
    parser.add_argument(
        "--replace-card", action="store_true", help="replace a README.md that seqto did not write"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the files; nothing is sent")
    add_json(parser)


def _add_compare(commands: Any) -> None:
    parser = _add(commands, "compare", "compare two runs")
    parser.add_argument("before", metavar="BEFORE", help="a run folder; its journal is enough")
    parser.add_argument("after", metavar="AFTER", help="the run folder to compare with it")
    parser.add_argument(
        "--fail-if-worse",
        type=float,
        metavar="MARGIN",
        help="exit code 3 when it is worse by more than this (default: never)",
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        help="an HTML file to write: both fronts in one picture, the picks before and after "
        "(default: none)",
    )
    add_json(parser)


def _add_serve(commands: Any) -> None:
    parser = _add(commands, "serve", "serve the live page of a run, or of a folder of runs")
    parser.add_argument("folder", metavar="FOLDER", help="a run folder, or one with several")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="0: any free one (default: 0)"
    )


def _add_devices(commands: Any) -> None:
    parser = _add(commands, "devices", "list the devices that work here, and why others do not")
    add_json(parser)


def _add_init(commands: Any) -> None:
    parser = _add(
        commands,
        "init",
        "write a config file with what can be guessed, and show what it would do",
        usage="MODEL [--data DATA] [-o FILE]",
        examples=INIT_EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="a file, or hub:OWNER/NAME")
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="a folder of pictures, an .npz file, or random:COUNT (default: random inputs)",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="tune.toml",
        metavar="FILE",
        help="the config to write (default: tune.toml)",
    )
    add_json(parser)


def _add_check(commands: Any) -> None:
    parser = _add(
        commands,
        "check",
        "measure a model file beside its float model, without a run folder",
        usage="MODEL --against FLOAT --data DATA [options]",
        examples=CHECK_EXAMPLES,
    )
    parser.add_argument("model", metavar="MODEL", help="the .onnx file to measure")
    parser.add_argument(
        "--against", required=True, metavar="FLOAT", help="the float model (required)"
    )
    group = titled_group(parser, MODEL)
    group.add_argument(
        "--config", metavar="FILE", help="a TOML file; options override it (default: none)"
    )
    add_data_options(group)
    for option in OPTIONS:
        if (option.group == GOAL and option.name != "--want") or option.name in CHECK:
            add_option(titled_group(parser, option.group), option)
    add_within(titled_group(parser, GOAL))
    add_set(titled_group(parser, OTHER))
    add_json(parser)


def _add_apply(commands: Any) -> None:
    parser = _add(
        commands,
        "apply",
        "put a run's plan on another checkpoint of the same graph",
        usage="RUN MODEL -o FILE [options]",
        examples=APPLY_EXAMPLES,
    )
    parser.add_argument("folder", metavar="RUN", help="a run folder")
    parser.add_argument("model", metavar="MODEL", help="a model with the run's graph")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the .onnx file to write (required)"
    )
    trial = parser.add_mutually_exclusive_group()
    trial.add_argument("--trial", type=int, metavar="N", help="number of the trial")
    trial.add_argument(
        "--pick", metavar="NAME", help="a recommended trial (default: the goal's, else balanced)"
    )
    add_data_options(titled_group(parser, MODEL))
    for option in OPTIONS:
        if option.name in ("--device", "--jobs"):
            add_option(titled_group(parser, option.group), option)
    add_set(titled_group(parser, OTHER))
    add_json(parser)


def _add_inspect(commands: Any) -> None:
    parser = _add(commands, "inspect", "show what a model file tells; nothing is run")
    parser.add_argument("model", metavar="MODEL", help="a file, or hub:OWNER/NAME")
    add_json(parser)


def _add_status(commands: Any) -> None:
    parser = _add(commands, "status", "show how far a run is, also of one that is running")
    parser.add_argument("folder", metavar="RUN", help="a run folder")
    add_json(parser)


def _add_picks(commands: Any) -> None:
    parser = _add(commands, "picks", "list the recommended trials of a run with their figures")
    parser.add_argument("folder", metavar="RUN", help="a run folder")
    add_json(parser)


def _add_mcp(commands: Any) -> None:
    parser = _add(
        commands, "mcp", "serve commands to agents over stdin and stdout, by the protocol MCP"
    )
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="folders that may be read and written; relative paths begin in the first",
    )


def _add_completion(commands: Any) -> None:
    parser = _add(
        commands,
        "completion",
        "print what makes a shell complete commands and options",
        examples=COMPLETION_EXAMPLES,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")

"""Options of the commands in models.py."""

from __future__ import annotations

from typing import Any

from seqto.cli.option_groups import (
    add_command,
    add_config,
    add_data_options,
    add_json,
    add_model_options,
    add_one_model,
    add_option,
    add_output_file,
    add_run_folder,
    add_set,
    add_setting_options,
    add_trial_choice,
    add_within,
    names_of_group,
    output_group,
    titled_group,
)
from seqto.cli.option_table import EXPORT, GOAL, MODEL, OPTIONS, OTHER, SEARCH

EXPORT_EXAMPLES = """\
examples:
  seqto export runs/model -o model-int8.onnx
  seqto export runs/model --trial 3 -o trial-3.onnx
  seqto export model.onnx --data pictures/ --skip first last -o model-int8.onnx
  seqto export model.onnx --mode weight -o model-weights-int8.onnx"""

CHECK = ("--device", "--output-name")

CHECK_EXAMPLES = """\
examples:
  seqto check model-int8.onnx --against model.onnx --data pictures/ --within 1%
  seqto check model-int8.onnx --against model.onnx --config tune.toml --json"""

APPLY_EXAMPLES = """\
examples:
  seqto apply runs/model retrained.onnx -o retrained-int8.onnx
  seqto apply runs/model retrained.onnx --pick small --data new/ -o small.onnx"""

INIT_EXAMPLES = """\
examples:
  seqto init model.onnx
  seqto init model.onnx --data pictures/ -o model.toml"""


def add_analyze(commands: Any) -> None:
    _add_command_without_search(
        commands,
        "analyze",
        "rank the layers by their error: table, JSON, plot",
        out="folder for the analysis; it may be a run folder",
    )


def add_diagnose(commands: Any) -> None:
    _add_command_without_search(
        commands,
        "diagnose",
        "find the causes of the loss, and remedies",
        out="folder for the diagnosis; it may be a run folder",
    )


def _add_command_without_search(commands: Any, name: str, text: str, *, out: str) -> None:
    """Add a command on models that takes a run's options and uses those of no search."""
    parser = add_command(commands, name, text, usage="[MODEL ...] --out FOLDER [options]")
    add_model_options(parser)
    add_setting_options(parser, hidden=(*names_of_group(SEARCH), *names_of_group(GOAL)))
    output_group(parser, out)


def add_export(commands: Any) -> None:
    parser = add_command(
        commands,
        "export",
        "write the model of a trial, or quantize a model without a search",
        usage="SOURCE -o FILE [options]",
        examples=EXPORT_EXAMPLES,
    )
    parser.add_argument("source", metavar="SOURCE", help="a run folder, or a model")
    add_output_file(parser)
    run = parser.add_argument_group("from a run folder")
    add_trial_choice(
        run,
        pick="a name that the report shows: balanced, portable, drop-in, small, fast, "
        "lowest-loss, goal (default: the goal's, else balanced)",
    )
    run.add_argument(
        "--notes",
        action="store_true",
        help="note on every node how its layer is kept, where Netron shows it (default: the "
        "measured file, bit for bit)",
    )
    parser.add_argument(
        "--card",
        nargs="?",
        const=True,  # the bare option: a file beside the model
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


def add_check(commands: Any) -> None:
    parser = add_command(
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
    add_config(group)
    add_data_options(group)
    for option in OPTIONS:
        if (option.group == GOAL and option.name != "--want") or option.name in CHECK:
            add_option(titled_group(parser, option.group), option)
    add_within(titled_group(parser, GOAL))
    add_set(titled_group(parser, OTHER))
    add_json(parser)


def add_apply(commands: Any) -> None:
    parser = add_command(
        commands,
        "apply",
        "put a run's plan on another checkpoint of the same graph",
        usage="RUN MODEL -o FILE [options]",
        examples=APPLY_EXAMPLES,
    )
    add_run_folder(parser)
    parser.add_argument("model", metavar="MODEL", help="a model with the run's graph")
    add_output_file(parser)
    add_trial_choice(parser)
    add_data_options(titled_group(parser, MODEL), default="the run's own")
    for option in OPTIONS:
        if option.name in ("--device", "--jobs"):
            add_option(titled_group(parser, option.group), option)
    add_set(titled_group(parser, OTHER))
    add_json(parser)


def add_init(commands: Any) -> None:
    parser = add_command(
        commands,
        "init",
        "write a config file with what can be guessed, and show what it would do",
        usage="MODEL [--data DATA] [-o FILE]",
        examples=INIT_EXAMPLES,
    )
    add_one_model(parser)
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


def add_devices(commands: Any) -> None:
    parser = add_command(
        commands, "devices", "list the devices that work here, and why others do not"
    )
    add_json(parser)

"""Options that several commands have, in titled groups."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from seqto.cli.option_table import MODEL, OPTIONS, OTHER, OUTPUT, Option


def add_command(
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


def names_of_group(group: str) -> tuple[str, ...]:
    return tuple(o.name for o in OPTIONS if o.group == group)


def titled_group(parser: argparse.ArgumentParser, title: str) -> Any:
    """Return the parser's group of that title; it is made when it is not there."""
    known = {g.title: g for g in parser._action_groups}
    return known.get(title) or parser.add_argument_group(title)


def add_model_options(parser: argparse.ArgumentParser) -> None:
    group = titled_group(parser, MODEL)
    group.add_argument(
        "models",
        nargs="*",
        metavar="MODEL",
        help="files, folders, patterns or hub:OWNER/NAME (default: model.path of --config)",
    )
    add_config(group)
    add_data_options(group)


def add_config(group: Any) -> None:
    group.add_argument(
        "--config", metavar="FILE", help="a TOML file; options override it (default: none)"
    )


def add_run_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="a run folder")


def add_one_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file, or hub:OWNER/NAME")


def add_output_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="the .onnx file to write (required)"
    )


def add_data_options(group: Any, *, labels: bool = True, default: str = "none") -> None:
    group.add_argument(
        "--data",
        metavar="DATA",
        help="a folder of pictures, an .npz file, texts (.tsv, .csv, .jsonl, .parquet, .txt), or "
        f"random:COUNT (default: {default})",
    )
    if labels:
        group.add_argument(
            "--labels",
            metavar="FILE",
            help='a CSV of file and class, "folders" or "none" (default: by sub-folders)',
        )
    group.add_argument(
        "--preset",
        metavar="NAME",
        help="preprocessing of pictures, e.g. imagenet-torch (default: the model's own)",
    )


def add_setting_options(
    parser: argparse.ArgumentParser,
    hidden: Collection[str] = (),
    *,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add the options of all settings; hidden ones are taken and not listed.

    A command that may be given a run folder takes the options of the run, used or not. `defaults`
    has those in which a command differs from the settings.
    """
    for setting in OPTIONS:
        option = replace(setting, default=defaults.get(setting.name, setting.default))
        shown = option.name not in hidden
        add_option(titled_group(parser, option.group) if shown else parser, option, shown=shown)
        if option.name == "--want" and shown:
            add_within(titled_group(parser, option.group))
    add_set(titled_group(parser, OTHER))


def add_within(group: Any) -> None:
    group.add_argument(
        "--within",
        metavar="SHARE",
        help="of changed answers, e.g. 1%%; of the task's score: score:1%% (default: no limit)",
    )


def add_option(group: Any, option: Option, *, shown: bool = True) -> None:
    text = f"{option.help} (default: {option.default})"
    if option.type is bool:
        group.add_argument(
            option.name,
            dest=option.setting,
            action="store_const",
            const=True,
            help=text if shown else argparse.SUPPRESS,
        )
        return
    group.add_argument(
        option.name,
        dest=option.setting,
        metavar=option.metavar,
        type=option.type,
        nargs="+" if option.many else None,
        action="append" if option.repeated else "store",
        help=text if shown else argparse.SUPPRESS,
    )


def add_set(group: Any) -> None:
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any setting of docs/config.md, e.g. data.evaluation=500",
    )


def output_group(parser: argparse.ArgumentParser, out: str, *, default: str = "") -> Any:
    group = titled_group(parser, OUTPUT)
    text = f"{out} (default: {default})" if default else f"{out} (required)"
    group.add_argument(
        "--out", required=not default, default=default or None, metavar="FOLDER", help=text
    )
    form = group.add_mutually_exclusive_group()
    form.add_argument("-q", "--quiet", action="store_true", help="print the result only")
    form.add_argument("--json", action="store_true", help="print one JSON object per line")
    return group


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_trial_choice(
    group: Any, *, pick: str = "a recommended trial (default: the goal's, else balanced)"
) -> None:
    trial = group.add_mutually_exclusive_group()
    trial.add_argument("--trial", type=int, metavar="N", help="number of the trial")
    trial.add_argument("--pick", metavar="NAME", help=pick)

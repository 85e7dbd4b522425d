"""Options of the commands in runs.py."""

from __future__ import annotations

from typing import Any

from seqto.cli.option_groups import (
    add_command,
    add_json,
    add_model_options,
    add_setting_options,
    output_group,
)

TUNE_EXAMPLES = """\
examples:
  seqto tune model.onnx --data pictures/ --preset imagenet-torch --out run
  seqto tune model.onnx --data random:100 --out runs/quick --max-minutes 2
  seqto tune --config tune.toml --out runs/model --max-loss 2%
  seqto tune model.onnx --data pictures/ --out run --want smallest --within 1%
  seqto tune models/*.onnx --data samples.npz --out runs --objectives loss size
  seqto tune model.onnx --data pictures/ --out runs/model --dry-run"""


def add_tune(commands: Any) -> None:
    parser = add_command(
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
    _add_no_examples(group)


def add_demo(commands: Any) -> None:
    parser = add_command(
        commands, "demo", "tune an embedded model, without a download", usage="[options]"
    )
    # those of demo/run.py
    add_setting_options(parser, hidden=("--output-name",), defaults={"--max-minutes": "1.5"})
    _add_mlflow(output_group(parser, "run folder", default="seqto-demo"))


def _add_no_examples(group: Any) -> None:
    group.add_argument(
        "--no-examples", action="store_true", help="leave samples that changed out of the page"
    )


def _add_mlflow(group: Any) -> None:
    group.add_argument(
        "--mlflow",
        nargs="?",
        const="",
        metavar="URI",
        help="record the run in MLflow, at this tracking server or in this folder (default: not "
        "recorded; without URI: MLFLOW_TRACKING_URI)",
    )


def add_report(commands: Any) -> None:
    parser = add_command(commands, "report", "write the report again from a run folder alone")
    parser.add_argument("folder", metavar="FOLDER", help="a run folder")
    parser.add_argument(
        "--format",
        choices=("all", "md", "json", "csv", "sensitivities"),
        default="all",
        help="all: write every file; md, json, csv: print; sensitivities: print what `tune --from` "
        "takes (default: all)",
    )
    _add_no_examples(parser)
    parser.add_argument(
        "--picture",
        metavar="ADDRESS",
        help="of md: where the picture of the front is, e.g. the address of an uploaded file; "
        "none: leave it out (default: plots/front.svg in FOLDER)",
    )


def add_compare(commands: Any) -> None:
    parser = add_command(commands, "compare", "compare the recommended models of two runs")
    parser.add_argument("before", metavar="BEFORE", help="a run folder; its journal is enough")
    parser.add_argument("after", metavar="AFTER", help="the run folder to compare with it")
    parser.add_argument(
        "--fail-if-worse",
        type=float,
        metavar="MARGIN",
        help="exit code 3 where AFTER is worse by more than this share, e.g. 0.02 (default: never)",
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        help="an HTML file to write: both fronts in one picture, the picks before and after "
        "(default: none)",
    )
    add_json(parser)


def add_serve(commands: Any) -> None:
    parser = add_command(commands, "serve", "serve the live page of a run, or of a folder of runs")
    parser.add_argument("folder", metavar="FOLDER", help="a run folder, or one with several")
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port; 0: any free port (default: 0)"
    )

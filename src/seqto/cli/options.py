"""The parser of the command line, with all commands.

It imports no other room of the package, so that `seqto --help` is quick. The defaults in the
help texts are those of config/settings.py; a test compares them.
"""

from __future__ import annotations

import argparse
from typing import NoReturn

from seqto.cli.model_options import (
    add_analyze,
    add_apply,
    add_check,
    add_devices,
    add_diagnose,
    add_export,
    add_init,
)
from seqto.cli.program_options import (
    add_completion,
    add_inspect,
    add_mcp,
    add_picks,
    add_push,
    add_status,
)
from seqto.cli.run_options import add_compare, add_demo, add_report, add_serve, add_tune
from seqto.text import one_line

EXIT_CODES = """\
exit codes:
  0    done
  2    bad input: one line says what is wrong and what to do
  3    no trial meets the goal, check found a bound exceeded, or compare
       --fail-if-worse found the second run worse
  4    of several models some could not be tuned: one line says why for each
  130  interrupted; tune and demo continue with the same command"""

# command → its options, and the file of this room that has the function of its name; in the order
# of the help
COMMANDS = {
    "tune": (add_tune, "runs"),
    "demo": (add_demo, "runs"),
    "analyze": (add_analyze, "models"),
    "diagnose": (add_diagnose, "models"),
    "report": (add_report, "runs"),
    "export": (add_export, "models"),
    "push": (add_push, "programs"),
    "compare": (add_compare, "runs"),
    "serve": (add_serve, "runs"),
    "devices": (add_devices, "models"),
    "init": (add_init, "models"),
    "check": (add_check, "models"),
    "apply": (add_apply, "models"),
    "inspect": (add_inspect, "programs"),
    "status": (add_status, "programs"),
    "picks": (add_picks, "programs"),
    "mcp": (add_mcp, "programs"),
    "completion": (add_completion, "main"),
}


class Parser(argparse.ArgumentParser):
    """A parser whose errors repeat no more than the ends of a long word."""

    def error(self, message: str) -> NoReturn:
        super().error(one_line(message, most=400))


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="seqto",
        description="Selective post-training quantization of ONNX models, measured on your device.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for add_options, _ in COMMANDS.values():
        add_options(commands)
    return parser

"""Options of the commands in programs.py, and of completion."""

from __future__ import annotations

from typing import Any

from seqto.cli.option_groups import (
    add_command,
    add_json,
    add_one_model,
    add_run_folder,
    add_trial_choice,
)

PUSH_EXAMPLES = """\
examples:
  seqto push runs/model --repo me/model-int8 --dry-run
  seqto push runs/model --pick small --repo me/model-int8 --public"""

COMPLETION_EXAMPLES = """\
bash: eval "$(seqto completion bash)"     in ~/.bashrc
zsh:  eval "$(seqto completion zsh)"      in ~/.zshrc, after compinit
fish: seqto completion fish > ~/.config/fish/completions/seqto.fish"""


def add_push(commands: Any) -> None:
    parser = add_command(
        commands,
        "push",
        "upload a trial's model, its card and the report to a repository of the hub",
        usage="RUN --repo OWNER/NAME [options]",
        examples=PUSH_EXAMPLES,
    )
    add_run_folder(parser)
    parser.add_argument(
        "--repo", required=True, metavar="OWNER/NAME", help="repository of the hub (required)"
    )
    add_trial_choice(parser)
    parser.add_argument("--public", action="store_true", help="a new repository is public")
    parser.add_argument(
        "--replace-card", action="store_true", help="replace a README.md that seqto did not write"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the files; nothing is sent")
    add_json(parser)


def add_inspect(commands: Any) -> None:
    parser = add_command(
        commands, "inspect", "show inputs, outputs, size and guessed task of a model; it is not run"
    )
    add_one_model(parser)
    add_json(parser)


def add_status(commands: Any) -> None:
    parser = add_command(commands, "status", "show how far a run is, while it is running too")
    add_run_folder(parser)
    add_json(parser)


def add_picks(commands: Any) -> None:
    parser = add_command(
        commands, "picks", "list the recommended trials of a run with their figures"
    )
    add_run_folder(parser)
    add_json(parser)


def add_mcp(commands: Any) -> None:
    parser = add_command(
        commands, "mcp", "serve commands to agents over stdin and stdout, by the protocol MCP"
    )
    parser.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="folders that may be read and written; relative paths begin in the first",
    )


def add_completion(commands: Any) -> None:
    parser = add_command(
        commands,
        "completion",
        "print the script by which a shell completes commands and options",
        examples=COMPLETION_EXAMPLES,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")

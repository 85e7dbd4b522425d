"""Print what rich lays out."""

from __future__ import annotations

from typing import Any

from rich.console import Console


class Terminal(Console):
    def on_broken_pipe(self) -> None:  # rich would end the program with exit code 1
        raise BrokenPipeError


def show(content: Any) -> None:
    Terminal().print(content, crop=False)  # a command to copy may be wider than the window

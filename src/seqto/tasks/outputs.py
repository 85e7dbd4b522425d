"""Which of a model's outputs a task reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from seqto.errors import ConfigError, nearest

T = TypeVar("T")


def choose_output(outputs: Mapping[str, T], output: str | None) -> tuple[str, T]:
    """Return the output that the setting names, or the first."""
    if output is None:
        return next(iter(outputs.items()))
    if output not in outputs:
        known = ", ".join(map(repr, outputs))
        raise ConfigError(
            f"task.output = {output!r} is no output of the model"
            f"{nearest(output, list(outputs))}: it has {known}"
        )
    return output, outputs[output]
